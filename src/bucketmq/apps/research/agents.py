"""The agents of research: the worker, which runs trials, and the planner, which moves studies on. Cheap to import."""

from __future__ import annotations

import asyncio
import signal

from bucketmq.apps.app import Agent, Here
from bucketmq.apps.page import page_agent
from bucketmq.apps.research.pages.tabs import tabs


async def work(here: Here) -> None:
    """Run trials until asked to stop."""
    from bucketmq.apps.research.worker import Worker

    worker = Worker(here.bucket, slots=here.settings.slots, allowed=here.settings.simulators)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.stop)
    await here.bucket.open()
    here.ready("")
    await worker.run()


async def plan(here: Here) -> None:
    """Move studies on until asked to stop."""
    from bucketmq.apps.research.planning import RULE, Planner

    planner = Planner(here.bucket, look_seconds=here.settings.look_seconds)
    planner.watch()
    await here.bucket.open()
    looking = asyncio.create_task(planner.keep_looking())
    here.ready("")
    try:
        await here.bucket.run_watchers(RULE)
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


AGENTS = (
    Agent(name="worker", run=work, about="runs trials"),
    Agent(name="planner", run=plan, about="chooses trials, and writes reports"),
    page_agent(tabs, about="the page with studies, progress and figures"),
)
