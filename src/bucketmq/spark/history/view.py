"""A bucket as tables: the records of a queue's log and archive for Spark, and what is joined to make histories of them.

Log and archive are one row of offsets: the archive has those below its watermark, the log those from it on, so a
message that lies in both while trimming is late is one row. Spark asks once for each DataFrame where the cut is; what
was archived and trimmed since then is read from the archive.
What a history promises: `bucketmq.spark.history.tables`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from bucketmq.errors import Invalid, NotFound
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.queues import DELIVERIES, EVENTS, reload_settings
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.segments.tail import listed_tail, trim_mark
from bucketmq.procedures.upkeep.archive import Archive, ArchivedFile, archived_files, read_archive
from bucketmq.queue.settings import DEAD_SUFFIX
from bucketmq.spark.history.archive import read_file
from bucketmq.spark.history.records import BATCH_BYTES, COLUMNS, ERROR_CHARS_MAX, SCHEMA, Placed, placed, record_batch
from bucketmq.spark.history.standing import Standing, Standings, standings
from bucketmq.spark.opened import opened
from bucketmq.spark.options import Place, place_of
from bucketmq.spark.read.fetch import Fetcher
from bucketmq.spark.read.plan import Piece, between, grouped
from bucketmq.spark.read.rows import ROWS_PER_BATCH
from bucketmq.spark.read.survey import survey
from bucketmq.spark.setup.interpreter import use_this_python
from bucketmq.spark.worker import settle_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FORMAT = "bucketmq_history"
LOG, ARCHIVE = "log", "archive"
SHARE_BYTES = 32 << 20
"""About so much of the log, or of the archive's files, is read by one task."""

JOURNAL = """rule string, event string, key string, attempt int, outcome string, at timestamp, happened_at timestamp,
    seconds double, status int, reason string"""


class View:
    """A bucket as tables: histories of its queues, and the records they are made of."""

    def __init__(self, spark: SparkSession, url: str, options: dict[str, str], *, strict: bool) -> None:
        use_this_python(spark)
        spark.dataSource.register(HistorySource)
        self._spark = spark
        self._url = url
        self._options = options
        self._strict = strict

    def history(self, queue: str) -> DataFrame:
        found = self.records(queue).where("fence is null").drop("fence")
        if not queue.endswith(DEAD_SUFFIX):
            found = _with_deaths(found, self.records(queue + DEAD_SUFFIX, must_exist=False))
        if queue == EVENTS:
            found = _with_deliveries(found, self.records(DELIVERIES, must_exist=False))
        return found

    def records(self, queue: str, *, must_exist: bool = True) -> DataFrame:
        """Every line of log and archive, fences included; nothing where there is no queue and none must be."""
        place = place_of(self._url, queue, self._options)  # what is wrong with it is told here and not by Spark
        reader = self._spark.read.format(FORMAT).options(**self._options)
        return (
            reader.option("path", place.url)
            .option("queue", queue)
            .option("strict", str(self._strict).lower())
            .option("mustExist", str(must_exist).lower())
            .load()
        )


def _with_deaths(rows: DataFrame, dead_letters: DataFrame) -> DataFrame:
    """What the dead letters say about messages that are in the log. Archived ones say it themselves."""
    last_error = f"substring(try_element_at(died.failures, -1).error, 1, {ERROR_CHARS_MAX})"
    deaths = (
        dead_letters.where("died is not null")
        .selectExpr(
            "died.shard as its_shard",
            "died.offset as its_offset",
            "struct(died.subscription as subscription, died.at as at, died.attempts as attempts, "
            f"coalesce({last_error}, '') as error) as death",
        )
        .groupBy("its_shard", "its_offset")
        .agg(F.sort_array(F.collect_set("death")).alias("its_deaths"))
    )
    same = [rows["shard"] == F.col("its_shard"), rows["offset"] == F.col("its_offset"), rows["place"] == LOG]
    # A subscription that was started over may bury a message twice; the last time counts.
    names = "array_distinct(transform(its_deaths, each -> each.subscription))"
    last = "element_at(filter(its_deaths, each -> each.subscription = name), -1)"
    changed = {
        "outcomes": f"map_concat(map_filter(outcomes, (name, _) -> not array_contains({names}, name)), "
        f"map_from_arrays({names}, transform({names}, _ -> 'dead')))",
        "attempts": f"map_concat(map_filter(attempts, (name, _) -> not array_contains({names}, name)), "
        f"map_from_arrays({names}, transform({names}, name -> {last}.attempts)))",
        "deaths": "its_deaths",
    }
    columns = [
        F.expr(f"if(its_deaths is null, {name}, {changed[name]})").alias(name) if name in changed else F.col(name)
        for name in rows.columns
    ]
    return rows.join(deaths, same, "left").select(columns)


def _with_deliveries(events: DataFrame, journal: DataFrame) -> DataFrame:
    """The journal's lines about events, under the event's id: a duplicate has the deliveries of the event it
    repeats."""
    attempts = (
        journal.select(F.from_json("body", JOURNAL).alias("line"))
        .where("line.event is not null")
        .selectExpr(
            "line.event as its_event",
            "struct(line.at as at, line.rule as rule, line.attempt as attempt, line.outcome as outcome, "
            "line.seconds as seconds, line.status as status, line.reason as reason) as delivery",
        )
        .groupBy("its_event")
        .agg(F.sort_array(F.collect_list("delivery")).alias("deliveries"))
    )
    id_of = F.get_json_object(events["body"], "$.id")
    return events.join(attempts, id_of == F.col("its_event"), "left").drop("its_event")


class Share(msgspec.Struct, frozen=True):
    """What one task reads: some of the log, or some of the archive's files."""

    pieces: tuple[Piece, ...] = ()
    files: tuple[ArchivedFile, ...] = ()
    standings: dict[str, dict[int, Standing]] = {}


class _Partition(InputPartition):
    def __init__(self, share: Share) -> None:
        super().__init__(msgspec.msgpack.encode(share))

    @property
    def share(self) -> Share:
        return msgspec.msgpack.decode(self.value, type=Share)


class HistorySource(DataSource):
    """The records of one queue, for Spark. `View` joins what else there is to know of them."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return f"{COLUMNS}, place string"

    def reader(self, schema: StructType) -> HistoryReader:
        options = {name.lower(): text for name, text in self.options.items()}
        url, queue = options.pop("path"), options.pop("queue")
        strict, must_exist = options.pop("strict") == "true", options.pop("mustexist") == "true"
        if len(schema.fieldNames()) != len(SCHEMA) + 1:
            raise Invalid("a history has the columns it has; select from it instead of giving a schema")
        return HistoryReader(place_of(url, queue, options), schema, strict=strict, must_exist=must_exist)


class HistoryReader(DataSourceReader):
    """Reads log and archive as they are when a query begins."""

    def __init__(self, place: Place, schema: StructType, *, strict: bool, must_exist: bool) -> None:
        self._place = place
        self._schema = schema
        self._strict = strict
        self._must_exist = must_exist

    def partitions(self) -> Sequence[InputPartition]:
        try:
            here = opened(self._place)
        except NotFound:
            if self._must_exist:
                raise
            return [_Partition(Share())]  # Spark wants a partition even of nothing
        found = [_Partition(share) for share in here.run(shares(here.queue))]
        return found or [_Partition(Share())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        settle_in()
        assert isinstance(partition, _Partition)
        share = partition.share
        schema = to_arrow_schema(self._schema, timezone="UTC")
        for file in share.files:
            for batch in read_file(self._place, file).to_batches(max_chunksize=ROWS_PER_BATCH):
                yield _placed_in(batch, ARCHIVE, schema)
        if not share.pieces:
            return
        here = opened(self._place)
        pieces, moved = here.run(_still_there(here.queue, share.pieces))
        for file, piece in moved:
            for batch in _rows_of(piece, read_file(self._place, file)).to_batches(max_chunksize=ROWS_PER_BATCH):
                yield _placed_in(batch, ARCHIVE, schema)
        fetcher = Fetcher(here, strict=self._strict)
        try:
            for rows in grouped(placed(fetcher.chunks(pieces)), BATCH_BYTES):
                yield _placed_in(_records(rows, fetcher, share.standings), LOG, schema)
        finally:
            fetcher.close()


def _still_there(
    queue: OpenQueue, pieces: Sequence[Piece]
) -> Procedure[tuple[list[Piece], list[tuple[ArchivedFile, Piece]]]]:
    """The pieces that are in the log, and where others are now: a plan may be older than an archive and a trim since.

    A GET of the trim mark; where something was trimmed, one of the register and a LIST of the archive.
    """
    low = yield from trim_mark(queue.log(pieces[0].shard))
    archive = Archive() if pieces[0].base >= low else (yield from read_archive(queue))
    moved = [piece for piece in pieces if piece.base < low and piece.end <= archive.watermark.get(piece.shard, 0)]
    files = (yield from archived_files(queue, archive)) if moved else []
    found = [
        (file, piece)
        for piece in moved
        for file in files
        if file.shard == piece.shard and file.start < piece.end and file.end > piece.start
    ]
    return [piece for piece in pieces if piece not in moved], found


def _rows_of(piece: Piece, table: pa.Table) -> pa.Table:
    offset = table.column("offset")
    return table.filter(pc.and_(pc.greater_equal(offset, piece.start), pc.less(offset, piece.end)))


def shares(queue: OpenQueue) -> Procedure[list[Share]]:
    """Log and archive, each message once, cut into what a task reads. Some LISTs and GETs."""
    yield from reload_settings(queue)
    archive = yield from read_archive(queue)
    starts, archive = yield from _starts(queue, archive)
    how = yield from standings(queue)
    files = sorted((yield from archived_files(queue, archive)), key=lambda file: file.key)
    found = [Share(files=tuple(group)) for group in grouped(files, SHARE_BYTES)]
    for shard, start in starts.items():
        end = yield from listed_tail(queue, queue.log(shard))
        its = {name: {shard: each[shard]} if shard in each else {} for name, each in how.items()}
        pieces = between((yield from survey(queue, shard, start, end)), start, end)
        found += [Share(pieces=tuple(group), standings=its) for group in grouped(pieces, SHARE_BYTES)]
    return found


def _starts(queue: OpenQueue, archive: Archive) -> Procedure[tuple[dict[int, int], Archive]]:
    """Where the log begins where the archive ends. An archive that moved on while we looked is looked at again."""
    while True:
        starts = {}
        for shard in range(queue.settings.shards):
            low = yield from trim_mark(queue.log(shard))
            starts[shard] = max(low, archive.watermark.get(shard, 0))
        if all(archive.lets_go(shard, start) for shard, start in starts.items()):
            return starts, archive
        before, archive = archive, (yield from read_archive(queue))
        if archive == before:  # trimming passed it before the register held
            return starts, archive


def _records(rows: Sequence[Placed], fetcher: Fetcher, how: Standings) -> pa.RecordBatch:
    outcomes: list[dict[str, str]] = []
    attempts: list[dict[str, int]] = []
    for row in rows:
        to = row.line.to
        told = {
            name: its.get(row.shard, Standing()).at(row.offset) for name, its in how.items() if to is None or name == to
        }
        outcomes.append({name: state for name, (state, _) in told.items()})
        attempts.append({name: count for name, (_, count) in told.items() if count})
    return record_batch(rows, fetcher, outcomes, attempts, [()] * len(rows))


def _placed_in(batch: pa.RecordBatch, place: str, schema: pa.Schema) -> pa.RecordBatch:
    """With the column that says where a record was read, and types exactly as Spark wants them."""
    arrays = [*batch.columns, pa.array([place] * batch.num_rows, pa.string())]
    cast = [
        array if array.type == field.type else array.cast(field.type)
        for array, field in zip(arrays, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(cast, schema=schema)
