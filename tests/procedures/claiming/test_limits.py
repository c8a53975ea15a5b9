"""Limits that keep heads small: what is not handed out yet is told apart from what is not there."""

from __future__ import annotations

from typing import Any

from procedures.world import World, drain


def test_too_much_in_flight_is_told_apart_from_empty(world: World, bucket: Any) -> None:
    queue = bucket.queue("jobs", in_flight_max=5)
    queue.send_many(range(8))
    first = queue.receive(10)
    assert len(first) == 5
    assert not first.full
    batch = queue.receive(10)
    assert len(batch) == 0
    assert batch.full
    assert repr(batch) == "<Batch of 0 (full)>"
    first[0].ack(wait=True)
    assert [delivery.body for delivery in queue.receive(10)] == [5]


def test_what_waits_for_a_retry_counts_too(world: World, bucket: Any) -> None:
    queue = bucket.queue("jobs", in_flight_max=3)
    queue.send_many(range(5))
    for delivery in queue.receive(10):
        delivery.retry(delay_seconds=100)
    queue.flush()
    assert queue.receive(10).full
    world.advance(101)
    assert [delivery.body for delivery in queue.receive(10)] == [0, 1, 2]


def test_an_empty_queue_with_much_in_flight_is_empty(bucket: Any) -> None:
    queue = bucket.queue("jobs", in_flight_max=3)
    queue.send_many(range(3))
    queue.receive(10)
    assert not queue.receive(10).full


def test_the_limit_is_per_shard_and_subscription(bucket: Any) -> None:
    queue = bucket.queue("jobs", in_flight_max=2)
    audit = queue.subscription("audit")
    queue.send_many(range(4))
    assert len(queue.receive(10)) == 2
    assert len(audit.receive(10)) == 2
    assert queue.receive(10).full
    assert audit.receive(10).full


def test_a_head_stays_small_whatever_is_acked_in_whatever_order(world: World, queue: Any) -> None:
    queue.send_many(range(2000))
    deliveries = [delivery for _ in range(2) for delivery in queue.receive(1000)]
    for delivery in deliveries[::2]:
        delivery.ack()
    queue.flush()
    assert len(world.read(world.key("heads/main/0.json"))) < 64_000
    for delivery in deliveries[1::2]:
        delivery.ack()
    queue.flush()
    assert len(world.read(world.key("heads/main/0.json"))) < 400
    assert drain(queue) == []
