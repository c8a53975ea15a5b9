"""The browser, the command line and the session of Spark of other tests."""

from __future__ import annotations

from cli.conftest import bucket, cli, environment, folder, shell, url
from dashboard.browsing import browser, chromium
from spark.conftest import java_here, spark

__all__ = ["browser", "bucket", "chromium", "cli", "environment", "folder", "java_here", "shell", "spark", "url"]
