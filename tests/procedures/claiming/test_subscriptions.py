"""Several readers of one queue, each with its own progress, starting where they were told to."""

from __future__ import annotations

import gc
from datetime import UTC, datetime
from typing import Any

import pytest

import bucketmq
from bucketmq.procedures.claiming.receive import OpenSubscription
from procedures.world import World, drain, eventually


def test_every_subscription_gets_every_message(queue: Any) -> None:
    first, second = queue.subscription("first"), queue.subscription("second")
    queue.send_many(range(5))
    assert drain(first) == drain(second) == drain(queue) == list(range(5))
    assert drain(first) == []


def test_earliest_is_the_default_and_sees_what_was_sent_before(queue: Any) -> None:
    queue.send_many([*"ab"])
    assert drain(queue.subscription("audit")) == ["a", "b"]


def test_latest_sees_only_what_is_sent_afterwards(queue: Any) -> None:
    queue.send_many([*"ab"])
    audit = queue.subscription("audit", start="latest")
    queue.send("c")
    assert drain(audit) == ["c"]


def test_latest_counts_from_when_it_was_made_not_from_the_first_receive(world: World, queue: Any) -> None:
    queue.send("before")
    queue.subscription("audit", start="latest")
    queue.send("after")
    assert drain(world.connect().queue("jobs").subscription("audit", start="latest")) == ["after"]


@pytest.mark.parametrize(
    ("offset", "expected"), [(0, "abcdef"), (1, "bcdef"), (3, "def"), (4, "ef"), (6, ""), (99, ""), (-5, "abcdef")]
)
def test_an_offset_is_where_it_begins_even_inside_a_segment(
    world: World, queue: Any, offset: int, expected: str
) -> None:
    queue.send_many([*"ab"])
    queue.send_many([*"cdef"])
    assert drain(queue.subscription("audit", start={0: offset})) == list(expected)


def test_offsets_are_by_shard_and_missing_ones_mean_the_beginning(bucket: Any) -> None:
    queue = bucket.queue("jobs", shards=2)
    homes: dict[int, list[int]] = {0: [], 1: []}
    for n in range(8):
        homes[queue.send(n).shard].append(n)
    audit = queue.subscription("audit", start={1: 2})
    assert sorted(drain(audit)) == sorted(homes[0] + homes[1][2:])


def test_a_time_is_where_it_begins(world: World, queue: Any) -> None:
    queue.send("before")
    world.advance(100)
    moment = world.now() - 50
    queue.send("after")
    assert drain(queue.subscription("seconds", start=moment)) == ["after"]
    assert drain(queue.subscription("datetime", start=datetime.fromtimestamp(moment, UTC))) == ["after"]
    assert drain(queue.subscription("long-ago", start=0)) == ["before", "after"]
    assert drain(queue.subscription("future", start=world.now() + 1000)) == []


def test_the_first_one_to_make_it_decides_where_it_begins(world: World, queue: Any) -> None:
    queue.send("x")
    queue.subscription("audit", start="latest")
    assert drain(world.connect().queue("jobs").subscription("audit", start="earliest")) == []


def test_its_name_is_all_another_process_needs(world: World, queue: Any) -> None:
    queue.send_many(range(4))
    assert [delivery.body for delivery in queue.subscription("audit").receive(2)] == [0, 1]
    other = world.connect().queue("jobs").subscription("audit")
    assert [delivery.body for delivery in other.receive(10)] == [2, 3]


def test_settling_in_one_leaves_the_others_alone(queue: Any) -> None:
    audit = queue.subscription("audit")
    queue.send_many([*"ab"])
    for delivery in queue.receive(2):
        delivery.bury("no")
    queue.flush()
    assert drain(audit) == ["a", "b"]
    assert {letter.subscription for letter in queue.dead_letters.peek()} == {"main"}


@pytest.mark.parametrize("start", ["lastest", "", b"latest", None, {"x": 1}, {0: "y"}, datetime(2020, 1, 1)])
def test_a_start_that_cannot_be_is_invalid(queue: Any, start: Any) -> None:
    queue.send("x")
    with pytest.raises(bucketmq.Invalid):
        queue.subscription("audit", start=start)
    queue.subscription("there")
    with pytest.raises(bucketmq.Invalid):
        queue.subscription("there", start=start)


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "x" * 81, "ü", None, 7])
def test_a_name_that_cannot_be_is_invalid(queue: Any, name: Any) -> None:
    with pytest.raises(bucketmq.Invalid, match="subscription"):
        queue.subscription(name)


def test_a_subscription_has_its_own_worker(blocking: World) -> None:
    queue = blocking.connect().queue("jobs")
    audit = queue.subscription("audit", start="latest")
    queue.send_many([*"ab"])
    seen: list[str] = []
    audit.run(lambda delivery: seen.append(delivery.body), stop_when_empty=True)
    assert seen == ["a", "b"]
    assert [message.body for message in queue.peek()] == ["a", "b"]


def open_subscriptions() -> int:
    gc.collect()
    return sum(isinstance(each, OpenSubscription) for each in gc.get_objects())


def test_naming_a_queue_again_and_again_leaves_one_open_subscription(world: World) -> None:
    bucket, before = world.connect(), open_subscriptions()
    bucket.queue("jobs").send_many(range(200))
    for _ in range(200):
        (delivery,) = bucket.queue("jobs").receive(1)
        delivery.ack()
    bucket.queue("jobs").run(lambda _: None, stop_when_empty=True, signals=False)
    assert open_subscriptions() - before == 1
    assert bucket.queue("jobs").stats().depth == 0


def test_the_keeper_forgets_what_has_nothing_left_to_hand_in(world: World) -> None:
    bucket = world.connect()
    for n in range(10):
        queue = bucket.queue(f"q{n}")
        queue.send("x")
        queue.receive(1)[0].ack()
    eventually(lambda: not bucket.api.keeper.unsettled)
    for n in range(10):
        assert bucket.queue(f"q{n}").stats().depth == 0


@pytest.mark.parametrize("how", ["in the background", "at the end"])
def test_an_ack_by_receipt_is_handed_in_by_itself(world: World, how: str) -> None:
    first, second = world.connect(), world.connect()
    first.queue("jobs").send("x")
    receipt = first.queue("jobs").receive(1)[0].receipt
    second.queue("jobs").delivery(receipt).ack()
    if how == "at the end":
        second.close()
        assert first.queue("jobs").stats().depth == 0
    else:
        eventually(lambda: first.queue("jobs").stats().depth == 0)


def test_one_callers_leftovers_suit_another_with_a_smaller_limit_and_the_same_lease(blocking: World) -> None:
    bucket = blocking.connect()
    queue = bucket.queue("jobs")
    queue.send_many(range(12))
    queue.receive(1)
    sub = bucket.run(queue.api.subscribed())
    sub.contention.at_once, sub.received_at = 4, sub.received_at + 1
    assert [each.body for each in queue.receive(2, wait_seconds=1)] == [1, 2]  # and six more are left over
    assert [each.body for each in queue.receive(1, wait_seconds=1)] == [3]
    assert [each.body for each in queue.receive(1, wait_seconds=1)] == [4]
    longer = queue.receive(10, wait_seconds=1, lease_seconds=500)
    assert all(abs(each.lease_until - blocking.now() - 500) < 5 for each in longer)
