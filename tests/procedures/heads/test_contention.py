"""Promise: "empty", "full" and "contended" are different answers."""

from __future__ import annotations

import time

import msgspec
import pytest

from bucketmq import Contended
from bucketmq.bucket.memory import MemoryStore
from bucketmq.bucket.port import PLAIN, Object
from bucketmq.client import Bucket
from bucketmq.engines.blocking import Blocking
from bucketmq.engines.perform import Hands
from bucketmq.log import documents
from bucketmq.log.documents import decode_head
from bucketmq.procedures.heads import desk as commit
from bucketmq.queue.head import stamp


class BusyHeads(MemoryStore):
    """Somebody else commits to every head, over and over."""

    busy_reads = busy_writes = False

    def get(self, key):
        if self.busy_reads and "/heads/" in key:
            time.sleep(0.005)
            self._others_commit(key, 50)
        return super().get(key)

    def replace(self, key, body, version, attributes=PLAIN):
        if self.busy_writes and "/heads/" in key:
            self._others_commit(key, 1)
        return super().replace(key, body, version, attributes)

    def _others_commit(self, key, times):
        found = super().get(key)
        assert isinstance(found, Object)
        head = decode_head(found.body, key)
        head = stamp(head, "somebody else", 1, time.time())
        head = msgspec.structs.replace(head, version=head.version + times - 1)
        super().replace(key, documents.encode(head), found.version)


@pytest.fixture
def store():
    return BusyHeads()


@pytest.fixture
def queue(store):
    with Bucket(Blocking(Hands(store)), "", probe=False) as bucket:
        queue = bucket.queue("jobs")
        queue.send_many(range(10))
        for delivery in queue.receive(1):
            delivery.ack(wait=True)
        yield queue
        store.busy_reads = store.busy_writes = False


def other(store):
    return Bucket(Blocking(Hands(store)), "", probe=False)


def test_a_wait_that_others_filled_is_contended_not_empty(store, queue):
    store.busy_reads = True

    with other(store) as bucket:
        batch = bucket.queue("jobs").receive(5, wait_seconds=0.2)
        store.busy_reads = False

    assert (len(batch), batch.contended, batch.full) == (0, True, False)
    assert "contended" in repr(batch)


def test_who_does_not_wait_takes_what_is_there(store, queue):
    store.busy_reads = True

    with other(store) as bucket:
        batch = bucket.queue("jobs").receive(5)
        store.busy_reads = False

    assert len(batch) == 5


def test_an_empty_queue_is_empty_not_contended(store, queue):
    for delivery in queue.receive(10):
        delivery.ack(wait=True)

    batch = queue.receive(5, wait_seconds=0.05)

    assert (len(batch), batch.contended, batch.full) == (0, False, False)


def test_a_commit_that_loses_every_race_is_contended_and_says_what_to_do(store, queue, monkeypatch):
    monkeypatch.setattr(commit, "CONFLICTS_MAX", 5)
    store.busy_writes = True

    with pytest.raises(Contended, match="raise the shard count"):
        queue.receive(5)

    store.busy_writes = False
    assert [delivery.body for delivery in queue.receive(10)] == list(range(1, 10))
