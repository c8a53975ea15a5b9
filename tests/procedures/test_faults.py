"""Stores that answer late, wrongly or not at all: what was written is recognised, and nothing is done twice."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import bucketmq
from bucketmq.bucket.memory import MemoryStore
from bucketmq.bucket.port import PLAIN, Attributes, Missing, Object, Page, Refused, Unknown, Version, Written
from bucketmq.procedures import verbs
from procedures.world import World, drain


class FlakyStore(MemoryStore):
    """Every kind of bad answer, by chance from a seed. `faults` counts them."""

    local = False

    def __init__(self, seed: int, chance: float) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self.chance = chance
        self.faults: Counter[str] = Counter()

    def _fault(self, *kinds: str) -> str:
        fault = self._random.choice(kinds) if self._random.random() < self.chance else ""
        self.faults[fault] += 1
        return fault

    def get(self, key: str) -> Object | Missing:
        if self._fault("read failed"):
            raise bucketmq.Unavailable("503, try again")
        return super().get(key)

    def list(self, prefix: str, *, after: str, limit: int) -> Page:
        if self._fault("list failed"):
            raise bucketmq.Unavailable("503, try again")
        return super().list(prefix, after=after, limit=limit)

    def create(self, key: str, body: bytes, attributes: Attributes = PLAIN) -> Any:
        return self._write(lambda: super(FlakyStore, self).create(key, body, attributes))

    def replace(self, key: str, body: bytes, version: Version, attributes: Attributes = PLAIN) -> Any:
        return self._write(lambda: super(FlakyStore, self).replace(key, body, version, attributes))

    def _write(self, write: Any) -> Written | Refused | Unknown:
        match self._fault("lost", "landed", "conflict", "landed and refused"):
            case "lost":
                return Unknown("timed out before it got there")
            case "landed":
                write()
                return Unknown("timed out after it landed")
            case "conflict":
                return Refused()
            case "landed and refused":  # a hidden retry of a write that had landed
                write()
                return Refused()
            case _:
                written: Written | Refused = write()
                return written


@pytest.fixture(params=range(6))
def flaky(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(verbs, "PAUSE_FIRST_SECONDS", 0.001)
    store = FlakyStore(request.param, 0.3)
    world = World(["blocking", "asyncio"][request.param % 2], store)
    yield world
    store.chance = 0.0
    world.close()


def calm(world: World) -> Any:
    """The queue as a process sees it that has no trouble."""
    store: Any = world.store
    assert sum(store.faults.values()) > store.faults[""]
    store.chance = 0.0
    return world.connect().queue("jobs")


def test_no_send_is_lost_or_doubled(flaky: World) -> None:
    queue = flaky.connect().queue("jobs")
    for n in range(40):
        queue.send(n)
    queue.send_many(range(40, 60))
    assert drain(calm(flaky)) == list(range(60))


def test_no_message_is_received_or_settled_twice(flaky: World) -> None:
    queue = flaky.connect().queue("jobs", lease_seconds=600)
    queue.send_many(range(60))
    got: list[int] = []
    while len(got) < 60:
        for delivery in queue.receive(7):
            got.append(delivery.body)
            assert delivery.attempt == 1  # no claim was stranded
            delivery.ack(wait=True)
    assert sorted(got) == list(range(60))
    stats = calm(flaky).stats()
    assert (stats.depth, stats.in_flight) == (0, 0)


def test_retries_and_burials_count_once(flaky: World) -> None:
    queue = flaky.connect().queue("jobs", lease_seconds=600, attempts_max=2)
    queue.send_many(range(10))
    ended = 0
    while ended < 20:
        for delivery in queue.receive(10, wait_seconds=5):
            delivery.retry(f"{delivery.attempt}", delay_seconds=0, wait=True)
            ended += 1
    letters = calm(flaky).dead_letters.peek(100)
    assert sorted(letter.body for letter in letters) == list(range(10))
    assert all([failure["error"] for failure in letter.failures] == ["1", "2"] for letter in letters)


def test_redriven_letters_arrive_once(flaky: World) -> None:
    queue = flaky.connect().queue("jobs", lease_seconds=600)
    queue.send_many(range(10))
    for delivery in queue.receive(10):
        delivery.bury("no")
    queue.flush()
    assert queue.dead_letters.redrive().matched == 10
    assert sorted(drain(calm(flaky))) == list(range(10))


def test_idempotent_sends_are_one_message(flaky: World) -> None:
    queues = [flaky.connect().queue("jobs") for _ in range(2)]
    ids = [{queue.send(n, dedup_key=str(n)).id for queue in queues} for n in range(10)]
    assert all(len(same) == 1 for same in ids)
    assert sorted(drain(calm(flaky))) == list(range(10))


def test_delayed_messages_arrive_once(flaky: World) -> None:
    queue = flaky.connect().queue("jobs")
    for n in range(5):
        queue.send_many([n * 2, n * 2 + 1], delay_seconds=0.01)
    got = []
    while len(got) < 10:
        for delivery in queue.receive(10, wait_seconds=10):
            got.append(delivery.body)
            delivery.ack(wait=True)
    assert sorted(got) == list(range(10))
    assert drain(calm(flaky)) == []


def test_a_store_that_stays_silent_is_unavailable_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(verbs.Patience.__init__, "__defaults__", (0.1,))
    world = World(store=FlakyStore(1, 1.0))
    world.store.chance = 0.0
    queue = world.connect().queue("jobs")
    queue.send("x")
    world.store.chance = 1.0
    with pytest.raises(bucketmq.Unavailable, match=r"check the connection and try again later"):
        queue.send("y")
    world.store.chance = 0.0
    assert drain(queue)[0] == "x"
    world.close()
