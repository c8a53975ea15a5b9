"""Cost does not grow with depth: the same requests and bytes at ten segments and at a million, warm and cold."""

from __future__ import annotations

from typing import Any

import pytest

from bucketmq.bucket.port import Missing
from bucketmq.client import Queue
from bucketmq.log.documents import encode
from bucketmq.procedures.segments.hint import HINT_EVERY, HINT_EVERY_WALKED
from bucketmq.queue.head import Head
from budget.stores import KEYS, DeepStore, RemoteStore, Spent, connect, settled

MILLION = 1_000_000
DEPTHS = [1_000, MILLION]
LISTED = pytest.mark.parametrize("listed", [True, False], ids=["listed", "walked"])

COLD_SEND_MAX = {True: 11, False: HINT_EVERY_WALKED + 9}
COLD_STATS_MAX = {True: 19, False: HINT_EVERY_WALKED + 14}


def deep(depth: int, *, listed: bool, behind: int | None = None) -> DeepStore:
    far = HINT_EVERY - 1 if listed else HINT_EVERY_WALKED - 1
    return DeepStore(depth, lists_in_order=listed, behind=far if behind is None else behind)


@LISTED
def test_a_cold_producers_first_send_is_a_handful_of_requests_at_any_depth(*, listed: bool) -> None:
    totals = set()
    for depth in DEPTHS:
        bucket = connect(deep(depth, listed=listed))
        with Spent(bucket) as spent:
            assert bucket.queue("jobs").send("x").offset == depth
        totals.add(spent.total)
        assert spent.total <= COLD_SEND_MAX[listed]
        assert spent.requests.refused == 0
    assert len(totals) == 1


@LISTED
def test_cold_stats_are_a_handful_of_requests_at_any_depth(*, listed: bool) -> None:
    totals = set()
    for depth in DEPTHS:
        bucket = connect(deep(depth, listed=listed))
        with Spent(bucket) as spent:
            stats = bucket.queue("jobs").stats()
        assert stats.depth == depth
        assert 59 < stats.oldest_ready_seconds < 90
        totals.add(spent.total)
        assert spent.total <= COLD_STATS_MAX[listed]
    assert len(totals) == 1


@LISTED
def test_stats_again_are_a_handful(*, listed: bool) -> None:
    bucket = connect(deep(MILLION, listed=listed))
    queue = bucket.queue("jobs")
    queue.stats()
    with Spent(bucket) as spent:
        queue.stats()
    assert spent.total <= 9


@LISTED
def test_a_cold_receive_deep_in_the_log_costs_the_same_everywhere(*, listed: bool) -> None:
    kinds = []
    for depth in DEPTHS:
        store = deep(depth, listed=listed)
        store.create(KEYS.head("main", 0), encode(Head(depth // 2, depth // 2)))
        bucket = connect(store)
        with Spent(bucket) as spent:
            batch = bucket.queue("jobs").receive(10)
        assert [delivery.offset for delivery in batch] == list(range(depth // 2, depth // 2 + 10))
        kinds.append(spent.kinds)
        assert spent.total <= 20
    assert kinds[0] == kinds[1]


OPERATIONS: dict[str, Any] = {
    "send": lambda queue: queue.send({"n": 1}),
    "receive": lambda queue: queue.receive(1),
    "receive and ack": lambda queue: settled(queue.receive(1)),
    "flush": lambda queue: queue.flush(),
    "peek": lambda queue: queue.peek(5),
}


@LISTED
@pytest.mark.parametrize("operation", OPERATIONS)
def test_requests_and_bytes_of_a_warm_process_are_flat(operation: str, *, listed: bool) -> None:
    seen = []
    for depth in DEPTHS:
        store = deep(depth, listed=listed)
        store.create(KEYS.head("main", 0), encode(Head(depth // 2, depth // 2)))
        bucket = connect(store)
        queue = bucket.queue("jobs")
        queue.send("warm")
        for _ in range(3):
            settled(queue.receive(1))
        with Spent(bucket) as spent:
            OPERATIONS[operation](queue)
        seen.append((spent.kinds, spent.bytes))
    (shallow, shallow_bytes), (deeper, deeper_bytes) = seen
    assert deeper == shallow
    assert abs(deeper_bytes - shallow_bytes) <= 40 + shallow_bytes // 10  # offsets have more digits


def one_shot(store: Any) -> int:
    """A serverless producer: one process, one send. Returns how many requests it made."""
    bucket = connect(store)
    queue: Queue = bucket.queue("jobs")
    with Spent(bucket) as spent:
        queue.send("x")
    return spent.total


@LISTED
def test_producers_that_send_once_and_vanish_keep_each_other_cheap(*, listed: bool) -> None:
    store = RemoteStore()
    store.lists_in_order = listed
    costs = [one_shot(store) for _ in range(400)]
    assert max(costs) <= COLD_SEND_MAX[listed] + 3  # now and then one renews the hint
    assert not isinstance(store.get(KEYS.segment(0, 399)), Missing)


@LISTED
def test_a_sender_that_was_silent_while_others_sent_a_million_finds_the_tail_anew(*, listed: bool) -> None:
    store = deep(10, listed=listed)
    bucket = connect(store)
    queue = bucket.queue("jobs")
    assert queue.send("early").offset == 10
    grown = deep(MILLION, listed=listed)
    store.depth = grown.depth
    store.overwrite(KEYS.hint(0), grown.get(KEYS.hint(0)))
    with Spent(bucket) as spent:
        assert queue.send("late").offset == MILLION
    assert spent.total <= COLD_SEND_MAX[listed] + 20


def test_a_head_does_not_grow_with_what_was_settled() -> None:
    store = RemoteStore()
    queue = connect(store).queue("jobs")
    sizes = []
    for _ in range(50):
        queue.send_many(range(100))
        settled(queue.receive(100))
        queue.flush()
        found = store.get(KEYS.head("main", 0))
        assert not isinstance(found, Missing)
        sizes.append(len(found.body))
    assert max(sizes) - min(sizes) < 20
    assert max(sizes) < 300
