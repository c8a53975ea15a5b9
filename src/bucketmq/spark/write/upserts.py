"""Writing the batches of a query into a table with upserts: each batch is one commit, once.

Executors do the work: rows are brought together by the shard of the table that they belong to, and each task merges its
rows with the files of its shards and writes new ones. The driver replaces the head, which names them. A rival that
commits meanwhile costs the shards that it touched a second pass, and nothing else. What a task that failed or ran twice
has written is named by no head and removed later.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame

from bucketmq.pipeline.columns import arrow_schema
from bucketmq.pipeline.upserts import ToUpserts, table_of
from bucketmq.procedures.tables.commit import Job, Made, commit_elsewhere, write_shard
from bucketmq.procedures.tables.files import conform, read_schema
from bucketmq.procedures.tables.steps import latest
from bucketmq.spark.opened import opened
from bucketmq.spark.options import Place
from bucketmq.spark.worker import settle_in
from bucketmq.tables.head import Head, Mark, slot_of

TASKS_MAX = 200
"""Shards share tasks if there are more."""

SHARD = "_shard"


def write_upserts(target: ToUpserts, rows: DataFrame, query: str, batch: int, *, gives: str, place: Place) -> None:
    """Write the rows of a batch, with the columns `gives`, as a commit of a table."""
    here = opened(place, create=True)
    columns = arrow_schema(gives)
    if target.delete_when is not None:
        columns = columns.remove(columns.get_field_index(target.delete_when))

    def make(job: Job) -> dict[str, Made]:
        """What became of each shard that has rows, by its file."""
        tasks = min(len(job.head.shards), TASKS_MAX)
        placed = rows.mapInArrow(partial(_placed, target.shape.by, job), f"{gives}, {SHARD} int")
        merging = partial(_merged, target, gives, place, job)
        found = placed.repartition(tasks, SHARD).mapInArrow(merging, "file string, made binary").collect()
        return {row.file: msgspec.json.decode(bytes(row.made), type=Made) for row in found}

    here.run(commit_elsewhere(table_of(here.queue.bucket, target), columns, Mark(query, batch), make))


def _placed(by: str, job: Job, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows with the shard that each belongs to, without those of shards that are done."""
    settle_in()
    head: Head = job.head
    for batch in batches:
        groups = batch.column(by).to_pylist()
        places = {group: head.place_of(slot_of(group)) for group in set(groups)}
        shards = pa.array([places[group] for group in groups], pa.int32())
        wanted = pa.array([head.shards[places[group]].file not in job.done for group in groups], pa.bool_())
        yield batch.append_column(SHARD, shards).filter(wanted)


def _merged(
    target: ToUpserts, gives: str, place: Place, job: Job, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Merge the rows of one task with the files of their shards."""
    settle_in()
    its = [batch for batch in batches if batch.num_rows]
    if not its:
        return
    rows, schema = pa.Table.from_batches(its), read_schema(job.schema, "the job")
    here: Any = opened(place, create=True)
    table = table_of(here.queue.bucket, target)
    for number in rows.column(SHARD).unique().to_pylist():
        own = rows.filter(pa.compute.equal(rows.column(SHARD), number)).drop_columns([SHARD])
        step = latest(conform(own, arrow_schema(gives)), target.shape, target.delete_when)
        shard = job.head.shards[number]
        made = here.run(write_shard(table, job.head, shard, schema, [step]))
        told = [pa.array([shard.file]), pa.array([msgspec.json.encode(made)], pa.binary())]
        yield pa.RecordBatch.from_arrays(told, names=["file", "made"])
