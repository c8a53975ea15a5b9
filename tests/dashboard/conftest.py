"""Dashboards on a store in memory, which tests look at from the side; and a browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from server.running import sync_on

from bucketmq.bucket.memory import MemoryStore
from bucketmq.client import Bucket
from dashboard.browsing import browser, chromium

__all__ = ["browser", "chromium"]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def bucket(store: MemoryStore) -> Iterator[Bucket]:
    """The dashboard's bucket, as another process sees it."""
    with sync_on(store) as opened:
        yield opened
