"""The agent `keeper`: merges what was learnt, opens and resolves alerts, tells people, and says that time passes.

Any number may run. News come from a queue and are handled at least once; handling one again changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from bucketmq import aio
from bucketmq.apps.app import Here
from bucketmq.apps.logs import alerts, notice
from bucketmq.apps.logs.detect import Window
from bucketmq.apps.logs.look import forget_old, services
from bucketmq.apps.logs.names import NEWS, RULE, WINDOWS
from bucketmq.apps.logs.settings import LogSettings
from bucketmq.errors import Invalid
from bucketmq.procedures.rules.notifier import Notifier
from bucketmq.server.background import Tasks, wait_for
from bucketmq.server.metrics import Counters

TICK_SECONDS = 20.0
TIDY_SECONDS = 6 * 3600.0
NEWS_AT_A_TIME = 100
WAIT_SECONDS = 1.0
STOP_SECONDS = 20.0

logger = logging.getLogger("bucketmq")

Told = Callable[[str], None]
"""Told the fingerprint of each alert that was opened or resolved."""


class Keeper:
    """What one process runs."""

    def __init__(self, bucket: aio.Bucket, settings: LogSettings, *, told: Told = lambda _: None) -> None:
        self._bucket = bucket
        self._settings = settings
        self._told = told
        self._tasks = Tasks(Counters(), STOP_SECONDS)
        self._notifier: Notifier | None = None

    async def start(self) -> None:
        """Make the rule before there is anything to tell, and begin."""
        await self._bucket.run(notice.set_up(self._bucket.api, self._settings))
        self._tasks.spawn("news", self._news)
        self._tasks.spawn("ticks", self._ticks)
        self._tasks.spawn("tidying", self._tidy)
        if self._settings.alert_url is not None:
            self._tasks.spawn("notices", self._notify)

    async def stop(self) -> None:
        self._tasks.stopping.set()
        if self._notifier is not None:
            self._notifier.stop()
        await self._tasks.end()

    async def run_once(self) -> None:
        """Handle and tell all that is there now."""
        await self._bucket.run(notice.set_up(self._bucket.api, self._settings))
        while await self._handle(0.0):
            pass
        if self._settings.alert_url is not None:
            await self._bucket.notify(only=[RULE], stop_when_empty=True, signals=False)

    async def tick(self) -> None:
        """Say to the detectors of each service that time has passed. A LIST, a GET for each service, and one send."""
        bus = self._bucket.api
        now = self._bucket.now_seconds
        for each in await self._bucket.run(services(bus)):
            window = msgspec.json.encode(Window(at=now)).decode()
            body = {"service": each.service, "window": window}
            mark = f"{each.service}:{int(now // TICK_SECONDS)}"  # several keepers tick as one
            await self._bucket.queue(WINDOWS).send(body, key=each.service, dedup_key=mark)

    async def _news(self) -> None:
        while not self._tasks.stopping.is_set():
            await self._handle(WAIT_SECONDS)

    async def _handle(self, wait_seconds: float) -> int:
        """Some messages, one after the other: those of a service build upon each other."""
        queue = self._bucket.queue(NEWS)
        deliveries = list(await queue.receive(NEWS_AT_A_TIME, wait_seconds=wait_seconds))
        for delivery in deliveries:
            try:
                done = await self._bucket.run(alerts.handle(self._bucket.api, dict(delivery.body), self._settings))
            except (Invalid, msgspec.ValidationError, KeyError, TypeError, ValueError) as error:
                await delivery.bury(f"no news of logs: {type(error).__name__}: {error}"[:500])
            except Exception as error:
                logger.warning("action=news_failed id=%s", delivery.id, exc_info=True)
                await delivery.retry(f"{type(error).__name__}: {error}"[:500])
            else:
                await delivery.ack()
                for each in done:
                    await self._summarise(each)
                    self._told(each)
        if deliveries:
            await queue.flush()
        return len(deliveries)

    async def _summarise(self, id: str) -> None:
        """Claude's summary is a help, and nothing waits for it: whatever goes wrong, the alert is out already."""
        if not self._settings.summarise:
            return
        from bucketmq.apps.logs.explain import summarise

        try:
            await asyncio.to_thread(summarise, self._settings, id)
        except Exception:
            logger.warning("action=summary_failed alert=%s", id, exc_info=True)

    async def _ticks(self) -> None:
        while not await wait_for(self._tasks.stopping, TICK_SECONDS):
            await self.tick()

    async def _tidy(self) -> None:
        while not await wait_for(self._tasks.stopping, TIDY_SECONDS):
            days = self._settings.counts_days
            await self._bucket.run(forget_old(self._bucket.api, self._bucket.now_seconds - 86400.0 * days))

    async def _notify(self) -> None:
        def started(notifier: Notifier) -> None:
            self._notifier = notifier
            if self._tasks.stopping.is_set():
                notifier.stop()

        await self._bucket.notify(only=[RULE], signals=False, started=started)


async def keep(here: Here) -> None:
    """The `run` of the agent."""
    keeper = Keeper(here.bucket, here.settings)
    await keeper.start()
    here.ready("")
    try:
        await here.stopped()
    finally:
        await keeper.stop()
