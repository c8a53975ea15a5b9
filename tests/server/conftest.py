"""Servers on a store in memory, which tests look at from the side."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bucketmq.bucket.memory import MemoryStore
from bucketmq.client import Bucket
from server.running import Running, aio_on, serving, settings_with, sync_on

SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def bucket(store: MemoryStore) -> Iterator[Bucket]:
    """The server's bucket, as another process sees it."""
    with sync_on(store) as opened:
        yield opened


@pytest.fixture
def server(store: MemoryStore) -> Iterator[Running]:
    with serving(lambda: aio_on(store), settings_with()) as running:
        yield running


@pytest.fixture
def folder() -> Iterator[Path]:
    """A fresh folder, in memory where there is such a place."""
    made = Path(tempfile.mkdtemp(prefix="bucketmq-server-", dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(autouse=True)
def everything_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    for name in ("bucketmq", "uvicorn"):
        caplog.set_level(logging.DEBUG, name)
