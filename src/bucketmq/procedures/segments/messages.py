"""Reading: segments, and messages out of them wherever their lines lie, in the segment itself or in parts it names."""

from __future__ import annotations

from bucketmq.bucket.port import Missing, Object
from bucketmq.errors import Corrupt
from bucketmq.log.layout import join
from bucketmq.log.segment import Segment
from bucketmq.procedures.opened import OpenQueue, ShardLog
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.verbs import get
from bucketmq.queue.head import Span
from bucketmq.queue.message import Message


def read_segment(queue: OpenQueue, shard_log: ShardLog, base: int) -> Procedure[Segment | None]:
    """The segment at `base`, from the cache or by one GET; None where there is none."""
    key = shard_log.key(base)
    segment = queue.segments.find(key)
    if segment is None:
        found = yield from get(key)
        if isinstance(found, Missing):
            return None
        segment = keep_segment(queue, shard_log, base, found)
    return segment


def keep_segment(queue: OpenQueue, shard_log: ShardLog, base: int, found: Object) -> Segment:
    """Remember a segment that was read."""
    segment = Segment(base, found.body, shard_log.key(base))
    notice_fence(queue, segment)
    return queue.segments.keep(shard_log.key(base), segment)


def notice_fence(queue: OpenQueue, segment: Segment) -> None:
    """Behind a fence the settings that came with it count: have them read again before the next send."""
    if (segment.fence or 0) > queue.settings.shards:
        queue.doubt()


def read_span(queue: OpenQueue, shard_log: ShardLog, span: Span) -> Procedure[list[Message]]:
    """The messages of a span. One GET for the segment unless it is cached, one for each part that is needed."""
    segment = yield from read_segment(queue, shard_log, span.base)
    if segment is None:
        raise Corrupt(
            f"{shard_log.key(span.base)} is missing though offset {span.start} of it is not settled: "
            "somebody else deleted it; restore it, or purge the subscription"
        )
    if span.stop > segment.end:
        raise Corrupt(
            f"{shard_log.key(span.base)} has {segment.count} messages, not offset {span.stop - 1}; restore it"
        )
    if not segment.parts:
        return segment.messages(span.start, span.stop)
    return (yield from _read_parts(queue, shard_log, segment, span))


def _read_parts(queue: OpenQueue, shard_log: ShardLog, segment: Segment, span: Span) -> Procedure[list[Message]]:
    messages: list[Message] = []
    base = segment.base
    for part in segment.parts:
        start, stop = max(base, span.start), min(base + part.count, span.stop)
        if start < stop:
            lines = yield from _read_part(queue, shard_log, part.key, base)
            if lines.count != part.count:
                raise Corrupt(f"{part.key} has {lines.count} lines, its segment says {part.count}; restore it")
            messages += lines.messages(start, stop)
        base += part.count
    return messages


def _read_part(queue: OpenQueue, shard_log: ShardLog, name: str, base: int) -> Procedure[Segment]:
    key = join(shard_log.keys.root, name)
    cached = queue.segments.find(key)
    if cached is not None:
        return cached
    found = yield from get(key)
    if isinstance(found, Missing):
        raise Corrupt(f"{key} is missing though a segment names it: somebody else deleted it; restore it")
    lines = Segment(base, found.body, key)
    queue.segments.keep(key, lines)
    return lines
