"""Writing the batches of a query into a table with upserts: each batch is one commit, once.

Executors do the work: rows are brought together by the shard of the table that they belong to, and each task merges its
rows with the files of its shards and writes new ones. The driver replaces the head, which names them. A rival that
commits meanwhile costs the shards that it touched a second pass, and nothing else. What a task that failed or ran twice
has written is named by no head and removed later.
"""

from __future__ import annotations

from collections.abc import Iterator
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


class UpsertWriter:
    """Batches as commits of a table."""

    def __init__(self, target: ToUpserts, gives: str, place: Place) -> None:
        self._target = target
        self._gives = gives
        self._place = place

    def __call__(self, rows: DataFrame, query: str, batch: int) -> None:
        here = opened(self._place, create=True)
        table = table_of(here.queue.bucket, self._target)
        columns = arrow_schema(self._gives)
        if self._target.delete_when is not None:
            columns = columns.remove(columns.get_field_index(self._target.delete_when))

        def make(job: Job) -> dict[str, Made]:
            return self._on_executors(rows, job)

        here.run(commit_elsewhere(table, columns, Mark(query, batch), make))

    def _on_executors(self, rows: DataFrame, job: Job) -> dict[str, Made]:
        """What became of each shard that has rows, by its file."""
        placing = Placing(self._target.shape.by, self._gives, job)
        merging = Merging(self._target, self._gives, self._place, job)
        tasks = min(len(job.head.shards), TASKS_MAX)
        placed = rows.mapInArrow(placing, f"{self._gives}, {SHARD} int").repartition(tasks, SHARD)
        found = placed.mapInArrow(merging, "file string, made binary").collect()
        return {row.file: msgspec.json.decode(bytes(row.made), type=Made) for row in found}


class Placing:
    """Adds the shard that each row belongs to, and drops rows of shards that are done."""

    def __init__(self, by: str, gives: str, job: Job) -> None:
        self._by = by
        self._gives = gives
        self._job = job

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle_in()
        head: Head = self._job.head
        for batch in batches:
            groups = batch.column(self._by).to_pylist()
            places = {group: head.place_of(slot_of(group)) for group in set(groups)}
            shards = pa.array([places[group] for group in groups], pa.int32())
            wanted = pa.array([head.shards[places[group]].file not in self._job.done for group in groups], pa.bool_())
            yield batch.append_column(SHARD, shards).filter(wanted)


class Merging:
    """Merges the rows of one task with the files of their shards."""

    def __init__(self, target: ToUpserts, gives: str, place: Place, job: Job) -> None:
        self._target = target
        self._gives = gives
        self._place = place
        self._job = job

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle_in()
        its = [batch for batch in batches if batch.num_rows]
        if its:
            rows = pa.Table.from_batches(its)
            for shard in rows.column(SHARD).unique().to_pylist():
                yield self._merge(rows.filter(pa.compute.equal(rows.column(SHARD), shard)), shard)

    def _merge(self, rows: pa.Table, place: int) -> pa.RecordBatch:
        target, head = self._target, self._job.head
        step = latest(conform(rows.drop_columns([SHARD]), arrow_schema(self._gives)), target.shape, target.delete_when)
        schema = read_schema(self._job.schema, "the job")
        here: Any = opened(self._place, create=True)
        table = table_of(here.queue.bucket, target)
        made = here.run(write_shard(table, head, head.shards[place], schema, [step]))
        told = [pa.array([head.shards[place].file]), pa.array([msgspec.json.encode(made)], pa.binary())]
        return pa.RecordBatch.from_arrays(told, names=["file", "made"])
