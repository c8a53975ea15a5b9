"""The documented handlers, as a program that is checked with `mypy --strict` has them. Nothing here is an error."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, assert_type

import bucketmq
from bucketmq import aio

bucket = bucketmq.connect("memory://", probe=False, timeout=5)
queue = bucket.queue("jobs", lease_seconds=30, backoff=bucketmq.Backoff(first_seconds=2))


@queue.handler
def resize(delivery: bucketmq.Delivery) -> bucketmq.Done | bucketmq.Retry:
    return bucketmq.Done() if delivery.attempt > 1 else bucketmq.Retry("not yet", delay_seconds=5)


@queue.handler
async def resize_soon(delivery: bucketmq.Delivery) -> None:
    print(delivery.body)


@bucket.watch('WHERE `key` REGEXP "^pending/"', start="beginning", concurrency=2, gone="drop")
def route(change: bucketmq.Change) -> None:
    assert_type(change.text(), str)
    assert_type(change.move(f"done/{change.name}", replace=True), bucketmq.Stored)


@bucket.watch()
async def look(change: bucketmq.AsyncChange) -> None:
    assert_type(await change.bytes(), bytes)


@bucket.when_all("a/{id}.json", "b/{id}.json", deadline_seconds=60)
def both(complete: bucketmq.Complete) -> None:
    print(complete.missing)


def use(delivery: bucketmq.Delivery) -> None:
    assert_type(resize(delivery), bucketmq.Done | bucketmq.Retry)
    assert_type(resize.run(concurrency=4, stop_when_empty=True), None)
    assert_type(queue.run(resize, prefetch=10), None)
    bucket.run_watchers("route", stop_when_empty=True)


def verbs() -> None:
    assert_type(queue.send({"n": 1}, key="a", delay_seconds=1), bucketmq.Sent)
    assert_type(queue.send_many([1, 2], key=str), list[bucketmq.Sent])
    assert_type(queue.receive(10, wait_seconds=1), bucketmq.Batch[bucketmq.Delivery])
    assert_type(queue.subscription("audit", start="latest"), bucketmq.Subscription)
    assert_type(queue.dead_letters.peek(), list[bucketmq.DeadLetter])
    assert_type(queue.stats(), bucketmq.QueueStats)
    assert_type(bucket.rules.add("r", to="queue:jobs", ordered=True), bucketmq.Rule)
    for delivery in queue:
        assert_type(delivery, bucketmq.Delivery)
        assert_type(delivery.ack(wait=True), None)
        assert_type(delivery.extend(60), float)


async def awaited() -> None:
    async with aio.connect("memory://") as there:
        jobs = there.queue("jobs", ordered=True)
        sending: Coroutine[Any, Any, bucketmq.Sent] = jobs.send(1)
        assert_type(await sending, bucketmq.Sent)
        assert_type(await jobs.receive(), bucketmq.Batch[aio.Delivery])
        assert_type(await jobs.subscription("audit"), aio.Subscription)

        @jobs.handler
        async def handle(delivery: aio.Delivery) -> None:
            await delivery.ack(wait=True)

        await handle.run(concurrency=10)
        await jobs.run(handle)
        async for delivery in jobs:
            assert_type(delivery, aio.Delivery)
            assert_type(await delivery.extend(), float)
