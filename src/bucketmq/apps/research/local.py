"""A study carried out in this process: a worker and a planner, until its report is there. For one machine, for demos
and for tests; any number of other workers and planners may take part."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bucketmq import aio
from bucketmq.apps.research.planning import RULE, Planner
from bucketmq.apps.research.record import Result
from bucketmq.apps.research.worker import Worker

LOOK_SECONDS = 0.5


async def carry_out(
    bucket: aio.Bucket,
    study: str,
    *,
    slots: int = 0,
    allowed: tuple[str, ...] = (),
    told: Callable[[Result], None] = lambda _: None,
) -> None:
    """Run trials and move the study on until it is finished."""
    planner = Planner(bucket, look_seconds=LOOK_SECONDS)
    planner.watch()
    worker = Worker(bucket, slots=slots, allowed=allowed, told=told)
    working = asyncio.create_task(worker.run())
    tasks = [
        working,
        asyncio.create_task(bucket.run_watchers(RULE, signals=False)),
        asyncio.create_task(planner.keep_looking()),
    ]
    finished = asyncio.create_task(planner.until_finished(study))
    try:
        await asyncio.wait([finished, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()  # it never ends by itself, but with an error
        worker.stop()
        await working
    finally:
        for task in (finished, *tasks):
            task.cancel()
        await asyncio.gather(finished, *tasks, return_exceptions=True)
