"""Reading a part of a long log: from a time on, or its last messages, at a cost that does not grow with the log.

Segments are listed from an offset on, a page at a time, so a time is found by halving. What the messages mean does not
belong here.
"""

from __future__ import annotations

from bucketmq.bucket.port import Entry
from bucketmq.errors import BucketMQError
from bucketmq.log.layout import base_of
from bucketmq.procedures.abreast import abreast
from bucketmq.procedures.claiming.browse import read_on
from bucketmq.procedures.opened import OpenQueue, ShardLog
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.segments.tail import fresh_tail, trim_mark
from bucketmq.procedures.verbs import list_page
from bucketmq.queue.message import Message

AT_A_TIME = 50


def first_since(queue: OpenQueue, shard: int, at: float) -> Procedure[int]:
    """The base of the first segment stored at or after a time, or the end of the log.

    One LIST where the log is short; one more for each halving of what a page of 999 segments does not show.
    """
    log = queue.log(shard)
    low, high = (yield from trim_mark(log)), (yield from fresh_tail(queue, log))
    found, probe = high, low
    while low < high:
        entries, more = yield from _page(log, probe)
        inside = [entry for entry in entries if base_of(entry.key) < high]
        if not inside:
            high = probe
        elif inside[0].stored_at >= at:
            found, high = base_of(inside[0].key), probe
        else:
            newer = next((entry for entry in inside if entry.stored_at >= at), None)
            if newer is not None:
                return base_of(newer.key)
            if not more or len(inside) < len(entries):
                return found
            low = base_of(inside[-1].key) + 1
        probe = (low + high) // 2
    return found


def read_from(queue: OpenQueue, shard: int, base: int, segments_max: int) -> Procedure[tuple[list[Message], int]]:
    """The messages of some segments from `base` on, and where to go on. One GET for each, and one at the end."""
    messages: list[Message] = []
    for _ in range(segments_max):
        seen, after = yield from read_on(queue, shard, base)
        if after == base:
            break
        base = after
        messages += [each.message for each in seen]
    return messages, base


def read_last(queue: OpenQueue, shard: int, messages_max: int) -> Procedure[tuple[list[Message], int]]:
    """The last messages of a log, `messages_max` or somewhat more or less, and its end. One LIST for each 999 segments
    and one GET for each, many at a time."""
    log = queue.log(shard)
    low, tail = (yield from trim_mark(log)), (yield from fresh_tail(queue, log))
    start, bases = max(low, tail - messages_max), []
    while start < tail:
        entries, more = yield from _page(log, start)
        bases += [base_of(entry.key) for entry in entries if base_of(entry.key) < tail]
        if not more or not entries:
            break
        start = base_of(entries[-1].key) + 1
    messages: list[Message] = []
    for first in range(0, len(bases), AT_A_TIME):
        read = yield from abreast([read_on(queue, shard, base) for base in bases[first : first + AT_A_TIME]])
        for each in read:
            if isinstance(each, BucketMQError):
                raise each
            messages += [seen.message for seen in each[0]]
    return messages, tail


def _page(log: ShardLog, start: int) -> Procedure[tuple[list[Entry], bool]]:
    """Segments that begin at an offset or behind it."""
    page = yield from list_page(log.keys.log(log.shard), after=log.key(start - 1) if start else "")
    return sorted(page.entries, key=lambda entry: entry.key), page.more
