"""Idle receivers ask less and less often, down to the documented rate. Time here is virtual: nothing sleeps."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from bucketmq.bucket.memory import MemoryStore
from bucketmq.client import Bucket
from bucketmq.engines.blocking import Blocking
from bucketmq.engines.perform import Hands
from bucketmq.procedures.claiming import receive as subscription
from bucketmq.procedures.claiming.gaps import END_SECONDS
from bucketmq.procedures.requests import Now, Pause, Request, Spawn, Wait
from budget.stores import PREFIX, RemoteStore, Spent


class VirtualTime(Blocking):
    """Pauses and waits take no time; they move the clock. Nothing runs in the background."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(Hands(store))
        self.now = 1_800_000_000.0
        self.waits: list[float] = []

    def _do(self, request: Request) -> Any:
        match request:
            case Now():
                return self.now
            case Pause(seconds):
                self.now += seconds
            case Wait(latch, seconds):
                if not latch.is_open:
                    assert seconds is not None, "nobody would wake this up"
                    self.waits.append(seconds)
                    self.now += seconds
            case Spawn():
                pass
            case _:
                return super()._do(request)
        return None


def idle(seconds: float, *, store: MemoryStore, shards: int = 1, delayed: bool = False) -> tuple[Spent, list[float]]:
    """What one receive that waits so long in vain costs, and its pauses."""
    engine = VirtualTime(store)
    bucket = Bucket(engine, PREFIX, probe=False)
    queue = bucket.queue("jobs", shards=shards)
    queue.send("x")
    while batch := queue.receive(10):
        for delivery in batch:
            delivery.ack()
    queue.flush()
    if delayed:
        queue.send("later", delay_seconds=10 * seconds)
    engine.waits.clear()
    with Spent(bucket) as spent:
        assert not queue.receive(1, wait_seconds=seconds)
    return spent, engine.waits


def test_pauses_grow_from_20_ms_to_5_seconds() -> None:
    _, pauses = idle(600, store=RemoteStore())
    assert 0.75 * 0.02 <= pauses[0] <= 1.25 * 0.02
    assert all(later > earlier for earlier, later in pairwise(pauses[:6]))
    most = subscription.POLL_MAX_SECONDS
    assert most == 5.0
    assert all(0.75 * most <= pause <= 1.25 * most for pause in pauses[9:-1])


@pytest.mark.parametrize("shards", [1, 4])
def test_an_idle_receiver_costs_what_the_documentation_says(shards: int) -> None:
    spent, pauses = idle(3600, store=RemoteStore(), shards=shards)
    assert set(spent.kinds) == {"get", "list"}
    # The true end of the log, every five minutes.
    assert spent.kinds["list"] <= shards * 3600 / END_SECONDS
    polls = len(pauses) + 1
    assert 3600 / (1.25 * 5) <= polls <= 3600 / (0.75 * 5) + 10
    # The next segment, and every five seconds the head and the trim mark; the settings every half minute.
    assert spent.kinds["get"] <= 3 * shards * polls + 3600 / 30 + 10
    assert spent.kinds["get"] / 3600 <= 0.75 * shards


def test_a_queue_with_delayed_messages_adds_one_get_and_one_list_for_each_look() -> None:
    plain, _ = idle(3600, store=RemoteStore())
    spent, pauses = idle(3600, store=RemoteStore(), delayed=True)
    assert set(spent.kinds) == {"get", "list"}
    assert spent.kinds["list"] <= len(pauses) + 2
    assert spent.kinds["get"] - plain.kinds["get"] <= 1.5 * len(pauses)


def test_on_a_folder_the_longest_pause_is_a_tenth_of_a_second() -> None:
    _, pauses = idle(60, store=MemoryStore())
    most = subscription.POLL_MAX_SECONDS_LOCAL
    assert max(pauses) <= 1.25 * most <= 0.125
    assert len(pauses) <= 60 / (0.75 * most) + 10


def test_nothing_is_written_while_idle() -> None:
    spent, _ = idle(3600, store=RemoteStore())
    assert spent.requests.writes == 0
    assert spent.requests.bytes_out == 0
