"""Several readers of one queue, each with its own progress, starting where they were told to."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

import bucketmq

from .world import World, drain


def test_every_subscription_gets_every_message(queue: Any) -> None:
    first, second = queue.subscription("first"), queue.subscription("second")
    queue.send_many(range(5))
    assert drain(first) == drain(second) == drain(queue) == list(range(5))
    assert drain(first) == []


def test_earliest_is_the_default_and_sees_what_was_sent_before(queue: Any) -> None:
    queue.send_many("ab")
    assert drain(queue.subscription("audit")) == ["a", "b"]


def test_latest_sees_only_what_is_sent_afterwards(queue: Any) -> None:
    queue.send_many("ab")
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
    queue.send_many("ab")
    queue.send_many("cdef")
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
    queue.send_many("ab")
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
    queue.send_many("ab")
    seen: list[str] = []
    audit.run(lambda delivery: seen.append(delivery.body), stop_when_empty=True)
    assert seen == ["a", "b"]
    assert queue.stats().depth == 2
