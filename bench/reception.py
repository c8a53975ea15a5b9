"""Receiving notifications: events a second from a request to the log on disk, many callers at a time.

Over HTTP, from a process of its own, beside the same server with the same requests about a bucket that is not its own:
received, checked and parsed, and nothing to store. And without HTTP: parsing, choosing what lies below the prefix and
reporting, called as the receiver calls them, beside parsing alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

import bucketmq
from bench.children import alone
from bench.happenings import BUCKET, notification
from bench.places import folder, settle_disk
from bench.results import BARE, Measurement, measured
from bench.serving import Address, Answers, post_all, served
from bench.sizes import Sizes
from bucketmq import aio
from bucketmq.events.parse import below, parse

SCENARIO = "receiver"
BATCH = 100
BATCHED_SHARE = 10
SOURCE = "tigris"

Go = Callable[[], object]


def received(sizes: Sizes) -> Iterator[Measurement]:
    for batch, count in ((1, sizes.notifications), (BATCH, sizes.notifications * BATCHED_SHARE)):
        yield from _over_http(sizes, batch, count)
        yield from _in_process(sizes, batch, count)


def _over_http(sizes: Sizes, batch: int, count: int) -> Iterator[Measurement]:
    ours, bare = [], []
    for _ in range(sizes.repeats):
        with folder() as path:
            settle_disk()
            with served(path.as_uri(), BUCKET) as address:
                others = alone(_post, address, _bodies(count, batch, "somewhere-else"), sizes.callers)
                answers = alone(_post, address, _bodies(count, batch), sizes.callers)
            with bucketmq.connect(path.as_uri(), probe=False) as bucket:
                stored = bucket.existing_queue("events").stats().sent
        if (answers.accepted, others.outside, stored) != (count, count, count):
            raise AssertionError(f"{answers.accepted} of {count} events were accepted and {stored} are in the log")
        ours.append(count / answers.seconds)
        bare.append(count / others.seconds)
    what = f"{batch} in a notification, {sizes.callers} connections"
    found = partial(measured, SCENARIO, what, unit="events/s", store="folder", depth=count)
    yield found(ours, note="over HTTP; the client takes its part of the processors too")
    yield found(bare, subject=BARE)


def _post(go: Go, address: Address, bodies: list[bytes], connections: int) -> Answers:
    go()
    return asyncio.run(post_all(address, f"/events/{SOURCE}", bodies, connections))


def _bodies(count: int, batch: int, bucket: str = BUCKET) -> list[bytes]:
    return [notification(start, min(batch, count - start), bucket=bucket) for start in range(0, count, batch)]


def _in_process(sizes: Sizes, batch: int, count: int) -> Iterator[Measurement]:
    ours, bare, puts = [], [], 0
    for _ in range(sizes.repeats):
        with folder() as path:
            settle_disk()
            seconds, parsing, puts = alone(_receive, path.as_uri(), count, batch, sizes.callers)
            ours.append(count / seconds)
            bare.append(count / parsing)
    what = f"{batch} in a notification, {sizes.callers} callers, no HTTP"
    found = partial(measured, SCENARIO, what, unit="events/s", store="folder", depth=count)
    yield found(ours, note=f"{puts} writes for {count} events")
    yield found(bare, subject=BARE)


def _receive(go: Go, url: str, count: int, batch: int, callers: int) -> tuple[float, float, int]:
    """Seconds to parse and persist everything, seconds to parse alone, and writes."""
    bodies = _bodies(count, batch)
    go()
    began = time.perf_counter()
    for body in bodies:
        parse(SOURCE, {}, body)
    parsing = time.perf_counter() - began
    return asyncio.run(_persist(url, bodies, count, callers, parsing))


async def _persist(url: str, bodies: list[bytes], count: int, callers: int, parsing: float) -> tuple[float, float, int]:
    async with aio.connect(url, probe=False) as bucket:

        async def take(body: bytes) -> None:
            found = [below("", event) for event in parse(SOURCE, {}, body).events]
            await bucket.report([event for event in found if event is not None])

        await bucket.report([])
        before = bucket.requests.writes
        began = time.perf_counter()
        await _by_callers(bodies, callers, take)
        seconds = time.perf_counter() - began
        writes = bucket.requests.writes - before
        stats = await bucket.existing_queue("events").stats()
    if stats.sent != count:
        raise AssertionError(f"{stats.sent} of {count} events are in the log")
    return seconds, parsing, writes


async def _by_callers(bodies: list[bytes], callers: int, take: Callable[[bytes], Awaitable[None]]) -> None:
    left = iter(bodies)

    async def one() -> None:
        for body in left:
            await take(body)

    async with asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(one())
