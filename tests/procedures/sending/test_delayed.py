"""Delayed messages: not before their time, then like any other, once."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from procedures.world import Killed, World, drain, eventually


def test_a_delayed_message_comes_when_it_is_due_and_not_before(world: World, queue: Any) -> None:
    sent = queue.send("later", delay_seconds=60)
    assert (sent.shard, sent.offset) == (None, None)
    queue.send("now")
    assert drain(queue) == ["now"]
    world.advance(50)
    assert drain(queue) == []
    world.advance(12)
    (delivery,) = queue.receive(10)
    assert (delivery.body, delivery.id, delivery.attempt) == ("later", sent.id, 1)
    delivery.ack(wait=True)
    assert world.keys("later/") == []


def test_at_is_a_time_with_a_zone_or_seconds(world: World, queue: Any) -> None:
    queue.send("seconds", at=world.now() + 100)
    queue.send("datetime", at=datetime.fromtimestamp(world.now() + 100, UTC))
    assert drain(queue) == []
    world.advance(102)
    assert sorted(drain(queue)) == ["datetime", "seconds"]


def test_a_time_that_has_passed_means_now(world: World, queue: Any) -> None:
    assert queue.send("x", at=world.now() - 1000).offset == 0
    assert queue.send("y", delay_seconds=0).offset == 1


def test_a_delay_of_years_is_fine(world: World, queue: Any) -> None:
    queue.send("x", delay_seconds=9 * 366 * 86400)
    world.advance(9 * 366 * 86400 + 2)
    assert drain(queue) == ["x"]


def test_many_delayed_together_arrive_together_in_order(world: World, queue: Any) -> None:
    queue.send_many(range(50), delay_seconds=10)
    assert len(world.keys("later/")) == 1
    world.advance(12)
    assert drain(queue) == list(range(50))


def test_delayed_messages_keep_key_and_headers(world: World, bucket: Any) -> None:
    queue = bucket.queue("jobs", shards=4)
    home = queue.send("now", key="k").shard
    queue.send("later", key="k", headers={"h": "1"}, delay_seconds=10)
    drain(queue)
    world.advance(12)
    (delivery,) = eventually(lambda: queue.receive(10))
    assert (delivery.shard, delivery.key, delivery.headers) == (home, "k", {"h": "1"})


def test_delayed_messages_without_a_key_go_to_all_shards(world: World, bucket: Any) -> None:
    queue = bucket.queue("jobs", shards=4)
    queue.send_many(range(40), delay_seconds=10)
    world.advance(12)
    deliveries = [delivery for _ in range(4) for delivery in queue.receive(100)]
    assert {delivery.shard for delivery in deliveries} == {0, 1, 2, 3}
    assert sorted(delivery.body for delivery in deliveries) == list(range(40))


def test_another_process_delivers_what_one_delayed(world: World) -> None:
    world.connect().queue("jobs").send("x", delay_seconds=10)
    other = world.connect().queue("jobs")
    world.advance(12)
    assert drain(other) == ["x"]


def test_hundreds_of_delayed_sends_all_arrive_once(world: World, queue: Any) -> None:
    for n in range(250):
        queue.send(n, delay_seconds=10)
    world.advance(12)
    assert sorted(drain(queue)) == list(range(250))
    assert world.keys("later/") == []


def test_two_workers_that_move_the_same_messages_deliver_them_once(blocking: World) -> None:
    blocking.connect().queue("jobs").send_many(range(10), delay_seconds=10)
    first, second = blocking.connect().queue("jobs"), blocking.connect().queue("jobs")
    blocking.advance(12)
    assert sorted(drain(first) + drain(second)) == list(range(10))


@pytest.mark.parametrize("lives", range(1, 20))
def test_a_worker_that_dies_while_it_moves_leaves_one_message(blocking: World, lives: int) -> None:
    sender = blocking.connect().queue("jobs")
    sender.send_many(["a", "b"], delay_seconds=10)
    sender.send("c", delay_seconds=11)
    blocking.advance(13)
    try:
        blocking.mortal(lives).queue("jobs").receive(1)
    except Killed:
        pass
    blocking.advance(61)  # the dead worker may hold a lease
    assert sorted(drain(blocking.connect().queue("jobs"))) == ["a", "b", "c"]
    assert blocking.keys("later/") == []


@pytest.mark.parametrize("lives", range(1, 8))
def test_a_delayed_send_that_dies_sends_all_or_nothing(blocking: World, lives: int) -> None:
    try:
        blocking.mortal(lives).queue("jobs").send_many(["a", "b"], delay_seconds=10)
    except Killed:
        pass
    blocking.advance(12)
    assert drain(blocking.connect().queue("jobs")) in ([], ["a", "b"])
