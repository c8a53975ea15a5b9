"""Ordered queues: per key one message in flight, in the order sent; other keys are not held up."""

from __future__ import annotations

from typing import Any

import pytest

import bucketmq
from procedures.world import World, drain, eventually


@pytest.fixture
def queue(bucket: Any) -> Any:
    return bucket.queue("jobs", ordered=True, lease_seconds=30)


def test_one_of_each_key_is_in_flight_at_a_time(queue: Any) -> None:
    queue.send_many(["a1", "b1", "a2", "c1", "b2", "a3"], key=lambda body: body[0])
    batch = queue.receive(10)
    assert [delivery.body for delivery in batch] == ["a1", "b1", "c1"]
    assert not queue.receive(10)
    batch[0].ack(wait=True)
    assert [delivery.body for delivery in queue.receive(10)] == ["a2"]
    batch[1].ack(wait=True)
    assert [delivery.body for delivery in queue.receive(10)] == ["b2"]


def test_another_process_is_held_to_it_too(world: World) -> None:
    first = world.connect().queue("jobs", ordered=True, lease_seconds=30)
    second = world.connect().queue("jobs")
    first.send_many(["a1", "a2"], key="a")
    (delivery,) = first.receive(10)
    assert not second.receive(10)
    delivery.ack(wait=True)
    assert [other.body for other in second.receive(10, wait_seconds=30)] == ["a2"]


def test_messages_without_a_key_are_free(queue: Any) -> None:
    queue.send_many(range(5))
    assert [delivery.body for delivery in queue.receive(10)] == list(range(5))


def test_a_failed_message_holds_its_key_until_it_is_done(world: World, queue: Any) -> None:
    queue.send_many(["a1", "a2", "b1", "b2"], key=lambda body: body[0])
    a, b = queue.receive(10)
    a.retry(delay_seconds=100, wait=True)
    b.ack(wait=True)
    assert [delivery.body for delivery in queue.receive(10)] == ["b2"]
    world.advance(101)
    (again,) = [delivery for delivery in queue.receive(10) if delivery.key == "a"]
    assert (again.body, again.attempt) == ("a1", 2)
    again.ack(wait=True)
    assert [delivery.body for delivery in queue.receive(10) if delivery.key == "a"] == ["a2"]


def test_a_released_message_comes_before_its_followers(queue: Any) -> None:
    queue.send_many(["a1", "a2"], key="a")
    queue.receive(10)[0].release(wait=True)
    assert [delivery.body for delivery in queue.receive(10)] == ["a1"]


def test_a_lease_that_is_over_keeps_the_order(world: World, queue: Any) -> None:
    queue.send_many(["a1", "a2"], key="a")
    queue.receive(10)
    world.advance(31)
    (delivery,) = queue.receive(10)
    assert (delivery.body, delivery.attempt) == ("a1", 2)


def test_a_dead_message_lets_its_followers_pass(queue: Any) -> None:
    queue.send_many(["a1", "a2"], key="a")
    queue.receive(10)[0].bury("no", wait=True)
    assert [delivery.body for delivery in queue.receive(10)] == ["a2"]


def test_all_of_many_keys_arrive_in_order(bucket: Any) -> None:
    queue = bucket.queue("wide", ordered=True, shards=4)
    sent = [(f"k{n % 13}", n) for n in range(300)]
    for start in range(0, 300, 50):
        queue.send_many(sent[start : start + 50], key=lambda body: body[0])
    seen = drain(queue, limit=7)
    for key in {key for key, _ in sent}:
        assert [n for k, n in seen if k == key] == [n for k, n in sent if k == key]


def test_raising_the_shards_keeps_the_order_of_every_key(world: World) -> None:
    first = world.connect().queue("jobs", ordered=True, shards=2)
    first.settings()
    old, new = world.connect().queue("jobs"), world.connect().queue("jobs")
    keys = [f"k{n}" for n in range(20)]
    for n in range(3):
        old.send_many([(key, n) for key in keys], key=lambda body: body[0])
    held = [delivery for _ in range(2) for delivery in new.receive(5)]
    first.raise_shards(6)
    for n in range(3, 6):  # a producer that has not heard of it
        old.send_many([(key, n) for key in keys], key=lambda body: body[0])
    for n in range(6, 8):
        first.send_many([(key, n) for key in keys], key=lambda body: body[0])
    seen = []
    for delivery in held:
        seen.append(tuple(delivery.body))
        delivery.ack()
    new.flush()
    world.advance(31)  # everybody has read the new settings
    seen += [tuple(body) for body in drain(new)]
    assert len(seen) == 160
    for key in keys:
        assert [n for k, n in seen if k == key] == list(range(8)), key


def test_what_lies_in_new_shards_waits_for_what_was_sent_before_the_raise(world: World) -> None:
    queue = world.connect().queue("jobs", ordered=True, shards=1, lease_seconds=1000)
    queue.send("old", key="k")
    (old,) = queue.receive(10)
    queue.raise_shards(8)
    shards = {queue.send("new", key=f"x{n}").shard for n in range(20)}
    assert len(shards) > 1
    for delivery in queue.receive(100):
        assert delivery.shard == 0
        delivery.ack()
    queue.flush()
    assert not queue.receive(100)
    old.ack(wait=True)
    assert {delivery.shard for _ in range(8) for delivery in queue.receive(100)} == shards - {0}


def test_a_queue_is_ordered_or_not_from_its_beginning(world: World) -> None:
    world.connect().queue("plain").send("x")
    with pytest.raises(bucketmq.Invalid, match="from its beginning"):
        world.connect().queue("plain", ordered=True).send("y")
    world.connect().queue("strict", ordered=True).send("x")
    with pytest.raises(bucketmq.Invalid, match="from its beginning"):
        world.connect().queue("strict", ordered=False).send("y")


def test_a_worker_with_many_handlers_keeps_the_order(blocking: World) -> None:
    queue = blocking.connect().queue("jobs", ordered=True)
    queue.send_many([(f"k{n % 3}", n) for n in range(30)], key=lambda body: body[0])
    seen: list[Any] = []

    def handle(delivery: Any) -> None:
        seen.append(tuple(delivery.body))

    eventually(lambda: queue.run(handle, concurrency=4, stop_when_empty=True) or queue.stats().depth == 0)
    for key in range(3):
        assert [n for k, n in seen if k == f"k{key}"] == list(range(key, 30, 3))


def test_a_deduplicated_message_follows_its_key_to_the_new_shard(world: World) -> None:
    raiser, cold = world.connect().queue("jobs", ordered=True, shards=1), world.connect().queue("jobs")
    raiser.settings()
    cold.settings()  # it has read the old count, and has not looked for the tail
    raiser.send("first", key="k")
    raiser.raise_shards(16)
    moved = next(f"x{n}" for n in range(100) if raiser.send("probe", key=f"x{n}").shard != 0)
    home = raiser.send("one", key=moved).shard
    assert cold.send("two", key=moved, dedup_key="d").shard == home
