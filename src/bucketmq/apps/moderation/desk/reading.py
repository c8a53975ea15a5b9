"""A desk's place in one queue's log: the first read begins where it is told to, the next ones go on from there.

As `dashboard.follow`, which hands out bodies from a time on; here the messages with their times, also of the end of a
log, and the beginning is found at a cost that does not grow with the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bucketmq import aio
from bucketmq.api.bucket import BucketApi
from bucketmq.apps.moderation.logbook import first_since, read_from, read_last
from bucketmq.errors import NotFound
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.queues import open_queue, refresh_settings
from bucketmq.procedures.requests import Procedure
from bucketmq.queue.message import Message
from bucketmq.server.place import bus_of, run, seconds_now

SEGMENTS_MAX = 500
"""Read at a time, of one shard; the rest comes with the next call."""

FORGET_SECONDS = 3600.0
"""After this long without a read it starts over: what lies between does not matter."""

Begin = Callable[[OpenQueue, int, float], Procedure[tuple[list[Message], int]]]
"""The first messages of a shard and where to go on, at a time of the store's clock."""


def last(messages_max: int) -> Begin:
    """Begin with the last messages of a log."""

    def begin(queue: OpenQueue, shard: int, now: float) -> Procedure[tuple[list[Message], int]]:
        return (yield from read_last(queue, shard, messages_max))

    return begin


def since(seconds: float) -> Begin:
    """Begin with what was sent so long ago."""

    def begin(queue: OpenQueue, shard: int, now: float) -> Procedure[tuple[list[Message], int]]:
        return [], (yield from first_since(queue, shard, now - seconds))

    return begin


class Reader:
    """A place in one queue's log. One GET for each shard when nothing is new."""

    def __init__(self, bucket: aio.Bucket, queue: str, begin: Begin) -> None:
        self._bucket = bucket
        self._queue = queue
        self._begin = begin
        self._places: dict[int, int] = {}
        self._read_at = 0.0
        self._lock = asyncio.Lock()

    async def read(self) -> list[Message]:
        """What was sent since the last call."""
        async with self._lock:
            now = seconds_now(self._bucket)
            places = dict(self._places) if now - self._read_at <= FORGET_SECONDS else {}
            found = await run(self._bucket, self._read(bus_of(self._bucket), places, now))
            self._places, self._read_at = places, now
            return found

    def _read(self, bus: BucketApi, places: dict[int, int], now: float) -> Procedure[list[Message]]:
        try:
            queue = yield from open_queue((yield from bus.open()), self._queue, {}, create=False)
        except NotFound:
            return []
        settings = yield from refresh_settings(queue)
        found: list[Message] = []
        for shard in range(settings.shards):
            if shard not in places:
                messages, places[shard] = yield from self._begin(queue, shard, now)
                found += messages
            messages, places[shard] = yield from read_from(queue, shard, places[shard], SEGMENTS_MAX)
            found += messages
        return found
