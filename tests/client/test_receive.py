"""Receiving and settling: what each end of a delivery means for the message."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import bucketmq

from .world import World, drain, eventually


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
    queue.send_many("abc")
    batch = queue.receive(10)
    assert len(batch) == 3
    assert batch[0].body == "a"
    assert [delivery.body for delivery in batch[1:]] == ["b", "c"]
    assert [delivery.body for delivery in reversed(batch)] == ["c", "b", "a"]


def test_one_receive_may_span_several_segments(queue: Any) -> None:
    for n in range(5):
        queue.send(n)
    assert [delivery.body for delivery in queue.receive(10)] == list(range(5))


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_invalid(queue: Any, limit: int) -> None:
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
