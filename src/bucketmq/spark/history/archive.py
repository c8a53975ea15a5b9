"""Archiving on executors: what may be archived, the files of an intent, and reading them again.

What is decided lies in the register (`procedures.upkeep.archive`). A file is Parquet, made in memory and created
through the store port, so it can lie in any bucket; its name and its rows follow from the intent and the log alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import msgspec
import pyarrow as pa

from bucketmq.bucket.port import Missing
from bucketmq.errors import Corrupt, NotFound
from bucketmq.log.layout import base_of
from bucketmq.log.segment import Segment
from bucketmq.procedures.claiming.receive import position_of_time
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.requests import Now, Procedure
from bucketmq.procedures.segments.tail import TRIM_GUARD_SECONDS, listed_tail, trim_mark
from bucketmq.procedures.tables.parquet import from_parquet, to_parquet
from bucketmq.procedures.upkeep.archive import (
    Archive,
    ArchivedFile,
    Intent,
    Spans,
    archived_files,
    begin,
    intend,
    read_archive,
)
from bucketmq.procedures.upkeep.trim import lowest_needed
from bucketmq.procedures.verbs import create_named, get, list_page
from bucketmq.spark.history.records import (
    BATCH_BYTES,
    ERROR_CHARS_MAX,
    SCHEMA,
    Death,
    Placed,
    day_of,
    died_of,
    placed,
    record_batch,
)
from bucketmq.spark.history.standing import DEAD, DONE, EXPIRED, Standing, inside, settled_below, standings
from bucketmq.spark.opened import opened
from bucketmq.spark.options import Place
from bucketmq.spark.read.fetch import Fetcher
from bucketmq.spark.read.plan import Piece, between, gaps, grouped
from bucketmq.spark.read.survey import survey

FILE_BYTES = 32 << 20
"""A file is closed when so many bytes of lines went into it; as Parquet it is a fraction of that."""

ROUND_BYTES = 4 << 30
"""An intent covers no more of the log than this, so that what a driver must know of it stays small."""

CLOCKS_SECONDS = 60.0
"""A store is many machines, and their clocks need not agree to the second."""

NOTHING_MEASURED: Mapping[Piece, Piece | None] = MappingProxyType({})

Ranges = Mapping[int, tuple[int, int]]
"""Shard -> offsets, from and up to, not included."""

Deaths = dict[tuple[int, int], list[Death]]
"""By the shard and offset of the message that died."""


class Work(msgspec.Struct, frozen=True):
    """What one task archives: some offsets of one shard."""

    place: Place
    shard: int
    start: int
    end: int
    pieces: tuple[Piece, ...]
    subscriptions: tuple[str, ...]
    unsettled: dict[str, Spans]
    deaths: Deaths
    file_bytes: int


class Made(msgspec.Struct, frozen=True):
    """What a task archived."""

    files: int
    rows: int
    size_bytes: int


def prepare(queue: OpenQueue, *, file_bytes: int = FILE_BYTES, round_bytes: int = ROUND_BYTES) -> Procedure[Archive]:
    """The register with an intent: the one that was left, or a new one. Without one there is nothing to archive."""
    archive = yield from begin(queue)
    if archive.intent is not None:
        return archive
    shards = queue.settings.shards
    needed = yield from lowest_needed(queue, shards)
    how = yield from standings(queue)
    ends: dict[int, int] = {}
    unsettled: dict[str, dict[int, Spans]] = {}
    for shard in range(shards):
        start = archive.watermark.get(shard, 0)
        end = yield from _end(queue, shard, start, needed.get(shard), settled_below(how, shard))
        if end <= start:
            continue
        end = yield from _within(queue, shard, start, end, round_bytes // shards)
        if end <= start:
            continue
        ends[shard] = end
        for name, its in how.items():
            left = its.get(shard, Standing()).unsettled(end)
            if any(stop > start for _, stop in left):
                unsettled.setdefault(name, {})[shard] = tuple((max(a, start), b) for a, b in left if b > start)
    if not ends:
        return archive
    return (yield from intend(queue, Intent(ends, tuple(sorted(how)), file_bytes, unsettled)))


def _end(queue: OpenQueue, shard: int, start: int, needed: int | None, settled: int | None) -> Procedure[int]:
    """Up to where a shard may be archived: what nobody needs any more, and what has expired."""
    if needed is None or settled is None:
        # Without a subscription only readers by offset can hold messages back.
        end: int = yield from listed_tail(queue, queue.log(shard))
        return end if needed is None else min(needed, end)
    return max(min(needed, settled), (yield from _expired_below(queue, shard, start)))


def _expired_below(queue: OpenQueue, shard: int, start: int) -> Procedure[int]:
    """The end of the last segment that trimming would drop whether it was read or not."""
    settings = queue.settings
    if not settings.expire_seconds:
        return 0
    keep = max(settings.keep_seconds, TRIM_GUARD_SECONDS, settings.dedup_seconds + TRIM_GUARD_SECONDS)
    before: float = (yield from Now()) - max(settings.expire_seconds, keep)
    position, _ = yield from position_of_time(queue, queue.log(shard), before)
    return position if position > start else 0


def _within(queue: OpenQueue, shard: int, start: int, end: int, bytes_max: int) -> Procedure[int]:
    """The last boundary of segments up to `end` that keeps within so many bytes; one segment at least."""
    log = queue.log(shard)
    tail = yield from listed_tail(queue, log)
    after = log.key(start - 1) if start else ""
    reached, size = start, 0
    while True:
        page = yield from list_page(log.keys.log(shard), after=after)
        for entry in page.entries:
            base = base_of(entry.key)
            if base > end:
                return reached
            if size >= bytes_max and base > start:
                return base
            reached = max(reached, base)
            size += entry.size_bytes
        if not page.more:
            return end if end >= tail else reached
        after = page.entries[-1].key


def ranges_of(archive: Archive) -> Ranges:
    """The offsets of each shard, from and up to, that the intent is about."""
    intent = archive.intent
    ends = intent.ends if intent is not None else {}
    starts = {shard: archive.watermark.get(shard, 0) for shard in ends}
    return {shard: (starts[shard], end) for shard, end in sorted(ends.items()) if starts[shard] < end}


def stored_since(queue: OpenQueue, ranges: Ranges) -> Procedure[float]:
    """A time before which nothing of these ranges was stored. One LIST of one entry for each shard."""
    times = []
    for shard, (start, _) in ranges.items():
        log = queue.log(shard)
        page = yield from list_page(log.keys.log(shard), after=log.key(start - 1) if start else "", limit=1)
        times += [entry.stored_at for entry in page.entries]
    return min(times, default=0.0) - CLOCKS_SECONDS


def pieces_of(queue: OpenQueue, archive: Archive) -> Procedure[dict[int, list[Piece]]]:
    """What of the log the intent is about, as listings tell it."""
    found = {}
    for shard, (start, end) in ranges_of(archive).items():
        found[shard] = between((yield from survey(queue, shard, start, end)), start, end)
    return found


def works(
    place: Place,
    archive: Archive,
    pieces: Mapping[int, Sequence[Piece]],
    deaths: Deaths,
    measured: Mapping[Piece, Piece | None] = NOTHING_MEASURED,
) -> tuple[list[Work], dict[int, Spans]]:
    """The tasks of an intent, and what of it is in none of the pieces, as they were `measured` if they were.

    Tasks are cut by what listings tell in any case, so that files which are there already are made again and no others.
    """
    intent = archive.intent
    assert intent is not None
    found: list[Work] = []
    gone: dict[int, Spans] = {}
    for shard, (start, end) in ranges_of(archive).items():
        there = [each for piece in pieces[shard] if (each := measured.get(piece, piece)) is not None]
        lost = tuple((gap.start, gap.end) for gap in gaps(shard, there, start, end))
        if lost:
            gone[shard] = lost
        places = sorted(offset for its, offset in deaths if its == shard)
        for listed in grouped(pieces[shard], intent.file_bytes):
            group = [each for piece in listed if (each := measured.get(piece, piece)) is not None]
            if not group:
                continue
            first, last = group[0].start, group[-1].end
            dead = places[bisect_left(places, first) : bisect_left(places, last)]
            found.append(
                Work(
                    place=place,
                    shard=shard,
                    start=first,
                    end=last,
                    pieces=tuple(group),
                    subscriptions=intent.subscriptions,
                    unsettled={name: its[shard] for name, its in intent.unsettled.items() if shard in its},
                    deaths={(shard, offset): deaths[shard, offset] for offset in dead},
                    file_bytes=intent.file_bytes,
                )
            )
    return found, gone


def lost_of(queue: OpenQueue, gone: Mapping[int, Spans], *, skip: bool) -> Procedure[dict[int, Spans]]:
    """What of it is gone though trimming did not pass it; that is an error unless it is to be skipped. Some GETs."""
    found: dict[int, Spans] = {}
    for shard, spans in gone.items():
        low = yield from trim_mark(queue.log(shard))
        lost = tuple((max(start, low), end) for start, end in spans if end > low)
        if lost and not skip:
            raise NotFound(
                f"offsets {lost[0][0]} to {lost[0][1] - 1} of shard {shard} of queue {queue.name!r} are gone though "
                "they were neither trimmed nor archived; restore them, or archive without them (skip_lost)"
            )
        if lost:
            found[shard] = lost
    return found


def measured(asked: tuple[Place, Piece]) -> Piece | None:
    """A piece as it really is: a listing cannot tell a large segment from one whose neighbour is lost. One GET."""
    place, piece = asked
    here = opened(place)
    found = here.run(get(here.queue.keys.segment(piece.shard, piece.base)))
    if isinstance(found, Missing):
        return None
    end = min(piece.end, Segment(piece.base, found.body).end)
    return piece.cut(piece.start, end) if piece.start < end else None


def make_files(work: Work) -> Made:
    """Write the files of some offsets, one for each day. On an executor; done again it changes nothing."""
    here = opened(work.place)
    fetcher = Fetcher(here, strict=True)
    files = rows = size = 0
    try:
        for start, end, group in _lots(work, placed(fetcher.chunks(work.pieces))):
            for date, table in _by_day(work, fetcher, group).items():
                body = to_parquet(table)
                here.run(create_named(here.queue.keys.archived_file(date, work.shard, start, end), body))
                files, rows, size = files + 1, rows + table.num_rows, size + len(body)
    finally:
        fetcher.close()
    return Made(files, rows, size)


def _lots(work: Work, rows: Iterator[Placed]) -> Iterator[tuple[int, int, list[Placed]]]:
    """Rows that go into one file, and the offsets it covers. Cut by size, as lines and large bodies tell it."""
    start, size = work.start, 0
    lot: list[Placed] = []
    for row in rows:
        if lot and size + row.size_bytes > 2 * work.file_bytes:
            yield start, row.offset, lot
            start, size, lot = row.offset, 0, []
        lot.append(row)
        size += row.size_bytes
    if lot:
        yield start, work.end, lot


def _by_day(work: Work, fetcher: Fetcher, lot: Sequence[Placed]) -> dict[str, pa.Table]:
    by_day: dict[str, list[Placed]] = {}
    for row in lot:
        by_day.setdefault(day_of(row.line), []).append(row)
    tables = {}
    for date, rows in sorted(by_day.items()):
        made = [_records(work, fetcher, group) for group in grouped(rows, BATCH_BYTES)]
        tables[date] = pa.Table.from_batches(made, SCHEMA)
    return tables


def _records(work: Work, fetcher: Fetcher, rows: Sequence[Placed]) -> pa.RecordBatch:
    deaths = [work.deaths.get((row.shard, row.offset), []) for row in rows]
    outcomes = [_outcomes(work, row, its) for row, its in zip(rows, deaths, strict=True)]
    attempts = [{death.subscription: death.attempts for death in its} for its in deaths]
    return record_batch(rows, fetcher, outcomes, attempts, deaths)


def _outcomes(work: Work, row: Placed, deaths: Sequence[Death]) -> dict[str, str]:
    to = row.line.to
    if row.line.fence is not None:
        return {}
    names = work.subscriptions if to is None else tuple(name for name in work.subscriptions if name == to)
    dead = {death.subscription for death in deaths}
    return {
        name: DEAD if name in dead else EXPIRED if inside(work.unsettled.get(name, ()), row.offset) else DONE
        for name in (*names, *sorted(dead.difference(names)))
    }


def read_file(place: Place, file: ArchivedFile) -> pa.Table:
    """The rows of an archived file. On an executor. One GET."""
    here = opened(place)
    found = here.run(get(file.key))
    if isinstance(found, Missing):
        raise NotFound(f"{file.key} is gone though the register names its offsets; restore it from a copy")
    try:
        return from_parquet(found.body, schema=SCHEMA)
    except (pa.ArrowException, OSError) as error:
        raise Corrupt(f"{file.key} is not a file of an archive ({error}); restore it from a copy") from None


class Grave(msgspec.Struct, frozen=True):
    """Where dead letters are looked for: pieces of the log of dead letters, or a file of its archive."""

    place: Place
    pieces: tuple[Piece, ...] = ()
    file: ArchivedFile | None = None
    ranges: Ranges = {}
    """Of the messages whose dead letters are wanted."""


def graves(dead: OpenQueue, place: Place, ranges: Ranges, since: float) -> Procedure[list[Grave]]:
    """Where the dead letters of messages in these ranges can be, the oldest of which was stored at `since`.

    A dead letter is younger than its message, and its archived file is younger still.
    """
    archive = yield from read_archive(dead)
    found = []
    for file in (yield from archived_files(dead, archive)):
        if file.stored_at >= since:
            found.append(Grave(place, file=file, ranges=ranges))
    for shard in range(dead.settings.shards):
        position, _ = yield from position_of_time(dead, dead.log(shard), since)
        start = max(position, archive.watermark.get(shard, 0))
        end = yield from listed_tail(dead, dead.log(shard))
        pieces = yield from survey(dead, shard, start, end)
        found += [Grave(place, tuple(group), ranges=ranges) for group in grouped(pieces, FILE_BYTES)]
    return found


def dig(grave: Grave) -> list[tuple[tuple[int, int], Death]]:
    """The dead letters there, by where they died. On an executor."""
    return [(where, death) for where, death in _deaths(grave) if _wanted(grave, where)]


def _wanted(grave: Grave, where: tuple[int, int]) -> bool:
    start, end = grave.ranges.get(where[0], (0, 0))
    return start <= where[1] < end


def _deaths(grave: Grave) -> Iterator[tuple[tuple[int, int], Death]]:
    if grave.file is not None:
        for died in read_file(grave.place, grave.file).column("died").to_pylist():
            if died is not None:
                error = died["failures"][-1]["error"][:ERROR_CHARS_MAX] if died["failures"] else ""
                at = died["at"].isoformat(timespec="milliseconds").replace("+00:00", "Z")
                yield (died["shard"], died["offset"]), Death(died["subscription"], at, died["attempts"], error)
        return
    fetcher = Fetcher(opened(grave.place), strict=True)
    try:
        for row in placed(fetcher.chunks(grave.pieces)):
            found = died_of(row.line)
            if found is not None:
                yield found
    finally:
        fetcher.close()
