"""Receiving and settling: what each end of a delivery means for the message."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import bucketmq
from procedures.world import World, drain, eventually


def test_an_empty_queue_answers_an_empty_batch_that_is_not_full(queue: Any) -> None:
    batch = queue.receive(10)
    assert len(batch) == 0
    assert not batch
    assert batch.full is False
    assert repr(batch) == "<Batch of 0>"


def test_receive_gives_up_to_the_limit_in_order(queue: Any) -> None:
    queue.send_many(range(25))
    assert [delivery.body for delivery in queue.receive(10)] == list(range(10))
    assert [delivery.body for delivery in queue.receive(10)] == list(range(10, 20))
    assert [delivery.body for delivery in queue.receive(10)] == list(range(20, 25))
    assert not queue.receive(10)


def test_a_batch_is_a_sequence(queue: Any) -> None:
    queue.send_many([*"abc"])
    batch = queue.receive(10)
    assert len(batch) == 3
    assert batch[0].body == "a"
    assert [delivery.body for delivery in batch[1:]] == ["b", "c"]
    assert [delivery.body for delivery in reversed(batch)] == ["c", "b", "a"]


def test_one_receive_may_span_several_segments(queue: Any) -> None:
    for n in range(5):
        queue.send(n)
    assert [delivery.body for delivery in queue.receive(10)] == list(range(5))


@pytest.mark.parametrize("limit", [0, -1, 1.5, "5", None])
def test_a_limit_that_is_not_a_whole_number_of_at_least_one_is_invalid(queue: Any, limit: Any) -> None:
    with pytest.raises(bucketmq.Invalid, match="at least 1"):
        queue.receive(limit)


@pytest.mark.parametrize("lease", [0, -1, float("inf"), float("nan"), 50_000, "60"])
def test_an_impossible_lease_is_invalid_and_nothing_is_claimed(world: World, queue: Any, lease: Any) -> None:
    queue.send("x")
    with pytest.raises(bucketmq.Invalid, match="lease_seconds"):
        queue.receive(1, lease_seconds=lease)
    assert world.keys("heads/") == []


def test_what_one_process_holds_another_does_not_get(world: World) -> None:
    first, second = world.connect().queue("jobs"), world.connect().queue("jobs")
    first.send_many(range(4))
    assert len(first.receive(2)) == 2
    assert [delivery.body for delivery in second.receive(10)] == [2, 3]
    assert not second.receive(10)


def test_an_acked_message_never_comes_back(world: World, queue: Any) -> None:
    queue.send("x")
    queue.receive(1)[0].ack(wait=True)
    world.advance(1000)
    assert not queue.receive(1)
    assert not world.connect().queue("jobs").receive(1)


def test_a_retried_message_comes_back_after_its_delay_with_the_next_attempt(world: World, queue: Any) -> None:
    queue.send("x")
    queue.receive(1)[0].retry("busy", delay_seconds=30, wait=True)
    assert not queue.receive(1)
    world.advance(29)
    assert not queue.receive(1)
    world.advance(2)
    (delivery,) = queue.receive(1)
    assert (delivery.body, delivery.attempt) == ("x", 2)


def test_a_retry_without_delay_follows_the_back_off_of_the_queue(world: World, bucket: Any) -> None:
    queue = bucket.queue("jobs", backoff=bucketmq.Backoff(first_seconds=100, factor=10, jitter=0))
    queue.send("x")
    queue.receive(1)[0].retry(wait=True)
    world.advance(99)
    assert not queue.receive(1)
    world.advance(2)
    queue.receive(1)[0].retry(wait=True)
    world.advance(998)
    assert not queue.receive(1)
    world.advance(3)
    assert queue.receive(1)[0].attempt == 3


def test_a_released_message_comes_back_at_once_without_burning_an_attempt(queue: Any) -> None:
    queue.send("x")
    for _ in range(10):
        (delivery,) = queue.receive(1)
        assert delivery.attempt == 1
        delivery.release(wait=True)
    assert queue.stats().dead == 0


def test_a_buried_message_is_dead(queue: Any) -> None:
    queue.send("x")
    queue.receive(1)[0].bury("cannot work", wait=True)
    assert not queue.receive(1)
    (letter,) = queue.dead_letters.peek()
    assert (letter.body, letter.reason, letter.subscription) == ("x", "cannot work", "main")


def test_each_delivery_of_a_batch_has_its_own_end(world: World, queue: Any) -> None:
    queue.send_many(["ack", "retry", "bury", "release"])
    for delivery in queue.receive(10):
        {
            "ack": delivery.ack,
            "retry": lambda d=delivery: d.retry(delay_seconds=0),
            "bury": delivery.bury,
            "release": delivery.release,
        }[delivery.body]()
    queue.flush()
    world.advance(1)
    assert {delivery.body: delivery.attempt for delivery in queue.receive(10)} == {"retry": 2, "release": 1}
    assert [letter.body for letter in queue.dead_letters.peek()] == ["bury"]


@pytest.mark.parametrize("first", ["ack", "retry", "bury", "release"])
@pytest.mark.parametrize("second", ["ack", "retry", "bury", "release", "extend"])
def test_settling_twice_is_invalid_and_the_first_counts(blocking: World, first: str, second: str) -> None:
    queue = blocking.connect().queue("jobs")
    queue.send("x")
    (delivery,) = queue.receive(1)
    assert not delivery.settled
    getattr(delivery, first)()
    assert delivery.settled
    with pytest.raises(bucketmq.Invalid, match="settled already"):
        getattr(delivery, second)()
    queue.flush()
    stats = queue.stats()
    assert (stats.depth, stats.dead) == {"ack": (0, 0), "retry": (1, 0), "bury": (0, 1), "release": (1, 0)}[first]


def test_settling_twice_is_invalid_after_the_bucket_knows_too(queue: Any) -> None:
    queue.send("x")
    (delivery,) = queue.receive(1)
    delivery.ack(wait=True)
    with pytest.raises(bucketmq.Invalid, match="settled already"):
        delivery.ack(wait=True)


def test_settlements_are_handed_in_by_the_next_receive(world: World, queue: Any) -> None:
    queue.send_many(range(4))
    for delivery in queue.receive(2):
        delivery.ack()
    queue.receive(2)
    stats = world.connect().queue("jobs").stats()
    assert (stats.depth, stats.in_flight) == (2, 2)


def test_settlements_are_handed_in_by_flush(world: World, queue: Any) -> None:
    queue.send("x")
    queue.receive(1)[0].ack()
    queue.flush()
    assert world.connect().queue("jobs").stats().depth == 0


def test_settlements_are_handed_in_by_close(world: World) -> None:
    bucket = world.connect()
    queue = bucket.queue("jobs")
    queue.send("x")
    queue.receive(1)[0].ack()
    bucket.close()
    assert world.connect().queue("jobs").stats().depth == 0


def test_settlements_are_handed_in_by_themselves(world: World, queue: Any) -> None:
    queue.send("x")
    queue.receive(1)[0].ack()
    other = world.connect().queue("jobs")
    eventually(lambda: other.stats().depth == 0)


def test_a_receive_that_waits_gets_what_is_sent_meanwhile(blocking: World) -> None:
    queue = blocking.connect().queue("jobs")
    queue.settings()
    sender = threading.Timer(0.3, lambda: blocking.connect().queue("jobs").send("x"))
    sender.start()
    started = time.monotonic()
    batch = queue.receive(1, wait_seconds=30)
    sender.join()
    assert [delivery.body for delivery in batch] == ["x"]
    assert time.monotonic() - started < 10


def test_a_receive_that_waits_gives_up_after_its_time(queue: Any) -> None:
    started = time.monotonic()
    assert not queue.receive(1, wait_seconds=0.3)
    assert 0.25 < time.monotonic() - started < 10


def test_a_receive_that_waits_wakes_when_a_lease_is_over(world: World) -> None:
    first, second = world.connect().queue("jobs"), world.connect().queue("jobs")
    first.send("x")
    first.receive(1, lease_seconds=0.3)
    (delivery,) = second.receive(1, wait_seconds=30)
    assert delivery.attempt == 2


POISON: list[Any] = [float("inf"), float("nan"), -1, 1e300, "soon"]


@pytest.mark.parametrize("delay", POISON)
def test_a_delay_that_cannot_be_kept_is_refused_and_poisons_nothing(queue: Any, delay: Any) -> None:
    queue.send_many(["x", "y"])
    first, second = queue.receive(2)
    with pytest.raises(bucketmq.Invalid, match="delay_seconds"):
        first.retry(delay_seconds=delay)
    assert not first.settled
    first.ack()
    second.ack(wait=True)
    queue.flush()
    assert queue.stats().depth == 0


@pytest.mark.parametrize(
    "reason", ["\udcff lone", 7, None, "x" * 100_000, ""], ids=["surrogate", "7", "None", "long", ""]
)
def test_any_reason_can_be_given_and_poisons_nothing(world: World, queue: Any, reason: Any) -> None:
    queue.send_many(["x", "y"])
    first, second = queue.receive(2)
    first.bury(reason)
    second.retry(reason, delay_seconds=0)
    queue.flush()
    world.advance(1)
    assert drain(queue) == ["y"]
    (letter,) = queue.dead_letters.peek()
    assert len(letter.reason) <= 4000


@pytest.mark.parametrize("second", ["ack", "retry", "bury", "release"])
def test_settling_one_message_of_a_pair_twice_leaves_the_other_alone(blocking: World, second: str) -> None:
    queue = blocking.connect().queue("jobs")
    queue.send_many([*"ab"])
    first, _ = queue.receive(2)
    lot, more = first.lot, {"retry": (1, 0.0, ""), "bury": (1, ""), "release": (1,)}
    lot.ack(first.offset)  # both threads have looked whether it was settled, and neither saw the other
    with pytest.raises(bucketmq.Invalid, match=f"message {first.id} was settled already"):
        getattr(lot, second)(first.offset, *more.get(second, ()))
    assert lot.open == 1
    queue.flush()
    stats = queue.stats()
    assert (stats.depth, stats.in_flight, stats.dead) == (1, 1, 0)


def test_of_many_threads_that_ack_the_same_delivery_one_does(blocking: World) -> None:
    queue = blocking.connect().queue("jobs")
    queue.send_many(range(200))
    batch = queue.receive(200)
    together, told = threading.Barrier(4), []

    def ack_every_second() -> None:
        together.wait()
        for delivery in batch[::2]:
            try:
                delivery.ack()
            except bucketmq.Invalid as error:
                told.append(error)

    threads = [threading.Thread(target=ack_every_second) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    queue.flush()
    assert len(told) == 300
    assert queue.stats().in_flight == 100


def fill_shards(queue: Any, *counts: int) -> None:
    """Send so many messages to each shard, by keys that go there."""
    keys: dict[int, str] = {}
    for n in range(1000):
        if len(keys) < len(counts):
            sent = queue.send("to find the way", key=f"k{n}")
            keys.setdefault(sent.shard, f"k{n}")
    drain(queue)
    for shard, count in enumerate(counts):
        if count:
            queue.send_many(range(count), key=keys[shard])


@pytest.mark.parametrize("small", [0, 1])
def test_a_batch_is_filled_from_all_shards_that_have_some(world: World, small: int) -> None:
    sender, queue = world.connect().queue("jobs", shards=2), world.connect().queue("jobs")
    fill_shards(sender, *((1, 1001) if small == 0 else (1001, 1)))
    taken = [len(queue.receive(500)) for _ in range(4)]
    assert taken == [500, 500, 2, 0]


def test_each_delivery_of_a_batch_is_settled_and_extended_in_its_own_shard(world: World) -> None:
    queue = world.connect().queue("jobs", shards=3)
    fill_shards(queue, 2, 2, 2)
    batch = queue.receive(10, lease_seconds=30)
    assert sorted((each.shard, each.body) for each in batch) == [(shard, n) for shard in range(3) for n in range(2)]
    first, second, third = (sorted((e for e in batch if e.shard == n), key=lambda e: e.body) for n in range(3))
    first[0].ack(wait=True)
    second[0].bury("why", wait=True)
    third[0].retry("why", delay_seconds=0, wait=True)
    first[1].extend(1000)
    stats = queue.stats()
    assert (stats.depth, stats.dead) == (4, 1)
    world.advance(40)  # the leases of the second and the third shard are over
    again = world.connect().queue("jobs").receive(10)
    assert sorted((each.shard, each.body) for each in again) == [(1, 1), (2, 0), (2, 1)]


def test_a_shard_that_cannot_be_read_does_not_cost_what_another_gave(world: World) -> None:
    sender, queue = world.connect().queue("jobs", shards=2), world.connect().queue("jobs")
    fill_shards(sender, 3, 3)
    for key in world.keys("log/1/"):
        world.overwrite(key, b"not a segment\n")
    batch = eventually(lambda: queue.receive(10))
    assert [each.shard for each in batch] == [0, 0, 0]
