"""What lies in a shard's log: how far it goes, and how large its segments are, by listing and without reading them.

Procedures, run by a planner on the driver. Reading rows is `bucketmq.spark.read.fetch`.
"""

from __future__ import annotations

from bucketmq.bucket.port import Entry, Missing
from bucketmq.errors import Invalid, NotFound
from bucketmq.log.layout import base_of
from bucketmq.log.segment import Segment
from bucketmq.procedures.claiming.receive import position_of_offset, position_of_time
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.queues import refresh_settings
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.segments.tail import fresh_tail, listed_tail, trim_mark
from bucketmq.procedures.verbs import get, list_page
from bucketmq.spark.options import EARLIEST, ENDING, LATEST, Where
from bucketmq.spark.read.offsets import Position
from bucketmq.spark.read.plan import Piece

LINE_BYTES_MIN = 50
"""No message is a shorter line. A segment that is smaller than its messages could be is a segment of parts."""


def tails(queue: OpenQueue) -> Procedure[dict[int, int]]:
    """The end of every shard as it is now. A GET for each when nothing came; in a folder, a LIST the first time."""
    settings = yield from refresh_settings(queue)
    found = {}
    for shard in range(settings.shards):
        log = queue.log(shard)
        first = log.tail is None and queue.bucket.local
        found[shard] = yield from (listed_tail if first else fresh_tail)(queue, log)
    return found


def position(queue: OpenQueue, where: Where, what: str, *, strict: bool) -> Procedure[Position]:
    """The place in every shard that an option named `what` means. `strict`: offsets that are gone are an error."""
    settings = yield from refresh_settings(queue)
    offsets: dict[int, int] = {}
    bases: dict[int, int] = {}
    if isinstance(where, dict) and any(shard >= settings.shards for shard in where):
        raise Invalid(f"{what} names shard {max(where)}, and {queue.name!r} has {settings.shards} shards, from 0 on")
    for shard in range(settings.shards):
        log = queue.log(shard)
        if where == LATEST or (isinstance(where, dict) and shard not in where and what == ENDING):
            # A read up to the end lists the segments anyway; one that begins there does not.
            end_of = listed_tail if what == ENDING else fresh_tail
            offset = base = yield from end_of(queue, log)
        elif where == EARLIEST or (isinstance(where, dict) and shard not in where):
            offset = base = yield from trim_mark(log)
        elif isinstance(where, dict):
            offset, base = yield from position_of_offset(queue, log, where[shard])
            if offset < where[shard]:
                raise Invalid(f"{what} says {where[shard]} for shard {shard}, which ends at {offset}")
            if offset > where[shard] and strict:
                raise NotFound(
                    f"{what} says {where[shard]} for shard {shard}, which begins at {offset} by now: the rest was "
                    "trimmed; begin there, or set failOnDataLoss to false"
                )
        else:
            assert not isinstance(where, str)
            offset, base = yield from position_of_time(queue, log, where)
        offsets[shard] = offset
        if base != offset:
            bases[shard] = base
    return Position(queue.name, offsets, bases)


def survey(queue: OpenQueue, shard: int, base: int, end: int) -> Procedure[list[Piece]]:
    """The pieces of a shard from the segment at `base` up to offset `end`. What was deleted is missing.

    A GET of the trim mark, one LIST for every thousand segments, one GET for each segment of parts.
    """
    entries: list[Entry] = []
    log = queue.log(shard)
    after = log.key(base - 1) if base else ""
    while base < end:
        page = yield from list_page(log.keys.log(shard), after=after)
        entries += (entry for entry in page.entries if base_of(entry.key) < end)
        if not page.more or base_of(page.entries[-1].key) >= end:
            break
        after = page.entries[-1].key
    low = yield from trim_mark(log)
    if low <= base < end and (not entries or base_of(entries[0].key) > base):
        # An offset inside a segment whose base the caller does not know: a few more LISTs find it.
        _, containing = yield from position_of_offset(queue, log, base)
        if containing < base:
            return (yield from survey(queue, shard, containing, end))
    pieces: list[Piece] = []
    ends = [*(base_of(entry.key) for entry in entries[1:]), end] if entries else []
    for entry, its_end in zip(entries, ends, strict=True):
        its_base = base_of(entry.key)
        if its_base >= low:  # what is below is dead, whether or not it is still there
            pieces += yield from _pieces(entry, Piece(shard, its_base, its_base, its_end, entry.size_bytes))
    return pieces


def _pieces(entry: Entry, whole: Piece) -> Procedure[list[Piece]]:
    if whole.size_bytes >= LINE_BYTES_MIN * whole.count:
        return [whole]
    found = yield from get(entry.key)
    if isinstance(found, Missing):
        return []
    segment = Segment(whole.base, found.body)
    if not segment.parts:
        return [whole]
    pieces, start = [], whole.base
    for part in segment.parts:
        end = min(start + part.count, whole.end)
        if start < end:
            pieces.append(Piece(whole.shard, whole.base, start, end, part.size_bytes * (end - start) // part.count))
        start += part.count
    return pieces
