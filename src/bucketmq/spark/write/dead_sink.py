"""Writing dead letters alone, for targets that are not ours: rows of the column `_dead`, once for each batch."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from bucketmq.errors import Invalid
from bucketmq.pipeline.dead import DEAD
from bucketmq.procedures.bulk.publish import publish
from bucketmq.queue.settings import DEAD_SUFFIX
from bucketmq.spark.options import SinkOptions
from bucketmq.spark.worker import settle_in
from bucketmq.spark.write.parts import DeadLetters, Task, Uploads
from bucketmq.spark.write.sink import Writer, Written, all_made


class DeadBatchWriter(Writer, DataSourceArrowWriter):
    """`df.write` with the option `deadLetters`, and neither `queue` nor `objects`."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        if schema.fieldNames() != [DEAD] or options.transaction is None:
            raise Invalid(f"dead letters alone are written from a column {DEAD} and with a txn; otherwise name a queue")
        super().__init__(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the dead letters of one task as parts."""
        settle_in()
        task = Task(self._options.transaction)
        name = self._options.place.queue.removesuffix(DEAD_SUFFIX)
        with Uploads(self._opened) as uploads:
            letters = DeadLetters(uploads, name, task, own_register=True)
            for batch in iterator:
                letters.take(batch)
            return Written(tuple(letters.close()), task.query_id)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        options = self._options
        assert options.transaction is not None
        self._opened.run(publish(self._opened.queue, options.transaction, options.batch, all_made(messages)))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Leave everything as it is, as the sink of messages does."""
