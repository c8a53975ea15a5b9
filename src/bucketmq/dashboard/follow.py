"""Following a queue's log from a time on, without claiming anything: one GET for each shard when nothing is new."""

from __future__ import annotations

import asyncio
from typing import Any

from bucketmq import aio
from bucketmq.api.bucket import BucketApi
from bucketmq.errors import NotFound
from bucketmq.procedures.claiming.browse import inline_body, read_on
from bucketmq.procedures.claiming.receive import position_of_time
from bucketmq.procedures.queues import open_queue, refresh_settings
from bucketmq.procedures.requests import Procedure
from bucketmq.server.place import bus_of, run, seconds_now

SEGMENTS_MAX = 500
"""Read at a time, of one shard; the rest comes with the next call."""
FORGET_SECONDS = 3600.0
"""After so long without a read the place is forgotten: what lies between may be trimmed, and does not matter."""


class Follower:
    """A place in one queue's log. The first read begins `back_seconds` ago."""

    def __init__(self, bucket: aio.Bucket, queue: str, back_seconds: float) -> None:
        self._bucket = bucket
        self._queue = queue
        self._back_seconds = back_seconds
        self._positions: dict[int, int] = {}
        self._read_at = 0.0
        self._lock = asyncio.Lock()
        self.began_anew = False
        """Whether the last read began at a new place, and what was sent before was not seen."""

    async def read(self) -> list[Any]:
        """The bodies of what was sent since the last call."""
        async with self._lock:
            now = seconds_now(self._bucket)
            self.began_anew = now - self._read_at > FORGET_SECONDS
            if self.began_anew:
                self._positions.clear()
            positions = dict(self._positions)
            since = now - self._back_seconds
            bodies = await run(self._bucket, _read(bus_of(self._bucket), self._queue, positions, since))
            self._positions, self._read_at = positions, now
            return bodies


def _read(bus: BucketApi, name: str, positions: dict[int, int], since: float) -> Procedure[list[Any]]:
    try:
        queue = yield from open_queue((yield from bus.open()), name, {}, create=False)
    except NotFound:
        return []
    settings = yield from refresh_settings(queue)
    bodies: list[Any] = []
    for shard in range(settings.shards):
        if shard not in positions:
            _, positions[shard] = yield from position_of_time(queue, queue.log(shard), since)
        for _ in range(SEGMENTS_MAX):
            seen, base = yield from read_on(queue, shard, positions[shard])
            if base == positions[shard]:
                break
            positions[shard] = base
            bodies += [inline_body(each.message) for each in seen]
    return bodies
