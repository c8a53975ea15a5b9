"""What is known of the queues of a bucket: their names, and how each stands, as last seen.

A look at one queue costs a handful of requests, so nobody looks at all of them at once: a page asks for the few that it
shows (`fresh`), and what nobody asks for is looked at when figures are taken (`charts`), slowly if they are many. A
queue that cannot be read is shown with the reason, and hides no other.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from bucketmq import aio
from bucketmq.dashboard.site import COST_FACTOR, FRESH_SECONDS, Kept
from bucketmq.errors import BucketMQError, NotFound
from bucketmq.metrics.families import queue_families
from bucketmq.procedures.upkeep.stats import QueueStats
from bucketmq.queue.settings import Settings

if TYPE_CHECKING:
    from prometheus_client import Metric

FIRST = 50
"""Queues that somebody is kept waiting for when nothing is known yet."""
AGAIN_SECONDS = 60.0
"""What is known for longer than this is looked at again when somebody wants all of it. As often as figures are taken:
while they are, that has happened already."""
FLOW_SECONDS, FLOW_SECONDS_MIN = 70.0, 1.0
"""Rates are over the last minute or so, by two looks that are at least so far apart."""
PAST_SECONDS, PAST_KEPT = 5.0, 16
"""What is remembered for rates: a look every so often, so many of them."""
FORGOTTEN, UNSEEN = -math.inf, -1e12
"""Times before any that a clock shows: something was done to it; nobody has looked."""
AT_A_TIME = 8
"""Queues that are looked at together."""
ROUND_SECONDS_PER_QUEUE = 1.0
"""With many queues a round takes longer, so that what it costs does not grow with them."""


class Surveyed(msgspec.Struct, frozen=True):
    """A queue as somebody saw it."""

    name: str
    stats: QueueStats | None
    settings: Settings | None
    trouble: str
    """Why it could not be read; empty if it could."""
    kind: str
    """The kind of that error."""
    at: float
    """By the store's clock."""
    until: float
    """When it should be looked at again, by the process' clock."""


class Flow(msgspec.Struct, frozen=True):
    """How much went into a queue and out of it, per second, over the last so many seconds."""

    seconds: float
    sent: float
    settled: dict[str, float]
    """By subscription."""


class _Past(msgspec.Struct, frozen=True):
    """What was counted at a time."""

    at: float
    sent: int
    settled: dict[str, int]


class Survey:
    """The queues of one bucket. Belongs to one event loop."""

    def __init__(self, bucket: aio.Bucket) -> None:
        self._bucket = bucket
        self._names = Kept(bucket.queues)
        self._seen: dict[str, Surveyed] = {}
        self._past: dict[str, deque[_Past]] = {}
        self._looking: dict[str, asyncio.Task[Surveyed]] = {}
        self._turn = asyncio.Semaphore(AT_A_TIME)

    async def names(self) -> list[str]:
        """All queues, dead letters left out. Some LISTs, one for each queue, every now and then."""
        found = await self._names.read()
        there = set(found)
        self._seen = {name: seen for name, seen in self._seen.items() if name in there}
        self._past = {name: past for name, past in self._past.items() if name in there}
        return found

    def known(self, name: str) -> Surveyed | None:
        """How a queue stood when somebody looked; no request."""
        return self._seen.get(name)

    def all_known(self) -> list[Surveyed]:
        """Every queue that somebody has looked at; no request."""
        return list(self._seen.values())

    def flow(self, name: str) -> Flow | None:
        """What went in and out lately; None before two looks that are some seconds apart. No request."""
        past = self._past.get(name)
        if past is None or len(past) < 2:
            return None
        last = past[-1]
        first = next((each for each in past if last.at - each.at <= FLOW_SECONDS and each is not last), past[-2])
        seconds = last.at - first.at
        if seconds < FLOW_SECONDS_MIN:
            return None
        settled = {
            sub: max(0.0, (count - first.settled[sub]) / seconds)
            for sub, count in last.settled.items()
            if sub in first.settled
        }
        return Flow(seconds, max(0.0, (last.sent - first.sent) / seconds), settled)

    async def fresh(self, names: Iterable[str]) -> list[Surveyed]:
        """How these queues stand now, give or take a few seconds. Those that were just looked at cost nothing."""
        return list(await asyncio.gather(*(self._one(name) for name in names)))

    async def some(self, names: list[str]) -> list[Surveyed]:
        """What is known of these. A few are looked at now: those that something was done to, those that nobody has
        looked at yet, and those that were seen long ago, because no figures are taken. The others follow."""
        old = time.monotonic() - self.round_seconds(AGAIN_SECONDS)
        ages = sorted((self._seen[name].until if name in self._seen else UNSEEN, name) for name in names)
        await self.fresh([name for until, name in ages if until < old][:FIRST])
        return [seen for name in names if (seen := self._seen.get(name)) is not None]

    def families(self) -> Iterator[Metric]:
        """What is known, for Prometheus; no request."""
        seen = list(self._seen.values())
        unreadable = [each.name for each in seen if each.stats is None]
        return queue_families([each.stats for each in seen if each.stats is not None], unreadable=unreadable)

    def forget(self, name: str) -> None:
        """Something was done to it: the next request must show that."""
        seen = self._seen.get(name)
        if seen is not None:
            self._seen[name] = msgspec.structs.replace(seen, until=FORGOTTEN)

    def forget_names(self) -> None:
        self._names.forget()

    def round_seconds(self, wanted: float) -> float:
        """How long to wait before all queues are looked at again: as wanted, or longer if they are many."""
        return max(wanted, ROUND_SECONDS_PER_QUEUE * len(self._seen))

    async def _one(self, name: str) -> Surveyed:
        seen = self._seen.get(name)
        if seen is not None and time.monotonic() < seen.until:
            return seen
        task = self._looking.get(name)
        if task is None:
            task = self._looking[name] = asyncio.ensure_future(self._look(name))
            task.add_done_callback(lambda _: self._looking.pop(name, None))
        return await asyncio.shield(task)

    async def _look(self, name: str) -> Surveyed:
        async with self._turn:
            began = time.monotonic()
            stats, settings, trouble, kind = None, None, "", ""
            queue = self._bucket.existing_queue(name)
            try:
                stats = await queue.stats()
                settings = await queue.settings()
            except NotFound:
                trouble, kind = "it has no settings: it is being made, or what is left of it is damaged", "corrupt"
            except BucketMQError as error:
                trouble, kind = str(error), error.kind
            ended = time.monotonic()
            until = ended + max(FRESH_SECONDS, COST_FACTOR * (ended - began))
            if stats is not None:
                self._note(name, stats)
            self._seen[name] = Surveyed(name, stats, settings, trouble, kind, self._bucket.now_seconds, until)
            return self._seen[name]

    def _note(self, name: str, stats: QueueStats) -> None:
        """Remember what was counted, for rates."""
        past = self._past.setdefault(name, deque(maxlen=PAST_KEPT))
        now = _Past(self._bucket.now_seconds, stats.sent, {each.name: each.settled for each in stats.subscriptions})
        if len(past) > 1 and past[-1].at - past[-2].at < PAST_SECONDS:
            past.pop()
        past.append(now)
