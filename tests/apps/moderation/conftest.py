"""The browser of the dashboard's tests."""

from __future__ import annotations

from dashboard.browsing import browser, chromium

__all__ = ["browser", "chromium"]
