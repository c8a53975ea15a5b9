"""Figures over an hour, a day or a week: taken in the background, kept in the bucket, and drawn by the page.

While somebody looks there is a sample each minute, otherwise every five: looking at all queues is what it costs. With
many queues a round takes longer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections import OrderedDict
from typing import Any, Literal

import msgspec
from fastapi import APIRouter, Request, Response

from bucketmq import aio
from bucketmq.dashboard.programs import Programs
from bucketmq.dashboard.site import Kept, Site, json_answer, query_of
from bucketmq.dashboard.survey import Survey, Surveyed
from bucketmq.errors import BucketMQError
from bucketmq.log.figures import ALL, BETWEEN, HOURS, MINUTES, Ring, Sample, Samples, Stretch, summed
from bucketmq.metrics.families import subscription_label
from bucketmq.procedures.queues import ACTIONS
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.upkeep import figures
from bucketmq.procedures.upkeep.stats import QueueStats, SubscriptionStats
from bucketmq.server.place import bus_of, run

SAMPLE_SECONDS = 60.0
IDLE_FACTOR = 5
LOOKED_SECONDS = 600.0
"""So long after somebody looked, samples are taken each minute."""
STRETCHES_KEPT = 64

Range = Literal["hour", "day", "week"]
SPANS: dict[Range, tuple[Ring, int]] = {
    "hour": (MINUTES, 3600),
    "day": (MINUTES, 86400),
    "week": (HOURS, 7 * 86400),
}

logger = logging.getLogger("bucketmq")


class Charts:
    """The figures of one bucket over time. Belongs to one event loop."""

    def __init__(self, bucket: aio.Bucket, survey: Survey, programs: Programs) -> None:
        self._bucket = bucket
        self._survey = survey
        self._programs = programs
        self._kept: OrderedDict[tuple[str, int], Stretch | None] = OrderedDict()
        """Stretches that are over: they change no more."""
        self._newest = {span: Kept(lambda span=span: self._read(span)) for span in SPANS}  # type: ignore[misc]
        self._hour = 0
        self.looked_at = -math.inf

    async def sample(self) -> None:
        """Look at every queue and note how they stand. Each hour the one before is rolled up, and the log of actions
        trimmed."""
        names = await self._survey.names()
        seen = await self._survey.fresh(names)
        now = self._bucket.now_seconds
        samples = summed({name: each for queue in seen for name, each in samples_of(queue).items()})
        new_hour = MINUTES.start(now) != self._hour
        await run(self._bucket, _note(self._bucket, now, samples, roll=new_hour))
        if new_hour and ACTIONS in names:  # no worker reads it, so no worker trims it
            await self._bucket.existing_queue(ACTIONS).trim()
        self._hour = MINUTES.start(now)
        self._programs.touch()

    async def keep_going(self) -> None:
        """Sample until cancelled. A bucket that cannot be reached leaves a gap."""
        while True:
            try:
                await self.sample()
            except BucketMQError as error:
                logger.warning("action=sample_failed kind=%s %s", error.kind, error)
            await asyncio.sleep(self._pause())

    def look(self) -> None:
        """Somebody looks, a person or a program."""
        self.looked_at = time.monotonic()

    async def points(self, span: Range, queue: str) -> list[list[float]]:
        """Samples of a queue, or of all, the oldest first: when, then the fields of `Sample`."""
        self.look()
        ring, seconds = SPANS[span]
        since = self._bucket.now_seconds - seconds
        return [
            [stretch.start + slot * stretch.step, *msgspec.structs.astuple(samples[queue])]
            for stretch in await self._newest[span].read()
            for slot, samples in sorted(stretch.samples.items())
            if queue in samples and stretch.start + slot * stretch.step > since - ring.step
        ]

    def _pause(self) -> float:
        watched = time.monotonic() - self.looked_at < LOOKED_SECONDS
        return self._survey.round_seconds(SAMPLE_SECONDS if watched else IDLE_FACTOR * SAMPLE_SECONDS)

    async def _read(self, span: Range) -> list[Stretch]:
        ring, seconds = SPANS[span]
        now = self._bucket.now_seconds
        times = [now - back for back in range(seconds, -1, -ring.stretch)]
        found = [await self._stretch(ring, at, over=ring.start(at) + ring.stretch <= now) for at in times]
        return [each for each in found if each is not None]

    async def _stretch(self, ring: Ring, at: float, *, over: bool) -> Stretch | None:
        place = ring.name, ring.start(at)
        if place not in self._kept:
            self._kept[place] = await run(self._bucket, _read(self._bucket, ring, at))
            while len(self._kept) > STRETCHES_KEPT:
                self._kept.popitem(last=False)
        return self._kept[place] if over else self._kept.pop(place)


def _note(bucket: aio.Bucket, now: float, samples: Samples, *, roll: bool) -> Procedure[None]:
    opened = yield from bus_of(bucket).open()
    yield from figures.note(opened, MINUTES, now, samples)
    if roll:
        yield from figures.roll_up(opened, now)


def _read(bucket: aio.Bucket, ring: Ring, at: float) -> Procedure[Stretch | None]:
    return (yield from figures.read((yield from bus_of(bucket).open()), ring, at))


def samples_of(seen: Surveyed) -> Samples:
    """How a queue stands, and each of its subscriptions if there are several."""
    stats = seen.stats
    if stats is None:
        return {}

    def sample(of: QueueStats | SubscriptionStats, settled: int) -> Sample:
        oldest = round(of.oldest_ready_seconds or 0.0, 1)
        return Sample(of.ready, of.in_flight, of.delayed, of.dead, oldest, stats.sent, settled)

    found = {seen.name: sample(stats, sum(each.settled for each in stats.subscriptions))}
    if len(stats.subscriptions) > 1:
        for each in stats.subscriptions:
            found[f"{seen.name}{BETWEEN}{subscription_label(seen.name, each.name)}"] = sample(each, each.settled)
    return found


class Wanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    span: Range = "hour"
    queue: str = ALL
    subscription: str = ""
    """One of the queue's, by the name that metrics have for it; empty for all of them."""


def routes(site: Site, charts: Charts) -> APIRouter:
    router = APIRouter(prefix="/api")

    @router.get("/figures")
    async def figure(request: Request) -> Response:
        """How a queue or one of its subscriptions stood over time; `*` is the sum over all queues."""
        wanted = query_of(request, Wanted)
        caller = site.looker(request, *(() if wanted.queue == ALL else (wanted.queue,)))
        # Whose scope is not everything does not see the sum over everything.
        whole = wanted.queue != ALL or "*" in caller.queues
        series = f"{wanted.queue}{BETWEEN}{wanted.subscription}" if wanted.subscription else wanted.queue
        points: list[Any] = await site.work(charts.points(wanted.span, series)) if whole else []
        names = ("at", *Sample.__struct_fields__)
        return json_answer({"fields": names, "points": points, "now": site.bucket.now_seconds})

    return router


@contextlib.asynccontextmanager
async def in_the_background(charts: Charts) -> Any:
    """Samples are taken while the block runs."""
    task = asyncio.create_task(charts.keep_going(), name="figures")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
