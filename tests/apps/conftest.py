"""An application of another package, installed once; and where applications are killed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.conftest import bucket, cli, environment, folder, url

from apps.wordcount import install
from bucketmq.errors import Unsupported
from bucketmq.testing import servers


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("wordcount"))


@pytest.fixture
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The application, in the path of this process and of those it starts."""
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", str(site))
    yield site
    sys.modules.pop("wordcount", None)


@pytest.fixture(params=["folder", "seaweedfs"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty folder, then that of a real object store."""
    if request.param == "folder":
        yield f"file://{tmp_path}/bucket"
        return
    try:
        with servers.seaweedfs() as url:
            yield url
    except Unsupported as error:
        servers.skip_or_fail(error)


__all__ = ["bucket", "cli", "environment", "folder", "url"]
