"""Writing: executors write parts, the driver publishes them as one segment for each shard.

A task may run twice, a batch may run twice, and what they wrote stays where it is: only the parts that one commit
publishes become messages, and `bucketmq.procedures.bulk.publish` sees to it that one commit does. So nothing is deleted
here, in `abort` least of all: Spark also calls it when a commit raised that had landed.

What a pipeline's rows become is `spark.write.targets_sink`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from bucketmq.errors import Invalid
from bucketmq.log import segment
from bucketmq.pipeline.letters import Columns
from bucketmq.procedures.bulk.publish import Made, Published, forget, publish
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.requests import NewId, Now, Procedure
from bucketmq.spark import checkpoint
from bucketmq.spark.opened import Opened, opened
from bucketmq.spark.options import SinkOptions
from bucketmq.spark.variants import check_no_variant
from bucketmq.spark.worker import settle_in
from bucketmq.spark.write.parts import Parts, Task, Uploads

logger = logging.getLogger("bucketmq.spark")


class Written(WriterCommitMessage):
    """What a task tells the driver: the parts it made."""

    def __init__(self, made: tuple[Made, ...], query_id: str | None) -> None:
        self.made = made
        self.query_id = query_id


class Writer:
    """What all writers are: options and a schema, pickled as these; the queue is opened where they are used."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        check_no_variant(schema, "make it text with to_json")

    def __reduce__(self) -> Any:
        return type(self), (self._options, self._schema)

    @property
    def _opened(self) -> Opened:
        return opened(self._options.place, create=True)


class _Writer(Writer):
    """What batch and stream writers have in common."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._columns = Columns(schema.fieldNames(), text=options.text)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task as parts. One PUT for each shard and 8 MiB."""
        settle_in()
        task = Task(self._options.transaction)
        here, columns = self._opened, self._columns
        name, at = here.run(begun())
        sent = 0
        with Uploads(here) as uploads:
            parts = Parts(uploads, here.queue, task, vouched=True)
            for batch in iterator:
                parts.add(columns.lines(batch, name, sent, at), columns.keys(batch))
                sent += batch.num_rows
            return Written(tuple(parts.close()), task.query_id)

    def abort(self, messages: list[WriterCommitMessage | None], *_: Any) -> None:
        """Leave everything as it is: what was published stays, and the rest is removed by age as an orphan."""
        count = sum(len(message.made) for message in messages if isinstance(message, Written))
        logger.warning("a write was aborted; its %d parts stay until they are removed as orphans", count)


def begun() -> Procedure[tuple[str, str]]:
    """What the messages of a task share: the beginning of their ids, and the time."""
    name = yield from NewId()
    return name, segment.time_text((yield from Now()))


class BatchWriter(_Writer, DataSourceArrowWriter):
    """`df.write`. With a `txn` the same write done again appends nothing; without, every write is one of its own."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        made = all_made(messages)
        if self._options.transaction is not None:
            done = self._opened.run(publish(self._opened.queue, self._options.transaction, self._options.batch, made))
            _tell(self._options.transaction, done)
        else:
            self._opened.run(_publish_once(self._opened.queue, made))


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """`df.writeStream`. Once for each batch of the query, however often Spark runs it."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        publish_stream(self._opened, self._opened.queue, self._options, batchId, messages)


def publish_stream(
    here: Opened, queue: OpenQueue, options: SinkOptions, batch: int, messages: Iterable[WriterCommitMessage | None]
) -> None:
    """Publish the parts that a batch of a query made, once, with a register in `queue`."""
    told = [message for message in messages if isinstance(message, Written)]
    made = all_made(told)
    transaction = options.transaction or _query_id(options.checkpoint, told)
    if transaction is None:
        if not made:
            return  # nothing to publish, and no transaction to record
        raise Invalid("Spark does not say which query this is; give the sink a name with the option txn")
    offsets = checkpoint.offsets_of(options.checkpoint, batch)
    _tell(transaction, here.run(publish(queue, transaction, batch, made, offsets)))


def _query_id(location: str | None, messages: Iterable[WriterCommitMessage | None]) -> str | None:
    told = {message.query_id for message in messages if isinstance(message, Written) and message.query_id}
    return told.pop() if len(told) == 1 else checkpoint.query_id(location)


def all_made(messages: Iterable[WriterCommitMessage | None]) -> list[Made]:
    """The parts in the order of the partitions."""
    return [made for message in messages if isinstance(message, Written) for made in message.made]


def _tell(transaction: str, done: Published) -> None:
    if done.already:
        logger.info("batch %d of %s was published before; nothing was appended", done.batch, transaction)


def _publish_once(queue: OpenQueue, made: list[Made]) -> Procedure[None]:
    """Publish under a unique name, and forget it."""
    if made:
        transaction = f"once-{(yield from NewId())}"
        yield from publish(queue, transaction, 0, made)
        yield from forget(queue, transaction)
