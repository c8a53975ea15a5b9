"""Retention: what is settled and old goes, with all that belongs to it; nothing else does."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from bucketmq.procedures.claiming import claim
from bucketmq.procedures.heads import desk
from bucketmq.procedures.segments.tail import TRIM_GUARD_SECONDS
from bucketmq.procedures.upkeep import trim as trimming
from procedures.world import Killed, World, drain

LONG = TRIM_GUARD_SECONDS + 400  # longer than the guard and the dedup window together


@pytest.fixture
def queue(bucket: Any) -> Any:
    return bucket.queue("jobs", keep_seconds=0)


def test_settled_segments_go_but_the_last_stays(world: World, queue: Any) -> None:
    for n in range(5):
        queue.send(n)
    assert drain(queue) == list(range(5))
    world.advance(LONG)
    assert queue.trim().segments == 4
    assert world.keys("log/") == [world.segment(4)]
    assert world.json(world.key("trim/0.json"))["low"] == 4
    assert queue.trim().segments == 0


def test_nothing_young_goes(world: World, queue: Any) -> None:
    for n in range(5):
        queue.send(n)
    drain(queue)
    world.advance(TRIM_GUARD_SECONDS - 10)
    assert queue.trim().segments == 0


def test_keep_seconds_is_kept(world: World, bucket: Any) -> None:
    queue = bucket.queue("kept", keep_seconds=5000)
    for n in range(3):
        queue.send(n)
    drain(queue)
    world.advance(4900)
    assert queue.trim().segments == 0
    world.advance(200)
    assert queue.trim().segments == 2


@pytest.mark.parametrize("state", ["ready", "in flight", "delayed"])
def test_nothing_unsettled_goes_however_old(world: World, queue: Any, state: str) -> None:
    for n in range(5):
        queue.send(n)
    if state != "ready":
        (delivery,) = queue.receive(1)
        if state == "delayed":
            delivery.retry(delay_seconds=10 * LONG, wait=True)
        world.advance(1)
        for other in queue.receive(10):
            other.ack()
        queue.flush()
    world.advance(LONG)
    assert queue.trim().segments == 0
    assert len(world.keys("log/")) == 5


def test_a_subscription_that_lags_holds_what_it_needs(world: World, queue: Any) -> None:
    audit = queue.subscription("audit")
    for n in range(5):
        queue.send(n)
    drain(queue)
    for delivery in audit.receive(2):
        delivery.ack()
    audit.flush()
    world.advance(LONG)
    assert queue.trim().segments == 2
    assert drain(audit) == [2, 3, 4]


def test_main_holds_what_it_has_not_settled_even_before_its_first_receive(world: World, queue: Any) -> None:
    audit = queue.subscription("audit")
    for n in range(3):
        queue.send(n)
    drain(audit)
    world.advance(LONG)
    assert queue.trim().segments == 0
    assert drain(queue) == [0, 1, 2]


def test_sends_and_receives_go_on_after_a_trim(world: World, queue: Any) -> None:
    for n in range(5):
        queue.send(n)
    drain(queue)
    world.advance(LONG)
    queue.trim()
    other = world.connect().queue("jobs")
    assert other.send("after").offset == 5
    assert drain(other) == ["after"]
    assert queue.stats().depth == 0


def test_a_producer_that_slept_through_a_trim_loses_nothing(world: World) -> None:
    sleeper = world.connect().queue("jobs", keep_seconds=0)
    sleeper.send("first")
    busy = world.connect().queue("jobs")
    for n in range(5):
        busy.send(n)
    drain(busy)
    world.advance(LONG)
    busy.trim()
    sent = sleeper.send("late")
    assert sent.offset >= 6
    assert drain(busy) == ["late"]


def test_a_new_subscription_begins_at_what_is_left(world: World, queue: Any) -> None:
    for n in range(5):
        queue.send(n)
    drain(queue)
    world.advance(LONG)
    queue.trim()
    queue.send("after")
    assert drain(queue.subscription("late")) == [4, "after"]
    assert drain(queue.subscription("offset", start={0: 1})) == [4, "after"]
    assert drain(queue.subscription("time", start=0)) == [4, "after"]


def test_a_trimmer_that_slept_does_not_take_from_who_came_since(
    blocking: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read the heads before there was the new subscription, and moves the mark after it has claimed."""
    queue = blocking.connect().queue("jobs", keep_seconds=0)
    for n in range(5):
        queue.send(n)
    drain(queue)
    blocking.advance(LONG)
    other = blocking.connect().queue("jobs").subscription("late", start="earliest")
    read, woken = trimming.read_archive, []

    def sleep(of: Any) -> Any:  # what is asked after the heads
        woken.append(blocking.advance(trimming.STALE_SECONDS + 10))
        woken.append(other.receive(3))
        return read(of)

    monkeypatch.setattr(trimming, "read_archive", sleep)
    assert queue.trim().segments == 0
    assert [each.body for each in woken[1]] == [0, 1, 2]
    monkeypatch.setattr(trimming, "read_archive", read)
    assert queue.trim().segments == 0
    assert len(blocking.keys("log/")) == 5


def test_what_a_subscription_was_handed_stays_though_a_trim_did_not_know_it(
    blocking: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins after the trim has read the heads, and before the mark moves."""
    queue = blocking.connect().queue("jobs", keep_seconds=0)
    for n in range(5):
        queue.send(f"{n}" * 70_000)
    drain(queue)
    blocking.advance(LONG)
    aimed_at, begun, claimed = trimming._aimed_at, list[Any](), list[Any]()

    def begin(*args: Any) -> Any:  # what is asked right before the mark moves
        begun.append(blocking.connect().queue("jobs").subscription("late"))
        claimed.extend(begun[0].receive(3))
        return aimed_at(*args)

    monkeypatch.setattr(trimming, "_aimed_at", begin)
    assert queue.trim().segments == 0
    monkeypatch.setattr(trimming, "_aimed_at", aimed_at)
    assert queue.trim().segments == 0, "what an earlier trim has left below the mark is needed as well"
    assert [each.body[0] for each in claimed] == ["0", "1", "2"]
    for each in claimed:
        each.ack(wait=True)
    assert [body[0] for body in drain(begun[0])][-1:] == ["4"]
    trimmed = queue.trim()
    assert (trimmed.segments, trimmed.objects) == (4, 4)
    assert len(blocking.keys("bodies/")) == 1


def test_a_subscription_is_not_handed_what_a_trim_passed_before_its_head_was_written(
    blocking: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trim runs between the look at the mark and the write of the head, so it cannot spare anything."""
    queue = blocking.connect().queue("jobs", keep_seconds=0, main=False)
    read = queue.subscription("read", start="earliest")
    for n in range(5):
        queue.send(n)
    drain(read)
    blocking.advance(LONG)
    late = blocking.connect().queue("jobs")
    jumped = claim.jumped

    def trims(*args: Any) -> Any:
        found = yield from jumped(*args)
        monkeypatch.setattr(claim, "jumped", jumped)
        assert queue.trim().segments == 4
        return found

    monkeypatch.setattr(claim, "jumped", trims)
    assert [each.body for each in late.receive(3)] == [4]


def test_a_subscription_that_begins_at_a_mark_is_not_handed_what_a_trim_passed_meanwhile(
    blocking: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its head begins by a jump to the mark, and the mark moves on before the head is written."""
    bucket, trimmer = blocking.connect(), blocking.connect().queue("jobs")
    queue = bucket.queue("jobs", keep_seconds=0, main=False)
    read = queue.subscription("read", start="earliest")
    for n in range(5):
        queue.send(n)
    for each in read.receive(2):
        each.ack(wait=True)
    blocking.advance(LONG)
    assert trimmer.trim().segments == 2
    drain(read)
    blocking.advance(LONG)
    positions = {0: 2}
    while queue.tail(positions):  # so that this process remembers the segments
        pass
    trim_mark = desk.trim_mark

    def moves_on(log: Any) -> Any:
        found = yield from trim_mark(log)
        monkeypatch.setattr(desk, "trim_mark", trim_mark)
        assert trimmer.trim().segments == 2
        return found

    monkeypatch.setattr(desk, "trim_mark", moves_on)
    assert [each.body for each in queue.receive(3)] == [4]


def test_a_large_body_goes_with_its_segment_and_no_other_does(world: World, queue: Any) -> None:
    gone = queue.send("x" * 70_000)
    stays = queue.send("y" * 70_000)
    assert [delivery.body[0] for delivery in queue.receive(1)] == ["x"]
    queue.receive(10)[0].retry(delay_seconds=10 * LONG)
    queue.flush()
    world.advance(61)
    for delivery in queue.receive(10):
        delivery.ack(wait=True)
    world.advance(LONG)
    trimmed = queue.trim()
    assert (trimmed.segments, trimmed.objects) == (1, 1)
    assert world.keys("bodies/") == [world.key(f"bodies/{stays.id}")]
    assert gone.id != stays.id


def test_expire_seconds_drops_what_nobody_settled(world: World, bucket: Any) -> None:
    queue = bucket.queue("short", keep_seconds=0, expire_seconds=1000)
    queue.send("old")
    queue.receive(1)[0].retry(delay_seconds=5000, wait=True)
    queue.send("older than a while")
    world.advance(900)
    queue.send("young")
    assert queue.trim().segments == 0
    world.advance(200)
    assert queue.trim().segments == 2
    assert drain(world.connect().queue("short")) == ["young"]
    assert drain(queue) == []


def test_failure_records_go_after_a_month(world: World, queue: Any) -> None:
    queue.send("x")
    queue.receive(1)[0].retry("why", delay_seconds=0, wait=True)
    world.advance(1)
    drain(queue)
    assert len(world.keys("failures/")) == 1
    world.advance(31 * 86400)
    assert queue.trim().objects == 1
    assert world.keys("failures/") == []


def test_every_shard_is_trimmed(world: World, bucket: Any) -> None:
    queue = bucket.queue("wide", shards=3, keep_seconds=0)
    for n in range(12):
        queue.send(n)
    assert sorted(drain(queue)) == list(range(12))
    world.advance(LONG)
    assert queue.trim().segments == 9


def received(queue: Any) -> list[Any]:
    """What one receive gives, acknowledged."""
    batch = queue.receive(10)
    for delivery in batch:
        delivery.ack()
    queue.flush()
    return [delivery.body for delivery in batch]


@pytest.mark.parametrize("lives", range(1, 30))
def test_a_redrive_whose_process_died_long_ago_is_not_done_again(blocking: World, lives: int) -> None:
    queue = blocking.connect().queue("jobs", keep_seconds=0)
    queue.send("once")
    queue.receive(1)[0].bury("no", wait=True)
    with contextlib.suppress(Killed):
        blocking.mortal(lives).queue("jobs").dead_letters.redrive()
    got = received(queue)
    queue.send("the last segment always stays")
    got += received(queue)
    blocking.advance(LONG)
    blocking.connect().queue("jobs").trim()

    blocking.connect().queue("jobs").dead_letters.redrive()
    got += drain(queue)

    assert sorted(got) == ["once", "the last segment always stays"]


@pytest.mark.parametrize("lives", range(1, 20))
def test_delayed_messages_whose_mover_died_long_ago_are_not_moved_again(blocking: World, lives: int) -> None:
    queue = blocking.connect().queue("jobs", keep_seconds=0)
    assert received(queue) == []  # nothing was ever delayed: it does not look again for half a minute
    blocking.connect().queue("jobs").send_many(["once", "x" * 200_000], delay_seconds=10)
    blocking.advance(12)
    with contextlib.suppress(Killed):
        blocking.mortal(lives).queue("jobs").receive(1)
    got = received(queue)
    queue.send("the last segment always stays")
    got += received(queue)
    blocking.advance(LONG)
    blocking.connect().queue("jobs").trim()

    got += drain(blocking.connect().queue("jobs"))

    assert sorted(got) == ["once", "the last segment always stays", "x" * 200_000]
