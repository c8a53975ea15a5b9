"""Append: putting segments at the end of a shard's log, once each.

The end is found by trying. A segment is created under the key of the offset we believe to be next. If that is refused
or its outcome is unknown, reading the key back tells which of three things is so: the segment there is ours, it is
another process's (whose line count gives the next offset), or there is none and the create is tried again.

In steady state an append is one PUT. What a cold start adds is in `segments.tail`.
"""

from __future__ import annotations

from collections.abc import Callable

from bucketmq.bucket.port import Object, Written
from bucketmq.log.segment import Parts, Segment
from bucketmq.procedures.lane import share
from bucketmq.procedures.opened import OpenQueue, Parcel, ShardLog
from bucketmq.procedures.requests import Create, Now, Procedure
from bucketmq.procedures.segments.hint import maybe_hint
from bucketmq.procedures.segments.messages import notice_fence
from bucketmq.procedures.segments.tail import HOPS_MAX, SLEEP_SECONDS, find_tail, lowest, tail
from bucketmq.procedures.verbs import Patience, delete, get
from bucketmq.queue.message import Message


class Fenced(Exception):
    """The shard count of an ordered queue was raised: choose the messages' shards again. Never leaves `procedures`."""


Mine = Callable[[Segment], bool]


def begins_with(first_id: str) -> Mine:
    """Recognises a segment by the id of its first message, or of its parts."""

    def mine(segment: Segment) -> bool:
        first = segment.first_line()
        return isinstance(first, Message | Parts) and first.id == first_id

    return mine


def marked(move: str) -> Mine:
    """Recognises a segment by the number of the move that put it there."""

    def mine(segment: Segment) -> bool:
        first = segment.first_line()
        return isinstance(first, Message) and first.move == move

    return mine


def place(queue: OpenQueue, shard_log: ShardLog, base: int, body: bytes, mine: Mine, *, count: int) -> Procedure[bool]:
    """Create the segment of `count` messages at `base`; False if another one took the place, or trimming passed it.

    One PUT; one GET more when refused or unknown, and one of the trim mark unless it was certain a moment ago that
    `base` was free.
    """
    known_at = shard_log.free_at(base)
    key = shard_log.key(base)
    patience = Patience(f"appending at {key}")
    while True:
        asked_at = yield from Now()
        reply = yield from Create(key, body)
        if isinstance(reply, Written):
            stored_at = reply.stored_at
            break
        found = yield from get(key)
        if isinstance(found, Object):
            segment = Segment(base, found.body, key)
            if mine(segment):
                stored_at = found.stored_at
                break
            notice_fence(queue, segment)
            yield from _go_on_behind(queue, shard_log, segment, known_at)
            return False
        yield from patience.again(reply)
    landed_at = asked_at if stored_at is None else stored_at
    low = yield from lowest(shard_log, base, known_at, (yield from Now()) if stored_at is None else stored_at)
    if low > base and not (stored_at is None and (yield from _landed_awake(key, known_at))):
        # Or trimming would delete it later, with the large bodies that we are about to send again.
        yield from delete(key)
        queue.jump(shard_log, low)
        return False
    queue.jump(shard_log, base)
    shard_log.learn(base + count, landed_at)
    yield from maybe_hint(queue, shard_log)
    return True


def _go_on_behind(queue: OpenQueue, shard_log: ShardLog, segment: Segment, known_at: float) -> Procedure[None]:
    """Another process's segment: the next base is its end, or the mark if it lies below and is not part of the log."""
    low = yield from lowest(shard_log, segment.base, known_at, (yield from Now()))
    queue.jump(shard_log, max(low, segment.base))
    shard_log.learn(low if low > segment.base else segment.end, 0.0)


def _landed_awake(key: str, known_at: float) -> Procedure[bool]:
    """Whether the segment landed before we slept and trimming passed it after: asked where a write tells no time."""
    found = yield from get(key)
    return isinstance(found, Object) and found.stored_at - known_at <= SLEEP_SECONDS


def is_outdated(queue: OpenQueue, shards: int) -> bool:
    """Whether messages of an ordered queue that were placed by a count of `shards` must find their shards again.

    To be asked after the tail is known: a process that passed a fence to learn it knows the new count, or that there
    is one.
    """
    return queue.settings.ordered and (queue.stale or queue.settings.shards != shards)


def append(
    queue: OpenQueue, shard_log: ShardLog, body: bytes, mine: Mine, *, count: int, shards: int
) -> Procedure[int]:
    """Put one segment of `count` messages at the end of the log; returns its base. `shards` is the shard count by which
    the log was chosen."""
    refused = 0
    while True:
        base = yield from tail(queue, shard_log)
        if is_outdated(queue, shards):
            raise Fenced
        if (yield from place(queue, shard_log, base, body, mine, count=count)):
            return base
        refused += 1
        if refused % HOPS_MAX == 0:  # far behind: others sent a lot since we last did
            yield from find_tail(queue, shard_log)


def post(queue: OpenQueue, shard_log: ShardLog, parcel: Parcel) -> Procedure[int]:
    """Append the parcel together with whatever else this process is sending to the shard; returns its base."""

    def carry(parcels: list[Parcel]) -> Procedure[None]:
        shards = parcels[0].shards
        if queue.settings.ordered and any(each.shards != shards for each in parcels):
            raise Fenced
        queue.turn += 1  # a step round the shards for each write, so that single sends gather instead of spreading
        body = b"".join(each.lines for each in parcels)
        count = sum(each.count for each in parcels)
        base = yield from append(queue, shard_log, body, begins_with(parcels[0].first_id), count=count, shards=shards)
        for each in parcels:
            each.base = base
            base += each.count

    yield from share(shard_log.lane, parcel, carry)
    return parcel.base
