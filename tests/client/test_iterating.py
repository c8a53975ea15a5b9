"""`for delivery in queue` and `async for`, and buckets as context managers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import bucketmq

from .world import World, drain, eventually


def test_for_gives_every_delivery_in_order(queue: Any) -> None:
    queue.send_many(range(250))
    seen = []
    for delivery in queue:
        seen.append(delivery.body)
        delivery.ack()
        if len(seen) == 250:
            break
    assert seen == list(range(250))


def test_for_waits_for_what_is_sent_later(queue: Any) -> None:
    queue.send("first")
    seen = []
    for delivery in queue:
        seen.append(delivery.body)
        delivery.ack()
        if delivery.body == "second":
            break
        queue.send("second")
    assert seen == ["first", "second"]


def test_leaving_the_loop_gives_back_what_was_not_looked_at(world: World, queue: Any) -> None:
    queue.send_many(range(50))
    for delivery in queue:
        delivery.ack()
        break
    queue.flush()
    other = world.connect().queue("jobs")
    batch = other.receive(100, wait_seconds=10)
    assert [delivery.body for delivery in batch] == list(range(1, 50))
    assert {delivery.attempt for delivery in batch} == {1}


def test_an_exception_in_the_loop_gives_back_too(world: World, queue: Any) -> None:
    queue.send_many(range(10))

    def work() -> None:
        for delivery in queue:
            if delivery.body == 3:
                raise KeyError("oops")
            delivery.ack()

    with pytest.raises(KeyError):
        work()
    other = world.connect().queue("jobs")
    got = [body for body in eventually(lambda: drain(other)) if body != 3]
    assert got == list(range(4, 10))


def test_the_lease_is_kept_while_a_delivery_is_worked_on(world: World) -> None:
    queue = world.connect().queue("jobs", lease_seconds=1)
    queue.send_many("ab")
    other = world.connect().queue("jobs")
    for n, delivery in enumerate(queue):
        until = delivery.lease_until
        eventually(lambda: delivery.lease_until > until + 1)  # noqa: B023
        assert not other.receive(10)
        delivery.ack()
        if n == 1:
            break
    queue.flush()
    assert queue.stats().depth == 0


def test_with_closes_the_bucket_and_hands_in(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket"
    with bucketmq.connect(url) as bucket:
        queue = bucket.queue("jobs")
        queue.send("x")
        queue.receive(1)[0].ack()
    with bucketmq.connect(url) as bucket:
        assert bucket.queue("jobs").stats().depth == 0


def test_a_closed_bucket_says_so_and_can_be_closed_again(world: World) -> None:
    bucket = world.connect()
    queue = bucket.queue("jobs")
    queue.send("x")
    (delivery,) = queue.receive(1)
    bucket.close()
    for use in (lambda: queue.send("y"), lambda: queue.receive(1), queue.stats, lambda: delivery.ack(wait=True)):
        with pytest.raises(bucketmq.Invalid, match="was closed"):
            use()
    bucket.close()
    assert bucket.requests.create > 0


def test_async_with_closes_the_bucket_and_hands_in(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket"

    async def use() -> int:
        async with bucketmq.aio.connect(url) as bucket:
            queue = bucket.queue("jobs")
            await queue.send_many("abc")
            async for delivery in queue:
                await delivery.ack()
                if delivery.body == "c":
                    break
        async with bucketmq.aio.connect(url) as bucket:
            return (await bucket.queue("jobs").stats()).depth

    assert asyncio.run(use()) == 0


def test_both_facades_read_what_the_other_wrote(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket"

    async def send() -> None:
        async with bucketmq.aio.connect(url) as bucket:
            await bucket.queue("jobs").send_many([1, "two", b"three"])

    asyncio.run(send())
    with bucketmq.connect(url) as bucket:
        assert drain(bucket.queue("jobs")) == [1, "two", b"three"]


def test_the_blocking_facade_works_inside_a_running_event_loop(tmp_path: Path) -> None:
    async def use() -> list[Any]:
        with bucketmq.connect(f"file://{tmp_path}/bucket") as bucket:
            bucket.queue("jobs").send("x")
            return drain(bucket.queue("jobs"))

    assert asyncio.run(use()) == ["x"]
