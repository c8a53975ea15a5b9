"""Writing objects: one for each row, by the executors, with its event, and not again where nothing would change.

An object is written when its task runs, before the batch is committed: at least once, and idempotent. A batch that is
run again finds its own objects and leaves them alone, so it reports no second event. Two tasks with rows for one key
race for it, as any two writers do: where the target says what is newer, the newest stays; otherwise the last write.

Rows that failed on the way here (column `_dead`) become dead letters, published once when the batch is committed.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from bucketmq.errors import Invalid
from bucketmq.pipeline.ends import ToObjects
from bucketmq.pipeline.objects import that_count, write_object
from bucketmq.pipeline.shape import CAUSE, Thing, check_newer, things_of
from bucketmq.pipeline.template import names_of
from bucketmq.procedures.bulk.publish import Made
from bucketmq.procedures.objects.metadata import NO_CAUSE, Cause
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.queues import open_queue
from bucketmq.queue.settings import DEAD_SUFFIX
from bucketmq.spark.options import SinkOptions
from bucketmq.spark.worker import settle_in
from bucketmq.spark.write.parts import DeadLetters, Task, Uploads
from bucketmq.spark.write.sink import Writer, Written, check_dead, publish_stream

log = logging.getLogger("bucketmq.spark")

CONCURRENCY = 8
"""Objects that one task writes at a time. Their events share writes of the log."""

_causes = msgspec.json.Decoder(Cause)


class Wrote(Written):
    """What a task tells the driver: parts of dead letters, and how many objects it wrote and left alone."""

    def __init__(self, counts: dict[str, int], made: tuple[Made, ...], query_id: str | None) -> None:
        super().__init__(made, query_id)
        self.counts = counts


class _ObjectsWriter(Writer):
    """What batch and stream writers have in common."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        assert options.objects is not None
        super().__init__(options, schema)
        self._target: ToObjects = options.objects
        check_dead(schema, options)
        _check(self._target, schema.fieldNames())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the objects of one task, several at a time, and the dead letters among its rows as parts."""
        settle_in()
        task = Task(self._options.transaction)
        here = self._opened
        counts: Counter[str] = Counter(written=0, same=0, kept=0)
        with ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="bucketmq-write") as pool, Uploads(here) as uploads:
            dead = DeadLetters(uploads, self._options.dead_letters, task, own_register=True)
            for batch in iterator:
                living = dead.take(batch)
                things = that_count(self._target, _things(self._target, living))
                counts["kept"] += living.num_rows - len(things)
                counts.update(pool.map(self._put, things))
            return Wrote(dict(counts), tuple(dead.close()), task.query_id)

    def _put(self, thing: tuple[Thing, Cause]) -> str:
        here = self._opened
        return here.run(write_object(here.queue.bucket, self._target, *thing))

    def _publish(self, messages: list[WriterCommitMessage | None], batch: int) -> None:
        counts: Counter[str] = Counter()
        for each in messages:
            counts.update(each.counts if isinstance(each, Wrote) else {})
        log.info("batch %d of %s: %s", batch, self._target.template, dict(counts))
        if self._options.dead_letters is not None:
            here, name = self._opened, self._options.dead_letters + DEAD_SUFFIX
            queue: OpenQueue = here.run(open_queue(here.queue.bucket, name, {}))
            publish_stream(here, queue, self._options, batch, messages)

    def abort(self, messages: list[WriterCommitMessage | None], *_: Any) -> None:
        """Leave everything as it is: what was written stays, and is found there by the next attempt."""
        count = sum(message.counts["written"] for message in messages if isinstance(message, Wrote))
        log.warning("a write was aborted; the %d objects that it wrote stay", count)


class ObjectsBatchWriter(_ObjectsWriter, DataSourceArrowWriter):
    """`df.write` with the option `objects`."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._options.dead_letters is not None and self._options.transaction is None:
            raise Invalid("dead letters of a batch write need a name to be written once under: give the option txn")
        self._publish(messages, self._options.batch)


class ObjectsStreamWriter(_ObjectsWriter, DataSourceStreamArrowWriter):
    """`df.writeStream` with the option `objects`."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._publish(messages, batchId)


def _check(target: ToObjects, names: list[str]) -> None:
    if target.newer_by is not None:
        check_newer(target.newer_by)
    for name in (target.body, target.newer_by, *names_of(target.template)):
        if name is not None and name not in names:
            raise Invalid(f"the objects {target.template!r} need a column {name!r}; the rows have {', '.join(names)}")


def _things(target: ToObjects, batch: pa.RecordBatch) -> Iterable[tuple[Thing, Cause]]:
    if CAUSE not in batch.schema.names:
        return ((thing, NO_CAUSE) for thing in things_of(target, batch))
    causes = [NO_CAUSE if text is None else _causes.decode(text) for text in batch.column(CAUSE).to_pylist()]
    return zip(things_of(target, batch.drop_columns([CAUSE])), causes, strict=True)
