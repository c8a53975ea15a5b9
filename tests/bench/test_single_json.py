"""The peer we compare ourselves with must be right, or the comparison says nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.latency import counted
from bench.single_json import SingleJsonQueue
from bucketmq.bucket.folder import FolderStore
from bucketmq.bucket.memory import MemoryStore
from bucketmq.bucket.port import Store
from bucketmq.errors import LeaseLost

MESSAGES = 200
THREADS = 4


@pytest.fixture(params=["memory", "folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else FolderStore(tmp_path / "store")


@pytest.mark.parametrize("remember", [False, True])
def test_nothing_is_lost_or_doubled_under_four_threads(store: Store, remember: bool) -> None:
    def in_threads(work: Callable[[int], None]) -> None:
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(work, range(THREADS)))

    def send(thread: int) -> None:
        queue = SingleJsonQueue(store, remember=remember)
        for number in range(thread, MESSAGES, THREADS):
            queue.send([{"n": number}])

    received: list[int] = []
    lock = threading.Lock()

    def receive(_: int) -> None:
        queue = SingleJsonQueue(store, remember=remember)
        acked: list[int] = []
        while (batch := queue.receive(7, acked=acked)).items:
            acked = [batch.lease]
            with lock:
                received.extend(body["n"] for body in batch.bodies())

    in_threads(send)
    assert SingleJsonQueue(store).depth() == MESSAGES
    in_threads(receive)

    assert sorted(received) == list(range(MESSAGES))
    assert SingleJsonQueue(store).depth() == 0


def test_messages_come_in_the_order_sent(store: Store) -> None:
    queue = SingleJsonQueue(store)
    queue.send([1, 2])
    queue.send(["three"])

    assert queue.receive(10).bodies() == [1, 2, "three"]


def test_a_lease_that_is_over_hands_the_messages_out_again_and_settles_nothing() -> None:
    store = MemoryStore()
    slow, quick = SingleJsonQueue(store, lease_seconds=0.0), SingleJsonQueue(store)
    slow.send(["work"])
    late = slow.receive(1)

    again = quick.receive(1)

    assert again.bodies() == ["work"]
    assert again.items[0].attempts == 2
    with pytest.raises(LeaseLost):
        slow.ack(late.lease)
    quick.ack(again.lease)
    assert quick.depth() == 0


def test_it_costs_two_requests_an_operation_and_one_where_it_remembers() -> None:
    plain, remembering = counted(MemoryStore()), counted(MemoryStore())
    for store, remember in ((plain, False), (remembering, True)):
        queue = SingleJsonQueue(store, remember=remember)
        queue.send(["first"])
        before = store.counts.copy()
        for _ in range(10):
            queue.send(["more"])
        assert store.counts.since(before).requests == (10 if remember else 20)


def test_its_bytes_grow_with_its_depth() -> None:
    """What the comparison is about."""
    store = counted(MemoryStore())
    queue = SingleJsonQueue(store)

    def bytes_of_a_send() -> int:
        before = store.counts.copy()
        queue.send(["x" * 100])
        return store.counts.since(before).bytes

    shallow = bytes_of_a_send()
    queue.send(["x" * 100] * 1_000)

    assert bytes_of_a_send() > 100 * shallow
