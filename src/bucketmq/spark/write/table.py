"""Writing the batches of a query as files of a table: each batch in a folder of its own.

A batch that is run again replaces its own folder, so no row is there twice. Batch numbers start over with another
checkpoint, so the query's id is in the path, too. A reader that looks while a batch is being written may see a
part of it.

The rows are kept while tables and our own sink are written, so that no stage runs twice for it. The sink comes last:
it publishes messages and dead letters, once for each batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.functions import col

from bucketmq.errors import Invalid
from bucketmq.pipeline.ends import ToTable
from bucketmq.pipeline.shape import TABLE_FOLDERS, column_of
from bucketmq.spark import checkpoint
from bucketmq.spark.options import FORMAT

WriteRows = Callable[[DataFrame, str, int], None]


def write_batch(
    tables: Mapping[int, WriteRows], options: dict[str, str], location: str, rows: DataFrame, batch: int
) -> None:
    """Write a batch. `tables` are those by their place among the pipeline's targets, each as something that is handed
    the rows, the query and the batch; the rest and the dead letters go to our own sink, whose `options` these are."""
    query = _query_id(rows, location)
    rows = rows.persist()
    try:
        for place, write in tables.items():
            column = column_of(place)
            write(rows.where(col(column).isNotNull()).select(f"{column}.*"), query, batch)
        others = rows.drop(*map(column_of, tables))
        others.write.format(FORMAT).mode("append").options(**options, txn=query, batch=str(batch)).save()
    finally:
        rows.unpersist()


def write_files(target: ToTable, rows: DataFrame, query: str, batch: int) -> None:
    """Write the rows of a batch as files of a table."""
    of_query, of_batch = TABLE_FOLDERS
    path = f"{target.path.rstrip('/')}/{of_query}={query}/{of_batch}={batch}"
    writer = rows.write.format(target.format).mode("overwrite")
    if target.partition_by:
        writer = writer.partitionBy(*target.partition_by)
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
