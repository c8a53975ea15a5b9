"""The memory store keeps the contract."""

from __future__ import annotations

import pytest

from bucketmq.bucket.memory import MemoryStore
from bucketmq.testing.contract import StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()


def test_the_clock_can_be_set_from_outside() -> None:
    now = [100.0]
    store = MemoryStore(clock=lambda: now[0])
    store.create("a", b"")
    now[0] = 200.0
    store.create("b", b"")

    assert [entry.stored_at for entry in store.list("", after="", limit=9).entries] == [100.0, 200.0]
