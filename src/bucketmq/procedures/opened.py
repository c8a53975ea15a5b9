"""A queue as one process has it open: its keys, its settings, and what was learnt about it so far.

Everything in here is a cache. Losing it costs requests, never truth: truth is in the bucket.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

from bucketmq.bucket.port import Version
from bucketmq.log.documents import Later
from bucketmq.log.layout import QueueKeys
from bucketmq.log.segment import LINES_BYTES_MAX, Segment
from bucketmq.procedures.lane import Item, Lane
from bucketmq.queue.settings import Settings

Thing = TypeVar("Thing")

SEGMENTS_BYTES_MAX = 64 << 20
PARCEL_BYTES_MAX = LINES_BYTES_MAX


class Parcel(Item):
    """Lines of one send on their way into a shard. `base` is the offset of the first one, once it is known."""

    __slots__ = ("base", "count", "first_id", "lines", "shards")

    def __init__(self, lines: bytes, count: int, first_id: str, shards: int) -> None:
        super().__init__()
        self.lines = lines
        self.count = count
        self.first_id = first_id
        self.shards = shards
        """The shard count by which the shard was chosen."""
        self.base = -1


def _parcels_that_fit(parcels: list[Parcel]) -> int:
    size, count = 0, 0
    for parcel in parcels:
        size += len(parcel.lines)
        if count and size > PARCEL_BYTES_MAX:
            break
        count += 1
    return count


class ShardLog:
    """What this process knows about the log of one shard."""

    def __init__(self, keys: QueueKeys, shard: int) -> None:
        self.keys = keys
        self.shard = shard
        self.tail: int | None = None
        """The lowest offset not known to be taken."""
        self.tail_at = 0.0
        """When it was last certain that nothing was there, nor behind it, on the store's clock."""
        self.head_keys: list[str] = []
        """The keys of its heads, as they were when they were listed."""
        self.heads_at = 0.0
        """When it was last looked up that none of them is ahead of the log (see `segments.tail`)."""
        self.lane: Lane[Parcel] = Lane(_parcels_that_fit)
        self.end_at = 0.0
        """When it was last looked up where the log really ends (see `claiming.gaps`)."""
        self.missing = -1, 0.0
        """A base at which a reader found nothing, and when: rules of one process spare each other the question."""
        self.hint_version: Version | None = None
        """The mark of the hint, if this process wrote it last."""
        self.since_hint = 0
        """Segments passed since the hint was last written or read."""

    def learn(self, tail: int, free_at: float) -> None:
        """Somebody saw the log reach up to `tail`. `free_at` is a time at which nothing was there, 0 if none is known:
        what was free from an older tail on was free from this one on, so the older time still holds."""
        if self.tail is None or tail > self.tail:
            self.since_hint += 1
            self.tail = tail
        if tail == self.tail:
            self.tail_at = max(self.tail_at, free_at)

    def free_at(self, base: int) -> float:
        """When it was last certain that nothing was at `base`, nor behind it; 0 if that is not known."""
        at = self.tail_at  # read first: another thread may learn a later tail, and with it a later time
        return at if base == self.tail else 0.0

    def key(self, base: int) -> str:
        return self.keys.segment(self.shard, base)


class SegmentCache:
    """The segments read last, bounded in bytes. Segments never change, so nothing here can be stale."""

    def __init__(self, bytes_max: int = SEGMENTS_BYTES_MAX) -> None:
        self._lock = threading.Lock()
        self._segments: OrderedDict[str, Segment] = OrderedDict()
        self._bytes = 0
        self._bytes_max = bytes_max

    def find(self, key: str) -> Segment | None:
        with self._lock:
            segment = self._segments.get(key)
            if segment is not None:
                self._segments.move_to_end(key)
            return segment

    def keep(self, key: str, segment: Segment) -> Segment:
        """Remember a segment; returns the one that is remembered, which may be another caller's copy of it."""
        with self._lock:
            if key in self._segments:
                return self._segments[key]
            self._segments[key] = segment
            self._bytes += len(segment.body)
            while self._bytes > self._bytes_max and len(self._segments) > 1:
                _, dropped = self._segments.popitem(last=False)
                self._bytes -= len(dropped.body)
        return segment

    def drop(self, key: str) -> None:
        with self._lock:
            dropped = self._segments.pop(key, None)
            if dropped is not None:
                self._bytes -= len(dropped.body)


class OpenBucket:
    """A bucket, open in one process. `holder` names the process in heads."""

    def __init__(
        self,
        prefix: str,
        holder: str,
        *,
        lists_in_order: bool,
        local: bool,
        renames: bool = False,
        copies: bool = False,
        exact_versions: bool = False,
    ) -> None:
        self.prefix = prefix
        self.holder = holder
        self.lists_in_order = lists_in_order
        self.local = local
        self.renames = renames
        self.copies = copies
        """Whether the store is asked to copy. It may turn out that it cannot: `objects.copy` finds out."""
        self.has_copied = local
        """Whether it is known that it can."""
        self.exact_versions = exact_versions
        self.queues: dict[str, OpenQueue] = {}
        self.tables: dict[Any, Any] = {}
        """A `tables.opened.OpenTable` by its name and what was said of it."""
        self.unsettled: dict[Any, float | None] = {}
        """The desks at which something waits to be handed in, and since when the keeper knows (`working.keeper`)."""


class OpenQueue:
    """One queue, open in one process."""

    def __init__(self, bucket: OpenBucket, keys: QueueKeys, settings: Settings, settings_at: float) -> None:
        self.bucket = bucket
        self.keys = keys
        self.settings = settings
        self.settings_at = settings_at
        self._doubts, self._doubts_settled = 0, 0
        self.holder = bucket.holder
        self.lists_in_order = bucket.lists_in_order
        self.segments = SegmentCache()
        self.later: Later | None = None
        self.later_check_at = 0.0
        self.turn = 0
        """Counts writes, so that unkeyed messages go round the shards; every process begins somewhere else."""
        self.choices: dict[str, Any] = {}
        """How some subscriptions differ from plain readers: a `commit.Choice` by name."""
        self._logs: dict[int, ShardLog] = {}
        self._shared: dict[object, object] = {}

    @property
    def name(self) -> str:
        return self.keys.queue

    @property
    def stale(self) -> bool:
        """Whether something was seen that the settings we have do not know: read them again before sending."""
        return self._doubts > self._doubts_settled

    @property
    def doubts(self) -> int:
        """How often something was seen so far. Whoever reads the settings looks at this before."""
        return self._doubts

    def doubt(self) -> None:
        """Something was seen that the settings we have may not know."""
        self._doubts += 1

    def jump(self, shard_log: ShardLog, base: int) -> None:
        """Go on at `base`, which somebody else chose, past segments that were not read: a fence may be among them."""
        if base > (shard_log.tail or 0):
            self.doubt()
            shard_log.learn(base, 0.0)

    def adopt(self, settings: Settings, now: float, doubts: int = 0) -> None:
        """Believe settings that were read at `now`, after `doubts` doubts. Several callers read them at a time, and
        the answers may come in another order: a shard count that is known is not unlearnt."""
        if _progress(settings) >= _progress(self.settings):
            self.settings = settings
        self.settings_at = max(self.settings_at, now)
        self._doubts_settled = max(self._doubts_settled, doubts)

    def log(self, shard: int) -> ShardLog:
        return self._logs.get(shard) or self._logs.setdefault(shard, ShardLog(self.keys, shard))

    def shared(self, name: object, make: Callable[[], Thing]) -> Thing:
        """The one thing of this name that all callers of this process share; made on first use."""
        if name not in self._shared:
            self._shared.setdefault(name, make())
        found: Thing = self._shared[name]  # type: ignore[assignment]  # one name, one type, by convention
        return found


def _progress(settings: Settings) -> tuple[int, int]:
    """What of a queue's settings only grows: the shard count, and the raises that are finished."""
    return settings.shards, sum(1 for fences in settings.fences if fences.at)
