"""Pausing a queue or a subscription: what stops, what goes on, and how soon."""

from __future__ import annotations

from typing import Any

import pytest

import bucketmq
from bucketmq.procedures.queues import SETTINGS_SECONDS
from procedures.world import World, drain


def test_a_paused_queue_hands_out_nothing_and_takes_sends(world: World, queue: Any) -> None:
    queue.send("a")
    assert queue.pause("the database is being moved").paused == {"*": "the database is being moved"}
    batch = queue.receive(10)
    assert not batch and batch.paused and repr(batch) == "<Batch of 0 (paused)>"
    queue.send("b")
    other = world.connect().queue("jobs")
    assert other.receive(10).paused
    assert other.stats().ready == 2 and other.stats().subscriptions[0].paused == "the database is being moved"
    assert not queue.resume().paused
    assert sorted(drain(queue)) == ["a", "b"]


def test_what_is_in_flight_goes_on(world: World, queue: Any) -> None:
    queue.send_many([*"abcd"])
    done, retried, buried, extended = queue.receive(4, lease_seconds=10)
    queue.pause()
    extended.extend(100)
    done.ack()
    retried.retry("later", delay_seconds=0)
    buried.bury("no")
    queue.flush()
    stats = world.connect().queue("jobs").stats()
    assert (stats.ready, stats.in_flight, stats.dead) == (1, 1, 1)
    world.advance(50)
    assert not queue.receive(4), "nor is what comes back handed out"
    extended.ack(wait=True)
    queue.resume()
    assert drain(queue) == ["b"]


def test_a_pause_holds_in_other_processes_when_their_settings_are_old(world: World, queue: Any) -> None:
    """The bound that the docs state: settings are believed for 30 seconds."""
    queue.send_many([*"abc"])
    other = world.connect().queue("jobs")
    assert len(other.receive(1)) == 1
    queue.pause()
    assert len(other.receive(1)) == 1, "it has not looked yet"
    world.advance(SETTINGS_SECONDS + 1)
    assert other.receive(1).paused
    queue.resume()
    assert other.receive(1).paused, "nor has it looked for the end of it"
    world.advance(SETTINGS_SECONDS + 1)
    assert len(other.receive(1)) == 1
    assert SETTINGS_SECONDS == 30.0


def test_one_subscription_is_paused_and_others_are_not(world: World, queue: Any) -> None:
    audit = queue.subscription("audit")
    queue.send("a")
    queue.pause("audit only", subscription="audit")
    assert audit.receive(1).paused
    assert [delivery.body for delivery in queue.receive(1)] == ["a"]
    queue.pause("and all of it")
    assert queue.receive(1).paused
    assert queue.resume().paused == {"audit": "audit only"}, "what one pause stopped another may still stop"
    assert audit.receive(1).paused
    queue.resume(subscription="audit")
    assert len(audit.receive(1)) == 1


def test_a_subscription_that_is_removed_takes_its_pause_along(world: World, queue: Any) -> None:
    queue.subscription("audit")
    queue.pause(subscription="audit")
    queue.remove_subscription("audit")
    queue.send("a")
    assert len(world.connect().queue("jobs").subscription("audit").receive(1)) == 1


def test_what_cannot_be_paused_is_said(world: World, queue: Any) -> None:
    queue.send("a")
    with pytest.raises(bucketmq.NotFound, match="no subscription 'adit'"):
        queue.pause(subscription="adit")
    with pytest.raises(bucketmq.Invalid, match="500"):
        queue.pause("x" * 501)
    with pytest.raises(bucketmq.Invalid):
        queue.pause(subscription="*")
    assert not queue.resume(subscription="audit").paused, "what is not paused is not paused afterwards either"
    assert world.connect().queue("jobs").receive(1)


def test_settings_that_are_changed_or_raised_keep_the_pause(world: World, queue: Any) -> None:
    queue.send("a")
    queue.pause("why")
    other = world.connect().queue("jobs", lease_seconds=5.0)
    other.raise_shards(2)
    assert other.settings().paused == {"*": "why"}


def test_a_paused_receive_asks_the_bucket_for_nothing(blocking: World) -> None:
    bucket = blocking.connect()
    queue = bucket.queue("jobs")
    queue.send("a")
    queue.pause()
    before = bucket.requests
    for _ in range(20):
        assert queue.receive(1).paused
    assert (bucket.requests - before).get == 0


def test_pausing_costs_two_reads_and_a_write(blocking: World) -> None:
    bucket = blocking.connect()
    queue = bucket.queue("jobs")
    queue.send("a")
    before = bucket.requests
    queue.pause()
    used = bucket.requests - before
    assert (used.get, used.replace, used.create, used.list) == (2, 1, 0, 0)


def test_a_pause_whose_answer_was_lost_holds_all_the_same(world: World, queue: Any) -> None:
    queue.send("a")
    queue.pause("why")
    before = world.everything()
    world.connect().queue("jobs").pause("why")
    assert world.everything() == before, "saying it again changes nothing"


def test_a_worker_rests_while_its_queue_is_paused(blocking: World) -> None:
    queue = blocking.connect().queue("jobs")
    queue.send_many([*"abc"])
    queue.pause()
    seen: list[str] = []
    queue.run(lambda delivery: seen.append(delivery.body), stop_when_empty=True, signals=False)
    assert seen == []
    queue.resume()
    queue.run(lambda delivery: seen.append(delivery.body), stop_when_empty=True, signals=False)
    assert sorted(seen) == ["a", "b", "c"]
