"""The planner agent's loop: studies are moved on when something happens to them. What is done to one is `study`'s."""

from __future__ import annotations

import asyncio
import logging

from bucketmq import aio
from bucketmq.apps.research import study
from bucketmq.apps.research.record import STUDIES, result_at
from bucketmq.changes import AsyncChanges
from bucketmq.errors import BucketMQError

RULE = "research-planner"
FILTER = f'WHERE `key` REGEXP "^{STUDIES}[^/]+/(plan|stop|results/[0-9a-f]+)\\\\.json$" AND kind = "created"'
BATCH = 1_000

logger = logging.getLogger("bucketmq.research")


class Planner:
    """Moves studies on when something happens to them, and looks after them now and then. Any number may run."""

    def __init__(self, bucket: aio.Bucket, *, look_seconds: float = 5.0) -> None:
        self._bucket = bucket
        self._look_seconds = look_seconds
        self._memory = study.Memory()
        self._lock = asyncio.Lock()
        self._ends = asyncio.Condition()

    def watch(self) -> None:
        """Register the handler of new results, plans and requests to stop."""

        @self._bucket.watch(FILTER, name=RULE, batch=BATCH, start="beginning", gone="deliver", lease_seconds=60.0)
        async def moved(changes: AsyncChanges) -> None:
            names: dict[str, None] = {}
            for change in changes:
                found = result_at(change.key)
                names[found[0] if found else change.key.split("/")[1]] = None
            for name in names:
                await self.advance(name)

    async def advance(self, name: str) -> study.State:
        """Do what is next for a study. One at a time: the others would do the same."""
        async with self._lock:
            state = await self._bucket.run(study.advance(self._bucket.api, name, self._memory))
        if state == "finished":
            async with self._ends:
                self._ends.notify_all()
        return state

    async def until_finished(self, name: str) -> None:
        """Wait until this planner knows that a study is finished."""
        async with self._ends:
            await self._ends.wait_for(lambda: name in self._memory.finished)

    async def look_after(self) -> list[str]:
        """Look at every study that is not finished, for its deadline; those that go on."""
        going_on = []
        for name in await self._bucket.run(study.studies(self._bucket.api)):
            if name in self._memory.finished:
                continue
            try:
                if await self.advance(name) == "running":
                    going_on.append(name)
            except Exception as error:  # whatever somebody wrote to the bucket: the other studies go on
                logger.warning("action=study_not_advanced study=%s error=%s: %s", name, type(error).__name__, error)
                going_on.append(name)
        return going_on

    async def keep_looking(self) -> None:
        while True:
            await asyncio.sleep(self._look_seconds)
            try:
                await self.look_after()
            except BucketMQError as error:
                logger.warning("action=studies_not_listed error=%s", error)
