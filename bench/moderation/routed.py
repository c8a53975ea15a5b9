"""The router alone, in a process of its own: what a judged post costs it, by how many come at a time.

Its CPU time says something on a busy machine as well. Put the folder (TMPDIR) on tmpfs to leave the disk out of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from bench.children import alone
from bench.moderation.sizes import Sizes
from bench.places import folder
from bench.results import Measurement, measured
from bucketmq import aio
from bucketmq.apps.moderation import posts, router
from bucketmq.apps.moderation.demo.posts import samples
from bucketmq.apps.moderation.ids import key_of
from bucketmq.apps.moderation.record import CATEGORIES, PENDING, Category, Post, Verdict, record_of
from bucketmq.apps.moderation.settings import settings_from
from bucketmq.procedures.abreast import abreast
from bucketmq.procedures.objects.put import Put, put_many
from bucketmq.procedures.requests import Procedure
from bucketmq.server.place import bus_of, now_of, run

SCENARIO = "router"
AT_A_TIME = (10, 30, 100)

VERDICT = Verdict(tuple(Category(name, flagged=False, confidence=0.01) for name in CATEGORIES), "bench")


def by_itself(sizes: Sizes) -> Iterator[Measurement]:
    for batch in AT_A_TIME:
        spent = [alone(route_all, sizes.flood, batch) for _ in range(sizes.rounds)]
        yield measured(SCENARIO, f"router, {batch} at a time, CPU", spent, "ms/post", depth=sizes.flood)


def route_all(go: Callable[[], Any], count: int, batch: int) -> float:
    """CPU milliseconds a post."""
    router.BATCH = batch
    with folder() as path:
        return asyncio.run(_route_all(go, f"{path.as_uri()}/bucket", count))


async def _route_all(go: Callable[[], Any], url: str, count: int) -> float:
    async with aio.connect(url, probe=False) as bucket:
        agent = router.Router(bucket, settings_from({}, url=url))
        await agent.run_once()
        made = [Post(each.id, each.text) for each in samples(count)]
        for start in range(0, count, router.BATCH):
            await run(bucket, _judged(bucket, made[start : start + router.BATCH]))
        go()
        began = time.process_time()
        await agent.run_once()
        return (time.process_time() - began) / count * 1000


def _judged(bucket: aio.Bucket, made: list[Post]) -> Procedure[None]:
    """Accept posts and write their records, as the ingest agent and Spark do."""
    bus, at = bus_of(bucket), now_of(bucket)
    yield from abreast([posts.accept(bus, each.id, each.text) for each in made])
    yield from put_many(
        (yield from bus.open()),
        [
            Put(
                key_of(PENDING, each.id),
                msgspec.json.encode(record_of(each, VERDICT, created_at=at)),
                content_type="application/json",
                metadata={"revision": "1"},
            )
            for each in made
        ],
    )
