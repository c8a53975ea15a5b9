"""Writing objects: one for each row, by the executors, with its event, and not again where nothing would change.

An object is written when its task runs, before the batch is committed: at least once, and idempotent. A batch that is
run again finds its own objects and leaves them alone, so it reports no second event. Two tasks with rows for one key
race for it, as any two writers do: where the target says what is newer, the newest stays; otherwise the last write.

What a pipeline's rows become is `spark.write.targets_sink`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from bucketmq.pipeline.ends import ToObjects
from bucketmq.pipeline.objects import Did, Wanted, that_count, write_objects
from bucketmq.pipeline.things import Maker
from bucketmq.procedures.objects.batches import in_batches
from bucketmq.procedures.objects.metadata import NO_CAUSE
from bucketmq.spark.options import SinkOptions
from bucketmq.spark.worker import settle_in
from bucketmq.spark.write.sink import Writer

logger = logging.getLogger("bucketmq.spark")

CONCURRENCY = 8
OBJECTS_TOGETHER = 100
"""So many batches of so many objects are written by one task at a time."""


class Wrote(WriterCommitMessage):
    """What a task tells the driver: how many objects it wrote and left alone."""

    def __init__(self, counts: dict[str, int]) -> None:
        self.counts = counts


class _ObjectsWriter(Writer):
    """What batch and stream writers have in common."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        assert options.objects is not None
        super().__init__(options, schema)
        self._target: ToObjects = options.objects
        self._maker = Maker(self._target, to_arrow_schema(schema))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the objects of one task, several at a time."""
        settle_in()
        counts: Counter[str] = Counter(written=0, same=0, kept=0)
        with ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="bucketmq-write") as pool:
            for batch in iterator:
                made = [(thing, NO_CAUSE) for row in self._maker.things(batch) for thing in row]
                things = that_count(self._target, made)
                counts["kept"] += len(made) - len(things)
                slices = in_batches([Wanted(self._target, *each) for each in things], objects_max=OBJECTS_TOGETHER)
                for did in pool.map(self._put, slices):
                    counts.update(did)
        return Wrote(dict(counts))

    def _put(self, wanted: Sequence[Wanted]) -> list[Did]:
        here = self._opened
        return here.run(write_objects(here.queue.bucket, wanted))

    def commit(self, messages: list[WriterCommitMessage | None], *_: Any) -> None:
        counts: Counter[str] = Counter()
        for each in messages:
            counts.update(each.counts if isinstance(each, Wrote) else {})
        logger.info("%s: %s", self._target.title, dict(counts))

    def abort(self, messages: list[WriterCommitMessage | None], *_: Any) -> None:
        """Leave everything as it is: what was written stays, and is found there by the next attempt."""
        count = sum(message.counts["written"] for message in messages if isinstance(message, Wrote))
        logger.warning("a write was aborted; the %d objects that it wrote stay", count)


class ObjectsBatchWriter(_ObjectsWriter, DataSourceArrowWriter):
    """`df.write` with the option `objects`."""


class ObjectsStreamWriter(_ObjectsWriter, DataSourceStreamArrowWriter):
    """`df.writeStream` with the option `objects`."""
