"""The end of a log that may not be the end: a head that waits where a segment is gone, or beyond its log.

A receiver that finds nothing at its head's position takes the shard to be empty. That is wrong where somebody deleted a
segment (a hand, a lifecycle rule) or restored the log without the heads. So the true end is looked up when a process
first finds a shard empty, and every `END_SECONDS` after that. What lies behind a gap is delivered, the loss is recorded
by offset (`segments.losses`) and logged. A head beyond the end, or inside a segment, is `Corrupt`: a person decides.

Offsets are dense, so a segment behind a missing one proves that the missing one existed; it was trimmed or is lost.
"""

from __future__ import annotations

import logging

from bucketmq.errors import Corrupt
from bucketmq.log.layout import base_of
from bucketmq.procedures.heads.desk import Desk, commit, load
from bucketmq.procedures.requests import Now, Procedure
from bucketmq.procedures.segments.losses import record_loss
from bucketmq.procedures.segments.messages import read_segment
from bucketmq.procedures.segments.tail import ahead_of_log, listed_tail, trim_mark
from bucketmq.procedures.verbs import list_all
from bucketmq.queue.commands import Skip
from bucketmq.queue.head import Head

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
    logger.error(
        "action=messages_lost queue=%s shard=%d start=%d stop=%d subscription=%s: the segment is gone though nobody "
        "trimmed it; what lies behind it is delivered",
        desk.queue.name,
        desk.shard,
        head.next,
        behind,
        desk.subscription,
    )
    yield from record_loss(desk.queue.keys, desk.shard, head.next, behind)
    yield from commit(desk, Skip(head.next, behind))
    return True
