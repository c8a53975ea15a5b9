"""Running a pipeline on Spark: source, all stages as one `mapInArrow`, target. One query in the caller's session."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count_if, get_json_object

from bucketmq.errors import Invalid
from bucketmq.pipeline.dead import DEAD
from bucketmq.pipeline.ends import FromTable, ToTable
from bucketmq.pipeline.upserts import ToUpserts, columns_of
from bucketmq.procedures.queues import EVENTS
from bucketmq.spark.options import COLUMNS, FORMAT, SOURCE_OPTIONS, STORE_OPTIONS, place_of, targets_option
from bucketmq.spark.running.flow import Flow
from bucketmq.spark.running.frames import BeforeFrame, Framed
from bucketmq.spark.running.progress import DEAD_LETTERS, OBSERVED
from bucketmq.spark.source import register
from bucketmq.spark.write.table import WriteRows, write_batch, write_files
from bucketmq.spark.write.upserts import write_upserts

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from bucketmq.pipeline.pipeline import Pipeline
    from bucketmq.spark.options import Place

OUR_OWN = {"columns", "bodyschema", "subscription"}
"""Options of the source that the pipeline itself decides about."""

FILE_OPTIONS = {"maxfilespertrigger", "maxbytespertrigger", "latestfirst", "maxfileage"}
"""Options of Spark's own file streams that may be given for a table."""


def start(
    pipeline: Pipeline,
    url: str,
    spark: SparkSession,
    *,
    checkpoint: str,
    once: bool = False,
    trigger_seconds: float = 1.0,
    options: Mapping[str, str] | None = None,
) -> StreamingQuery:
    """Start the pipeline as a streaming query named like it, on the bucket at `url`. Does not wait for it.

    `once` reads what there is now and ends; otherwise a batch begins every `trigger_seconds` if there is anything new.
    `options` are those of the source (`maxRowsPerTrigger`, `startingOffsets`, ...) and of the store (`endpoint`, ...).
    """
    register(spark)
    of_source, of_store = _divided(options or {}, table=isinstance(pipeline.source, FromTable))
    place = place_of(url, EVENTS if isinstance(pipeline.source, FromTable) else pipeline.source.log, of_store)
    rows = _read(pipeline, url, spark, {**of_store, **of_source})
    made = _flowed(pipeline, place, rows)
    comes_back = get_json_object(col(DEAD), "$.back").isNotNull()
    failed = count_if(col(DEAD).isNotNull() & ~comes_back).alias(DEAD_LETTERS)
    writer = _written(pipeline, place, made.observe(OBSERVED, failed), checkpoint, of_store)
    writer = writer.queryName(pipeline.name).option("checkpointLocation", checkpoint)
    seconds = f"{int(trigger_seconds * 1000)} milliseconds"
    writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=seconds)
    return writer.start()


def _flowed(pipeline: Pipeline, place: Place, rows: DataFrame) -> DataFrame:
    """All that is done to rows on the executors."""
    if any(each.keyed is not None for each in pipeline.stages):
        from bucketmq.spark.running.keyed import by_key

        return by_key(pipeline, place, rows)
    flow = BeforeFrame(pipeline, place) if _has_frame(pipeline) else Flow(pipeline, place)
    return rows.mapInArrow(flow, flow.gives)


def _has_frame(pipeline: Pipeline) -> bool:
    return any(each.is_frame for each in pipeline.stages)


def _divided(options: Mapping[str, str], *, table: bool) -> tuple[dict[str, str], dict[str, str]]:
    """The options of the source, and those of the store."""
    of_store = {name: text for name, text in options.items() if name.lower() in STORE_OPTIONS}
    of_source = {name: text for name, text in options.items() if name not in of_store}
    known = FILE_OPTIONS if table else {name.lower() for name in SOURCE_OPTIONS} - OUR_OWN
    odd = [name for name in of_source if name.lower() not in known]
    if odd:
        raise Invalid(f"unknown option {odd[0]!r} for a pipeline; there are {', '.join(sorted(known | STORE_OPTIONS))}")
    return of_source, of_store


def _read(pipeline: Pipeline, url: str, spark: SparkSession, options: dict[str, str]) -> DataFrame:
    source = pipeline.source
    if isinstance(source, FromTable):
        files = {name: text for name, text in options.items() if name.lower() in FILE_OPTIONS}
        reader = spark.readStream.format(source.format).schema(source.schema).options(**files)
        return reader.load(source.path)
    columns = ",".join((*COLUMNS, "died"))
    rows = {} if pipeline.task_rows is None else {"rowsPerPartition": str(pipeline.task_rows)}
    wanted = {**rows, **options, "path": url, "queue": source.log, "subscription": pipeline.name, "columns": columns}
    return spark.readStream.format(FORMAT).options(**wanted).load()


def _written(
    pipeline: Pipeline, place: Place, rows: DataFrame, checkpoint: str, of_store: dict[str, str]
) -> DataStreamWriter:
    """One sink for objects and messages. Where there are tables, both are given each batch, the tables first."""
    tables: dict[int, WriteRows] = {}
    for number, each in enumerate(pipeline.outputs):
        if isinstance(each, ToTable):
            tables[number] = partial(write_files, each)
        elif isinstance(each, ToUpserts):
            tables[number] = partial(write_upserts, each, gives=columns_of(each, pipeline.gives), place=place)
    ends = targets_option(pipeline.name, pipeline.outputs)
    common = {"path": place.url, "deadLetters": pipeline.dead_letters, "targets": ends, **of_store}
    batches = partial(write_batch, tables, common, checkpoint)
    if _has_frame(pipeline):
        return rows.writeStream.foreachBatch(Framed(pipeline, place, batches))
    if tables:
        return rows.writeStream.foreachBatch(batches)
    return rows.writeStream.format(FORMAT).options(**common)
