"""One SeaweedFS for all tests of a worker process of pytest; a place of its own in it for each test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from bucketmq.errors import Unsupported
from bucketmq.testing import servers


@pytest.fixture(scope="session")
def seaweedfs_url() -> Iterator[str]:
    try:
        with servers.seaweedfs() as url:
            yield url
    except Unsupported as error:
        servers.skip_or_fail(error)


@pytest.fixture
def folder_place(tmp_path: Path) -> str:
    return f"file://{tmp_path}/bucket"


@pytest.fixture
def seaweedfs_place(seaweedfs_url: str) -> str:
    """Requests that hang are given up soon, so that a cut connection costs seconds, not a minute."""
    return seaweedfs_url.replace("?", f"/{uuid.uuid4().hex}?", 1) + "&timeout=5&connect_timeout=2"


@pytest.fixture(params=["folder", "seaweedfs"])
def place(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(f"{request.param}_place")
    return url
