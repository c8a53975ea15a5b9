"""Messages that are gone: a head that waits where a segment is missing or beyond its log, or that lists what is gone.

A receiver that finds nothing at its head's position takes the shard to be empty. That is wrong where somebody deleted a
segment (a hand, a lifecycle rule) or restored the log without the heads. So the true end is looked up when a process
first finds a shard empty, and every `END_SECONDS` after that. What lies behind a gap is delivered, the loss is recorded
by offset (`segments.losses`) and logged. A head beyond the end, or inside a segment, is `Corrupt`: a person decides.

Offsets are dense, so a segment behind a missing one proves that the missing one existed; it was trimmed or is lost. So
does a head that lists offsets of it. The mark moves before trimming deletes, so what is missing at or above it is lost.
"""

from __future__ import annotations

import logging

import msgspec

from bucketmq.errors import Corrupt
from bucketmq.log.layout import base_of
from bucketmq.procedures.heads.desk import Desk, Settlement, commit, load
from bucketmq.procedures.requests import Now, Procedure
from bucketmq.procedures.segments.losses import record_loss
from bucketmq.procedures.segments.messages import read_segment, read_span
from bucketmq.procedures.segments.tail import ahead_of_log, listed_tail, trim_mark
from bucketmq.procedures.verbs import list_all
from bucketmq.queue.commands import Ack, Retry, Skip
from bucketmq.queue.head import Head, Held, Lease
from bucketmq.queue.message import Message

replace = msgspec.structs.replace

END_SECONDS = 300.0
"""How often an idle process looks where the log really ends."""

logger = logging.getLogger("bucketmq")


def passed_gap(desk: Desk, head: Head) -> Procedure[bool]:
    """Whether there is more at or behind the head's position than it seemed: look again.

    Usually no request. When it is time to look: one LIST and a few GETs; when there is a gap, also a LIST of the whole
    log, two PUTs and a GET.
    """
    shard_log = desk.log
    now = yield from Now()
    suspicious = shard_log.tail is not None and shard_log.tail > head.segment
    if not suspicious and now - shard_log.end_at < END_SECONDS:
        return False
    shard_log.end_at = now
    if not desk.queue.lists_in_order and not desk.queue.bucket.local and not suspicious:
        return False  # listing would cost more the longer the log is; doctor --deep does it
    end = yield from listed_tail(desk.queue, shard_log)
    if end < head.next:
        if (yield from load(desk)).next > end:
            raise Corrupt(ahead_of_log(desk.key, head.next, end))
        return True
    if end == head.segment:
        return False
    if (yield from read_segment(desk.queue, shard_log, head.segment)) is not None:
        return True  # it has just been sent
    if (yield from trim_mark(shard_log)) > head.segment:
        desk.doubts_trim = True
        return True
    return (yield from _pass(desk, head))


def _pass(desk: Desk, head: Head) -> Procedure[bool]:
    entries, _ = yield from list_all(desk.log.keys.log(desk.shard))
    bases = sorted(base_of(entry.key) for entry in entries)
    before = max((base for base in bases if base < head.segment), default=None)
    behind = min((base for base in bases if base > head.segment), default=None)
    if behind is None or head.segment in bases:
        return True
    segment = None if before is None else (yield from read_segment(desk.queue, desk.log, before))
    if segment is not None and segment.end > head.segment:
        raise Corrupt(
            f"{desk.key} reads from offset {head.segment}, which lies inside the segment at {before}; "
            "run bucketmq doctor --deep, then --mend"
        )
    yield from _record(desk, head.next, behind)
    yield from commit(desk, Skip(head.next, behind))
    return True


def read_held(desk: Desk, lease: Lease) -> Procedure[tuple[Lease, list[Message]]]:
    """The messages of a lease, and the part of it that they are: without those that are lost, or cannot be read.

    A loss is recorded and settled, and what cannot be read is tried again later, by itself: its neighbours are handed
    out. `Corrupt` if nothing else was claimed. One GET for each segment that is not cached; where something is missing
    also one of the trim mark, and for a loss two PUTs and a GET.
    """
    readable: list[Held] = []
    messages: list[Message] = []
    trouble: Corrupt | None = None
    for held in lease.held:
        try:
            messages += yield from read_span(desk.queue, desk.log, held.span)
        except Corrupt as error:
            trouble = (yield from _set_aside(desk, lease, held, error)) or trouble
        else:
            readable.append(held)
    if trouble is not None and not readable:
        raise trouble
    return replace(lease, held=tuple(readable)), messages


def _set_aside(desk: Desk, lease: Lease, held: Held, error: Corrupt) -> Procedure[Corrupt | None]:
    """None if the messages are gone, which is recorded unless they were trimmed; otherwise why they cannot be read."""
    span = held.span
    gone = (yield from read_segment(desk.queue, desk.log, span.base)) is None
    if gone and (yield from trim_mark(desk.log)) > span.base:
        desk.doubts_trim = True  # trimmed: the next claim jumps over it
        return None
    if gone:
        yield from _record(desk, span.start, span.stop)
        yield from commit(desk, Ack(lease.number, (span,)))
        return None
    logger.error("action=messages_unreadable head=%s start=%d stop=%d %s", desk.key, span.start, span.stop, error)
    delay, offsets = desk.queue.settings.backoff.seconds(held.attempt, 0.5), tuple(range(span.start, span.stop))

    def retry(record: str) -> Retry:
        return Retry(lease.number, (span,), delay, record)

    desk.add(Settlement(offsets, retry, str(error), held.attempt, lambda _: None))
    return error


def _record(desk: Desk, start: int, stop: int) -> Procedure[None]:
    logger.error(
        "action=messages_lost queue=%s shard=%d start=%d stop=%d subscription=%s: the segment is gone though nobody "
        "trimmed it; other messages are delivered",
        desk.queue.name,
        desk.shard,
        start,
        stop,
        desk.subscription,
    )
    yield from record_loss(desk.queue.keys, desk.shard, start, stop)
