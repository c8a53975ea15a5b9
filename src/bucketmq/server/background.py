"""What runs beside the receivers: the notifier, sweeps, and the watch over a folder. Each is started again if it fails.

Nothing here may be needed for safety: whatever stops is noticed at `/readyz` and made up for later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from bucketmq import aio
from bucketmq.procedures.rules.notifier import Notifier
from bucketmq.procedures.rules.run import RuleRun
from bucketmq.server.metrics import Counters
from bucketmq.server.place import folder_of
from bucketmq.server.settings import ServerSettings

RESTART_SECONDS = 1.0
RESTART_SECONDS_MAX = 60.0

logger = logging.getLogger("bucketmq")


class Tasks:
    """Tasks that are started again if they fail, until they are told to stop."""

    def __init__(self, counters: Counters, stop_seconds: float) -> None:
        self.stopping = asyncio.Event()
        self._counters = counters
        self._stop_seconds = stop_seconds
        self._tasks: list[asyncio.Task[None]] = []

    def spawn(self, name: str, start: Callable[[], Awaitable[None]]) -> None:
        self._tasks.append(asyncio.create_task(self._keep_going(name, start), name=name))

    async def end(self) -> None:
        """Wait for them to finish what is in hand; the caller has told them to."""
        self.stopping.set()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=self._stop_seconds)
            for task in late:
                logger.warning("action=stop_gave_up task=%s", task.get_name())
                task.cancel()

    async def _keep_going(self, name: str, start: Callable[[], Awaitable[None]]) -> None:
        pause = RESTART_SECONDS
        loop = asyncio.get_running_loop()
        while not self.stopping.is_set():
            began = loop.time()
            try:
                await start()
            except Exception:
                # Whatever it was, the others go on and this is tried again.
                logger.exception("action=task_failed task=%s", name)
            if self.stopping.is_set():
                return
            if loop.time() - began > RESTART_SECONDS_MAX:
                pause = RESTART_SECONDS
            self._counters.add("restarts_total", task=name)
            await wait_for(self.stopping, pause)
            pause = min(pause * 2, RESTART_SECONDS_MAX)


class Background:
    """The tasks of one server."""

    def __init__(self, bucket: aio.Bucket, settings: ServerSettings, counters: Counters) -> None:
        self._bucket = bucket
        self._settings = settings
        self._counters = counters
        self._tasks = Tasks(counters, settings.stop_seconds)
        self._stop = self._tasks.stopping
        self._notifier: Notifier | None = None

    async def start(self) -> None:
        if self._settings.notify:
            self._tasks.spawn("notifier", self._notify)
        if self._settings.sweep_seconds is not None:
            self._tasks.spawn("sweep", self._sweep)
        root = folder_of(self._bucket)
        if self._settings.files and root is not None:
            from bucketmq.server.files import FolderWatch

            watch = FolderWatch(self._bucket, root, self._counters)
            self._tasks.spawn("files", lambda: watch.run(self._stop))
            await watch.wait_until_live(self._stop)

    @property
    def notifier_up(self) -> bool:
        return self._notifier is not None

    def runs(self) -> list[RuleRun]:
        return [] if self._notifier is None else self._notifier.runs()

    async def stop(self) -> None:
        """Finish what is in hand."""
        self._stop.set()
        if self._notifier is not None:
            self._notifier.stop()
        await self._tasks.end()

    async def _notify(self) -> None:
        def started(notifier: Notifier) -> None:
            self._notifier = notifier
            if self._stop.is_set():
                notifier.stop()

        try:
            await self._bucket.notify(signals=False, started=started)
        finally:
            self._notifier = None

    async def _sweep(self) -> None:
        """The first one takes a baseline: what was there before the server is not reported."""
        assert self._settings.sweep_seconds is not None
        while not self._stop.is_set():
            try:
                swept = await self._bucket.sweep(baseline=True)
            except Exception:
                self._counters.add("sweeps_total", outcome="failed")
                raise
            self._counters.add("sweeps_total", outcome="done")
            found = swept.created + swept.changed + swept.deleted
            logger.info("action=swept keys=%d events=%d", swept.keys, found)
            await wait_for(self._stop, self._settings.sweep_seconds)


async def wait_for(event: asyncio.Event, seconds: float) -> bool:
    """Whether the event was set within this time."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
