"""Reading: what to read is decided on the driver, by offsets; rows are read on the executors.

A reader is pickled and made again for every step, so it holds options only. What a planner has learnt about the log is
kept beside them and left behind when it is pickled: losing it costs a listing.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from bucketmq.errors import BucketMQError, Corrupt, Invalid, NotFound, Unavailable
from bucketmq.pipeline.bodies import RESCUED, BodyReader
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.requests import NewId, Procedure
from bucketmq.procedures.sending.delayed import stage
from bucketmq.procedures.upkeep.readers import begin_reader, note_progress, read_reader
from bucketmq.spark.opened import Opened, opened
from bucketmq.spark.options import ASKED_FOR, COLUMNS, ENDING, STARTING, SourceOptions
from bucketmq.spark.read.fetch import Fetcher, lost_text
from bucketmq.spark.read.offsets import Position, from_json, share_rows
from bucketmq.spark.read.plan import Gap, Piece, between, end_by_bytes, gaps, pack, partition_count
from bucketmq.spark.read.rows import RowMaker
from bucketmq.spark.read.survey import position, survey, tails
from bucketmq.spark.variants import check_no_variant
from bucketmq.spark.worker import settle_in

logger = logging.getLogger("bucketmq.spark")

replace = msgspec.structs.replace

NOTE_SECONDS = 5.0
"""A query tells the queue how far it has come so often, at most: one PUT, and one GET before it."""


class Pieces(InputPartition):
    """What one task reads: places in the log, and nothing about where the bucket is or how to get in."""

    def __init__(self, pieces: tuple[Piece, ...]) -> None:
        super().__init__([(piece.shard, piece.base, piece.start, piece.end, piece.size_bytes) for piece in pieces])

    @property
    def pieces(self) -> list[Piece]:
        return [Piece(*numbers) for numbers in self.value]


class _Reader:
    """What batch and stream readers have in common: rows of pieces, and pieces of positions."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        _check_schema(schema)

    def __reduce__(self) -> Any:
        return type(self), (self._options, self._schema)

    @property
    def _opened(self) -> Opened:
        return opened(self._options.place)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, as Arrow batches."""
        settle_in()
        assert isinstance(partition, Pieces)
        schema = to_arrow_schema(self._schema, timezone="UTC")
        has_bodies = RESCUED in schema.names
        bodies = BodyReader(schema.field("body").type) if has_bodies else None
        fetcher = Fetcher(self._opened, strict=self._options.fail_on_data_loss)
        try:
            rows = RowMaker(schema, fetcher, bodies, self._options.subscription)
            yield from rows.batches(fetcher.chunks(partition.pieces))
        finally:
            fetcher.close()

    def _partitions(self, pieces: Sequence[Piece]) -> list[Pieces]:
        wanted, worth_rows = self._options.partitions_min, self._options.partition_rows
        count = partition_count(pieces, os.cpu_count() or 1, wanted=wanted, worth_rows=worth_rows)
        return [Pieces(_joined(group)) for group in pack(pieces, count)]

    def _survey(self, start: Position, end: Position) -> list[Piece]:
        """The pieces between two positions. A function of the two and of what is in the bucket, which never changes
        but by trimming."""
        found: list[Piece] = []
        for shard in sorted(end.shards):
            if start.offset(shard) < end.offset(shard):
                pieces = self._opened.run(survey(self._opened.queue, shard, start.base(shard), end.offset(shard)))
                found += self._cut(shard, pieces, start.offset(shard), end.offset(shard))
        return found

    def _cut(self, shard: int, pieces: Sequence[Piece], start: int, end: int) -> list[Piece]:
        wanted = between(pieces, start, end)
        for gap in gaps(shard, wanted, start, end):
            self._lost(gap)
        return wanted

    def _lost(self, gap: Gap) -> None:
        what = f"offsets {gap.start} to {gap.end - 1} of shard {gap.shard} of queue {self._options.place.queue!r}"
        if self._options.fail_on_data_loss:
            raise NotFound(lost_text(what))
        logger.warning("%s are gone; going on without them", what)


class BatchReader(_Reader, DataSourceReader):
    """A range of the log as it is when the query begins."""

    def partitions(self) -> Sequence[InputPartition]:
        options, queue = self._options, self._opened.queue
        strict = options.fail_on_data_loss
        start = self._opened.run(position(queue, options.starting, STARTING, strict=strict))
        end = self._opened.run(position(queue, options.ending, ENDING, strict=False))
        # Spark wants a partition even of nothing.
        return self._partitions(self._survey(start, end)) or [Pieces(())]


class StreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The log as it grows. Progress lives in Spark's checkpoint; the queue learns of it a few seconds later
    (`upkeep.readers`).

    A query with the option `subscription` is a reader of this name, and trimming leaves what it still needs. Without,
    it gets a name for its lag's sake, which travels in its offsets, and holds nothing back.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._tails: dict[int, int] = {}
        self._asked_at = -1.0
        self._target: dict[int, int] | None = None
        self._index: dict[int, list[Piece]] = {}
        self._initial: Position | None = None
        self._begun = False
        self._told: Position | None = None
        """How far the queue knows the query to be."""
        self._told_at = -NOTE_SECONDS
        self._unnamed: str | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without checkpoint begins: where its reader is, if it has a name that the queue knows."""
        if self._initial is None:  # Spark asks twice, and must get the same answer
            self._initial = self._opened.run(_begin(self._opened.queue, self._options))
            self._begun = True
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.rows_max is not None:
            return ReadMaxRows(self._options.rows_max)
        if self._options.bytes_max is not None:
            return ReadMaxBytes(self._options.bytes_max)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._asked_at = -1.0
        self._target = dict(self._ask())

    def reportLatestOffset(self) -> dict[str, Any] | None:
        known = Position(self._options.place.queue, dict(self._tails), reader=self._unnamed)
        return known.to_json() if self._tails else None

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begin = from_json(start, self._options.place.queue)
        self._hold(begin)
        self._tell(begin)
        if begin.reader is None and self._options.subscription is None:
            # It had a name of its own until now, or its checkpoint was made again. Told when a batch is done.
            begin = replace(begin, reader=self._unnamed or self._opened.run(_new_name()))
        self._unnamed = begin.reader
        ends = self._ask() if self._target is None else self._target
        for shard, end in ends.items():
            if end < begin.offset(shard):
                raise Corrupt(_ahead_of_log(begin, shard, end))
        ends = {**begin.shards, **ends}
        new = {shard: end for shard, end in ends.items() if end > begin.offset(shard)}
        if not new:
            return start
        if isinstance(limit, ReadAllAvailable):
            still = {shard: base for shard, base in begin.bases.items() if shard not in new}
            return Position(begin.queue, ends, still, begin.reader).to_json()
        return self._limited(begin, ends, limit).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, stop = (from_json(each, self._options.place.queue) for each in (start, end))
        self._hold(begin)
        pieces: list[Piece] = []
        for shard in sorted(stop.shards):
            known = self._index.get(shard, [])
            first, last = begin.offset(shard), stop.offset(shard)
            if known and known[0].start <= first and known[-1].end >= last:
                pieces += self._cut(shard, known, first, last)
            else:
                pieces += self._survey(
                    Position(begin.queue, {shard: first}, {shard: begin.base(shard)}),
                    Position(begin.queue, {shard: last}),
                )
            self._index[shard] = [piece for piece in known if piece.end > first]
        return self._partitions(pieces)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: Spark never calls this for the last batch. See `_tell`."""

    def stop(self) -> None:
        """Nothing: Spark does not always call it."""

    def _hold(self, begin: Position) -> None:
        """Make the reader known where it is not: a query that went on from its checkpoint under a new name."""
        if self._options.subscription is None or self._begun:
            return
        try:
            self._opened.run(
                begin_reader(self._opened.queue, self._options.subscription, begin.shards, begin.bases, holds=True)
            )
            self._begun = True
        except Unavailable as error:  # the query can go on; what it needs is not held yet
            logger.warning("reader %s is not known to the queue yet: %s", self._options.subscription, error)

    def _tell(self, reached: Position) -> None:
        """Tell the queue how far the query has come, once in a while. That this fails does not end a query.

        Spark asks for the end of a batch when the one before is in its commit log, and then from where that ended. So
        what lies before is never read again.
        """
        named = self._options.subscription
        name = named or reached.reader
        # A query that ends by itself is not asked again: there is no later.
        soon = self._target is None and time.monotonic() - self._told_at < NOTE_SECONDS
        if name is None or reached == self._told or soon:
            return
        progress = note_progress(self._opened.queue, name, reached.shards, reached.bases, holds=named is not None)
        try:
            if self._opened.run(progress):
                self._told = reached
        except BucketMQError as error:
            logger.warning("the progress of reader %s could not be told: %s", name, error)
        self._told_at = time.monotonic()

    def _ask(self) -> dict[int, int]:
        """The ends of the shards, asked for at most once in `pollInterval`."""
        now = time.monotonic()
        if self._asked_at < 0 or now - self._asked_at >= self._options.poll_seconds:
            try:
                self._opened.run(stage(self._opened.queue))  # what was delayed and is due; workers do the same
                self._tails = self._opened.run(tails(self._opened.queue))
            except Unavailable as error:
                if not self._tails:
                    raise
                # An exception would end the query; that nothing new is known does not.
                logger.warning("the store does not answer, going on with what is known: %s", error)
            self._asked_at = time.monotonic()
        return self._tails

    def _limited(self, begin: Position, ends: dict[int, int], limit: ReadLimit) -> Position:
        """How far one batch goes: never further than rows and bytes allow."""
        rows = self._options.rows_max if not isinstance(limit, ReadMaxRows) else limit.max_rows
        size = self._options.bytes_max if not isinstance(limit, ReadMaxBytes) else limit.max_bytes
        pieces: dict[int, list[Piece]] = {}
        for shard, end in ends.items():
            if end > begin.offset(shard):
                known = self._known(shard, begin.base(shard), begin.offset(shard), end)
                pieces[shard] = self._cut(shard, known, begin.offset(shard), end)
        stops = {shard: begin.offset(shard) for shard in ends}
        stops |= {shard: ends[shard] for shard, its in pieces.items() if not its}  # all gone: nothing to wait for
        available = {shard: its[-1].end - its[0].start for shard, its in pieces.items() if its}
        shares = available if rows is None else share_rows(available, rows)
        weights = {shard: sum(piece.size_bytes for piece in pieces[shard]) for shard in available}
        for shard, share in shares.items():
            first = pieces[shard][0].start
            stop = first + share if share else begin.offset(shard)
            if size is not None and share:
                budget = size * weights[shard] // max(1, sum(weights.values()))
                stop = min(stop, end_by_bytes(pieces[shard], budget) or stop)
            stops[shard] = stop
        inside = {
            shard: piece.base
            for shard, its in pieces.items()
            for piece in its
            if piece.base < stops[shard] < ends[shard] and piece.start <= stops[shard] < piece.end
        }
        for shard, stop in stops.items():  # a shard that does not move keeps the base it had
            if stop == begin.offset(shard) and shard in begin.bases:
                inside[shard] = begin.bases[shard]
        return Position(begin.queue, stops, inside, begin.reader)

    def _known(self, shard: int, base: int, start: int, end: int) -> list[Piece]:
        """The pieces of a shard up to its end; listed from where they were last known to."""
        known = self._index.get(shard, [])
        if not known or known[0].start > start:
            known = []
        first = known[-1].end if known else base
        if first < end:
            known = [*known, *self._opened.run(survey(self._opened.queue, shard, first, end))]
            self._index[shard] = known
        return known


def _ahead_of_log(begin: Position, shard: int, end: int) -> str:
    return (
        f"the checkpoint says that queue {begin.queue!r} was read up to offset {begin.offset(shard)} of shard {shard}, "
        f"but its log ends at {end}: the checkpoint belongs to another bucket, or the bucket was restored or emptied "
        "since; begin with a new checkpoint"
    )


def _begin(queue: OpenQueue, options: SourceOptions) -> Procedure[Position]:
    """The place where a query begins; if it has a name, held from here on."""
    if options.subscription is not None:
        known = yield from read_reader(queue, options.subscription)
        if known is not None:
            return Position(queue.name, known.offsets, known.bases)
    found = yield from position(queue, options.starting, STARTING, strict=options.fail_on_data_loss)
    if options.subscription is None:  # told with its first batch: Spark may ask, and then begin elsewhere
        return Position(queue.name, found.shards, found.bases, (yield from _new_name()))
    begun = yield from begin_reader(queue, options.subscription, found.shards, found.bases, holds=True)
    return Position(queue.name, begun.offsets, begun.bases)


def _new_name() -> Procedure[str]:
    """For a query that has none."""
    return f"query-{(yield from NewId())}"


def _joined(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Neighbours in one segment made one, so that it is fetched once."""
    joined: list[Piece] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if last and (last.shard, last.base, last.end) == (piece.shard, piece.base, piece.start):
            joined[-1] = Piece(piece.shard, piece.base, last.start, piece.end, last.size_bytes + piece.size_bytes)
        else:
            joined.append(piece)
    return tuple(joined)


def _check_schema(schema: StructType) -> None:
    """A user may have given another schema than ours: fewer columns are fine, others are not."""
    types = COLUMNS | ASKED_FOR
    if "body" in schema.fieldNames():
        types[RESCUED] = "string"
    rescues = RESCUED in schema.fieldNames()
    check_no_variant(schema, "leave bodySchema out and use parse_json(body)")
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if kind != types.get(field.name) and not (field.name == "body" and rescues):
            raise Invalid(
                f"the source has no column {field.name!r} of type {kind}; it has "
                f"{', '.join(f'{name} {type_}' for name, type_ in COLUMNS.items())}. "
                "Use the options columns and bodySchema instead of schema(...)"
            )
