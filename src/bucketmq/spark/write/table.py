"""Writing the batches of a query as files of a table: each batch in a folder of its own.

A batch that is run again replaces its own folder, so no row is there twice. Batch numbers start over with another
checkpoint, so the query's id is in the path, too. A reader that looks while a batch is being written may see a
part of it.

Failed rows become dead letters, once for each batch. The rows are kept while both are written, so that no stage runs
twice for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.functions import col

from bucketmq.errors import Invalid
from bucketmq.pipeline.dead import DEAD
from bucketmq.pipeline.ends import ToTable
from bucketmq.pipeline.shape import TABLE_FOLDERS
from bucketmq.spark import checkpoint
from bucketmq.spark.options import FORMAT


class TableWriter:
    """What Spark calls with every batch."""

    def __init__(self, target: ToTable, columns: Sequence[str], dead: dict[str, str], location: str) -> None:
        self._target = target
        self._columns = tuple(columns)
        self._dead = dead
        self._location = location

    def __call__(self, rows: DataFrame, batch: int) -> None:
        query = _query_id(rows, self._location)
        rows = rows.persist()
        try:
            self._write(rows.where(col(DEAD).isNull()).select(*map(_quoted, self._columns)), query, batch)
            dead = rows.where(col(DEAD).isNotNull()).select(DEAD).write.format(FORMAT).mode("append")
            dead.options(**self._dead, txn=query, batch=str(batch)).save()
        finally:
            rows.unpersist()

    def _write(self, rows: DataFrame, query: str, batch: int) -> None:
        of_query, of_batch = TABLE_FOLDERS
        path = f"{self._target.path.rstrip('/')}/{of_query}={query}/{of_batch}={batch}"
        writer = rows.write.format(self._target.format).mode("overwrite")
        if self._target.partition_by:
            writer = writer.partitionBy(*self._target.partition_by)
        writer.save(path)


def _query_id(rows: DataFrame, location: str) -> str:
    """The id of the query, which stays the same when it is started again."""
    found = checkpoint.query_id(location)
    if found is None:
        session: Any = rows.sparkSession
        found = session.sparkContext.getLocalProperty("sql.streaming.queryId")
    if not found:
        raise Invalid(f"the id of this query is unknown, and {location!r} is not a folder here; use another checkpoint")
    return found


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
