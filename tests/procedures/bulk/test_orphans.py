"""What trimming may take along: parts that a living segment or a register names stay, whoever else names them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import bucketmq
from bucketmq.bucket.port import Missing
from bucketmq.engines.blocking import Blocking
from bucketmq.engines.perform import Hands
from bucketmq.log import segment
from bucketmq.procedures.bulk.orphans import EVERY_SECONDS, remove_orphans
from bucketmq.procedures.bulk.publish import Made, create_part, forget, publish
from bucketmq.procedures.queues import dead_queue
from bucketmq.procedures.requests import Now, Procedure
from bucketmq.procedures.upkeep.trim import trim
from bucketmq.procedures.verbs import create_named
from bucketmq.queue.message import Message
from procedures.bulk.test_publish import LONG, ROOT, FaultyStore, Killed, Process, _steps, keys, quick, register, store

__all__ = ["quick", "store"]  # fixtures

TICKS = itertools.count()
DAY = EVERY_SECONDS + 3600.0


def settle(store: FaultyStore) -> list[Any]:
    """Receive and ack everything as `main`, and let it become old."""
    bucket = bucketmq.Bucket(Blocking(Hands(store)), "app", probe=False)
    queue = bucket.queue("jobs")
    seen = []
    while batch := queue.receive(100):
        for delivery in batch:
            seen.append(delivery.body)
            delivery.ack()
    bucket.close()
    store.ahead += 1000.0
    return seen


def send(store: FaultyStore, *bodies: Any) -> None:
    bucket = bucketmq.Bucket(Blocking(Hands(store)), "app", probe=False)
    for body in bodies:
        bucket.queue("jobs").send(body)
    bucket.close()


def process_of_today(store: FaultyStore) -> Process:
    """A process that has written something, and so knows what the store's clock says."""
    process = Process(store)
    process.run(create_named(f"app/tick-{next(TICKS)}", b"x"))
    return process


def trimmed(store: FaultyStore) -> int:
    process = process_of_today(store)
    segments: int = process.run(trim(process.queue)).segments
    return segments


def slept(store: FaultyStore) -> None:
    """A publisher that slept creates a name that is dead by then, and dies. A rival has put the batch elsewhere."""
    sleeper = Process(store, keep_seconds=0, dedup_seconds=0)
    sleeping = _steps(sleeper.engine, publish(sleeper.queue, "t1", 0, sleeper.make("a", "batch")))
    next(sleeping)  # the register is written: its segment is meant for offset 0
    send(store, "other")  # which another takes
    settle(store)
    send(store, "last")
    assert trimmed(store) == 1
    rival = Process(store)
    rival.publish(0, [])
    assert [aimed.base for aimed in register(store).segments] == [2]
    next(sleeping)  # the segment is created at offset 0; then the process dies
    assert keys(store, "log/0/")[0].endswith(f"{0:020}.ndjson")
    store.ahead += 1000.0


def test_parts_that_a_living_segment_names_do_not_go_with_a_dead_one(store: FaultyStore) -> None:
    slept(store)
    for batch in (1, 2):  # the register knows nothing of the batch any more
        process = Process(store)
        process.publish(batch, process.make(f"b{batch}", batch))
    assert trimmed(store) == 0
    assert settle(store) == ["last", "batch", 1, 2]


def test_the_dead_segment_goes_with_the_orphans_and_the_parts_with_the_living_one(store: FaultyStore) -> None:
    slept(store)
    Process(store).publish(1, [])
    store.ahead += DAY
    trimmed(store)
    assert [key.rsplit("/", 1)[-1] for key in keys(store, "log/0/")] == [f"{1:020}.ndjson", f"{2:020}.ndjson"]
    assert settle(store) == ["last", "batch"]
    send(store, "later")
    assert trimmed(store) == 2
    assert keys(store, "parts/") == []


def test_what_a_trim_that_died_left_goes_with_its_parts(store: FaultyStore) -> None:
    process = Process(store, keep_seconds=0, dedup_seconds=0)
    for batch in range(3):
        process.publish(batch, process.make(f"p{batch}", batch))
    settle(store)
    send(store, "last")
    dying = process_of_today(store)
    marked = f"{ROOT}trim/0.json"
    original = dying.hands.perform

    def perform(request: Any) -> Any:
        reply = original(request)
        if getattr(request, "key", "") == marked and hasattr(request, "body"):
            raise Killed
        return reply

    dying.hands.perform = perform  # type: ignore[method-assign]
    with pytest.raises(Killed):
        dying.run(trim(dying.queue))
    assert len(keys(store, "parts/")) == 3
    assert trimmed(store) == 3
    assert keys(store, "parts/") == []


def test_trimming_removes_orphans_once_a_day(store: FaultyStore) -> None:
    process = Process(store)
    process.publish(0, process.make("published", "a"))
    process.make("orphan", "b")
    trimmed(store)
    store.ahead += LONG
    process_of_today(store).make("second-orphan", "c")
    trimmed(store)
    assert [key.rsplit("/", 1)[-1] for key in keys(store, "parts/")] == ["published.ndjson", "second-orphan.ndjson"]
    store.ahead += EVERY_SECONDS - 3600.0
    trimmed(store)
    assert len(keys(store, "parts/")) == 2
    store.ahead += DAY
    trimmed(store)
    assert [key.rsplit("/", 1)[-1] for key in keys(store, "parts/")] == ["published.ndjson"]


def test_trimming_a_queue_without_parts_asks_nothing_about_orphans(store: FaultyStore) -> None:
    send(store, "plain")
    process = Process(store)
    before = process.hands.meter.read()
    process.run(trim(process.queue))
    assert isinstance(store.get(process.queue.keys.orphans), Missing)
    assert process.hands.meter.read().get - before.get <= 3


def test_parts_that_a_register_of_another_queue_names_stay(store: FaultyStore) -> None:
    process = process_of_today(store)
    dead = process.run(dead_queue(process.queue))
    body = segment.encode([Message("m0", "2026-11-16T12:00:00.000Z", body="failed")])
    part = process.run(create_part(dead, "t1", "a", body, 1))
    made = [Made(0, 1, part, process.run(now()), queue=dead.name)]
    next(_steps(process.engine, publish(process.queue, "t1", 0, made)))  # entered, and then it dies
    store.ahead += LONG
    later = process_of_today(store)
    later_dead = later.run(dead_queue(later.queue))
    assert later.run(remove_orphans(later_dead)) == 0
    later.publish(0, [])
    later.run(forget(later.queue, "t1"))
    assert later.run(remove_orphans(later_dead)) == 0  # a segment names it now
    bucket = bucketmq.Bucket(Blocking(Hands(store)), "app", probe=False)
    assert [letter.body for letter in bucket.queue("jobs").dead_letters.peek()] == ["failed"]
    bucket.close()


def now() -> Procedure[float]:
    return (yield from Now())
