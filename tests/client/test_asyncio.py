"""The asyncio facade where it differs: tasks share writes, and cancelling one hurts nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import bucketmq
from bucketmq import aio
from bucketmq.bucket.memory import MemoryStore
from bucketmq.bucket.port import PLAIN, Attributes, Refused, Written
from bucketmq.engines.asynchronous import Asynchronous
from bucketmq.engines.perform import Hands


class SlowStore(MemoryStore):
    """Creates take a while, as they do over a network."""

    def create(self, key: str, body: bytes, attributes: Attributes = PLAIN) -> Written | Refused:
        time.sleep(0.03)
        return super().create(key, body, attributes)


def on_bucket(use: Callable[[aio.Bucket], Awaitable[Any]], store: MemoryStore | None = None) -> Any:
    async def main() -> Any:
        engine = Asynchronous(Hands(store if store is not None else MemoryStore()))
        async with aio.Bucket(engine, "app", probe=False) as bucket:
            return await use(bucket)

    return asyncio.run(main())


def test_a_hundred_tasks_that_send_singles_share_segments() -> None:
    async def use(bucket: aio.Bucket) -> None:
        queue = bucket.queue("jobs")
        await queue.send("warm")
        before = bucket.requests
        answers = await asyncio.gather(*(queue.send(n) for n in range(100)))
        made = bucket.requests - before
        assert made.create <= 5
        assert sorted(answer.offset for answer in answers) == list(range(1, 101))
        batch = await queue.receive(200)
        assert [delivery.body for delivery in batch] == ["warm", *range(100)]

    on_bucket(use, SlowStore())


def test_tasks_share_commits() -> None:
    async def use(bucket: aio.Bucket) -> None:
        queue = bucket.queue("jobs")
        await queue.send_many(range(100))
        batch = await queue.receive(100)
        before = bucket.requests
        await asyncio.gather(*(delivery.ack(wait=True) for delivery in batch))
        assert (bucket.requests - before).replace <= 3
        assert (await queue.stats()).depth == 0

    on_bucket(use)


def test_cancelling_a_send_does_not_hurt_those_who_ride_along() -> None:
    async def use(bucket: aio.Bucket) -> None:
        queue = bucket.queue("jobs")
        await queue.send("warm")
        tasks = [asyncio.create_task(queue.send(n)) for n in range(20)]
        await asyncio.sleep(0.01)  # the first is on its way, the others wait for it
        for cancelled in (tasks[0], tasks[7]):
            cancelled.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [n for n, result in enumerate(results) if isinstance(result, asyncio.CancelledError)] == [0, 7]
        sent = {result.id for n, result in enumerate(results) if n not in (0, 7)}
        there = {delivery.id for delivery in await queue.receive(100)}
        assert sent <= there
        assert (await queue.send("after")).offset is not None

    on_bucket(use, SlowStore())


def test_cancelling_every_send_leaves_a_bucket_that_works() -> None:
    async def use(bucket: aio.Bucket) -> None:
        queue = bucket.queue("jobs")
        for _ in range(3):
            tasks = [asyncio.create_task(queue.send(n)) for n in range(5)]
            await asyncio.sleep(0.005)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        answer = await asyncio.wait_for(queue.send("after"), 10)
        assert answer.offset is not None

    on_bucket(use, SlowStore())


def test_cancelling_a_receive_that_waits() -> None:
    async def use(bucket: aio.Bucket) -> None:
        queue = bucket.queue("jobs", lease_seconds=1)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(queue.receive(1, wait_seconds=1), 0.1)
        await queue.send("x")
        # The cancelled call may still claim it; then its lease expires.
        (delivery,) = await queue.receive(1, wait_seconds=10)
        await delivery.ack(wait=True)

    on_bucket(use)


def test_an_error_reaches_every_task_it_concerns_and_no_other() -> None:
    async def use(bucket: aio.Bucket) -> None:
        queue = bucket.queue("jobs")
        results = await asyncio.gather(
            *(queue.send(object() if n % 2 else n) for n in range(10)), return_exceptions=True
        )
        assert [isinstance(result, bucketmq.Invalid) for result in results] == [bool(n % 2) for n in range(10)]

    on_bucket(use)


def test_a_bucket_belongs_to_the_loop_it_was_first_used_in() -> None:
    bucket = aio.connect("memory://", probe=False)
    asyncio.run(bucket.queue("jobs").send("x"))
    with pytest.raises(bucketmq.Invalid, match="event loop"):
        asyncio.run(bucket.queue("jobs").send("y"))


def test_the_loop_is_not_blocked_while_the_store_is_slow() -> None:
    async def use(bucket: aio.Bucket) -> None:
        queue = bucket.queue("jobs")
        await queue.send("warm")
        ticks = 0
        sending = asyncio.create_task(queue.send("x"))
        while not sending.done():
            ticks += 1
            await asyncio.sleep(0)
        assert ticks > 10

    on_bucket(use, SlowStore())
