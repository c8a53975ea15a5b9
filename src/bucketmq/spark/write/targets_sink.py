"""Writing all targets of a pipeline in one pass over its rows, and the rows that failed on the way here.

Rows have the shape of the targets (`pipeline.shape`): a column for each. A task writes objects as it goes, at least
once and idempotently, and the lines of messages and dead letters as parts. The driver publishes them when all tasks are
through: so messages come after the objects of their batch. One register, in the queue of dead letters, decides about
all messages of the pipeline's bucket; a queue in another bucket has a register of its own. Decision 0031 says what
holds when something dies in between.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from bucketmq.errors import Invalid
from bucketmq.pipeline.dead import DEAD
from bucketmq.pipeline.ends import ToQueue
from bucketmq.pipeline.letters import Columns
from bucketmq.pipeline.shape import CAUSE
from bucketmq.pipeline.writing import Buckets, Writing, elsewhere, messages_of, writings_of
from bucketmq.procedures.bulk.publish import Made
from bucketmq.procedures.objects.batches import in_batches
from bucketmq.procedures.objects.metadata import NO_CAUSE, Cause
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.queues import open_queue
from bucketmq.spark.opened import Opened, bucket_at, opened
from bucketmq.spark.options import SinkOptions, other_place
from bucketmq.spark.worker import settle_in
from bucketmq.spark.write.objects_sink import CONCURRENCY, OBJECTS_TOGETHER
from bucketmq.spark.write.parts import DeadLetters, Parts, Task, Uploads
from bucketmq.spark.write.sink import Writer, Written, begun, publish_stream

logger = logging.getLogger("bucketmq.spark")

_causes = msgspec.json.Decoder(Cause)


class Wrote(Written):
    """What a task tells the driver: its parts, those for queues of other buckets by the place of their target, and what
    became of objects."""

    def __init__(
        self,
        made: tuple[Made, ...],
        others: dict[int, tuple[Made, ...]],
        counts: dict[str, int],
        query_id: str | None,
    ) -> None:
        super().__init__(made, query_id)
        self.others = others
        self.counts = counts


class Messages:
    """The messages of one target, on their way into parts."""

    def __init__(self, uploads: Uploads, queue: OpenQueue, task: Task, target: ToQueue, place: int) -> None:
        name = target.queue if target.bucket is None else None
        self._parts = Parts(uploads, queue, task, name=name, vouched=True)
        self._name, self._at = uploads.here.run(begun())
        self._target = target
        self._place = place
        self._sent = 0

    def take(self, batch: pa.RecordBatch) -> None:
        rows = messages_of(self._target, self._place, batch)
        if rows.num_rows:
            columns = Columns(rows.schema.names, text=self._target.text)
            self._parts.add(columns.lines(rows, self._name, self._sent, self._at), columns.keys(rows))
            self._sent += rows.num_rows

    def close(self) -> tuple[Made, ...]:
        return tuple(self._parts.close())


class _TargetsWriter(Writer):
    """What batch and stream writers have in common."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        assert options.ends is not None and options.dead_letters is not None
        super().__init__(options, schema)
        if DEAD not in schema.fieldNames():
            raise Invalid(f"rows of a pipeline have the column {DEAD}; run it with bucketmq.spark.start")
        self._dead_letters = options.dead_letters
        self._pipeline, self._targets = options.ends.pipeline, options.ends.targets
        self._buckets = Buckets(self._pipeline, self._targets, partial(bucket_at, options.place))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the objects of one task, several at a time, and its messages and dead letters as parts."""
        settle_in()
        task = Task(self._options.transaction)
        counts: Counter[str] = Counter(written=0, same=0, kept=0)
        with ExitStack() as stack:
            pool = stack.enter_context(ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="bucketmq-write"))
            uploads = stack.enter_context(Uploads(self._opened))
            dead = DeadLetters(uploads, self._dead_letters, task)
            messages = self._messages(stack, uploads, task)
            for batch in iterator:
                living = dead.take(batch)
                writings = writings_of(self._targets, living, _causes_of(living))
                for moves in (False, True):  # what takes a source away comes after all that is made of it
                    its = [each for each in writings if each.moves == moves]
                    for became in pool.map(self._buckets.carry_out, _together(its)):
                        counts.update(became)
                for each in messages.values():
                    each.take(living)
            made = {place: each.close() for place, each in messages.items()}
            home = [each for place, each in made.items() if self._bucket(place) is None]
            others = {place: each for place, each in made.items() if self._bucket(place) is not None}
            return Wrote(
                (*(part for each in home for part in each), *dead.close()), others, dict(counts), task.query_id
            )

    def _bucket(self, place: int) -> str | None:
        target = self._targets[place]
        return target.bucket if isinstance(target, ToQueue) else None

    def _messages(self, stack: ExitStack, uploads: Uploads, task: Task) -> dict[int, Messages]:
        """Those that become messages, by their place among the targets."""
        found = {}
        for place, target in enumerate(self._targets):
            if not isinstance(target, ToQueue):
                continue
            with elsewhere(target.bucket):
                queue, here = self._queue(target), uploads
                if target.bucket is not None:
                    here = stack.enter_context(Uploads(self._there(target.bucket, target.queue)))
                found[place] = Messages(here, queue, task, target, place)
        return found

    def _queue(self, target: ToQueue) -> OpenQueue:
        if target.bucket is not None:
            return self._there(target.bucket, target.queue).queue
        queue: OpenQueue = self._opened.run(open_queue(self._opened.queue.bucket, target.queue, {}))
        return queue

    def _there(self, url: str, queue: str) -> Opened:
        """A queue of the bucket of a target."""
        return opened(other_place(self._options.place, url, queue), create=True)

    def _publish(self, messages: Sequence[WriterCommitMessage | None], batch: int) -> None:
        told = [each for each in messages if isinstance(each, Wrote)]
        counts: Counter[str] = Counter()
        for each in told:
            counts.update(each.counts)
        logger.info("batch %d of pipeline %s: objects %s", batch, self._pipeline, dict(counts))
        publish_stream(self._opened, self._opened.queue, self._options, batch, told)
        for place, target in enumerate(self._targets):
            if isinstance(target, ToQueue) and target.bucket is not None:
                its = [Written(each.others.get(place, ()), each.query_id) for each in told]
                with elsewhere(target.bucket):
                    there = self._there(target.bucket, target.queue)
                    publish_stream(there, there.queue, self._options, batch, its)

    def abort(self, messages: list[WriterCommitMessage | None], *_: Any) -> None:
        """Leave everything as it is: objects are found there by the next attempt, parts are removed as orphans."""
        told = [message for message in messages if isinstance(message, Wrote)]
        objects, parts = sum(each.counts["written"] for each in told), sum(len(each.made) for each in told)
        logger.warning("a write was aborted; the %d objects and %d parts that it wrote stay", objects, parts)


class TargetsBatchWriter(_TargetsWriter, DataSourceArrowWriter):
    """`df.write` with the option `targets`."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._options.transaction is None:
            raise Invalid("a batch write of a pipeline needs a name to be written once under: give the option txn")
        self._publish(messages, self._options.batch)


class TargetsStreamWriter(_TargetsWriter, DataSourceStreamArrowWriter):
    """`df.writeStream` with the option `targets`."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._publish(messages, batchId)


def _together(writings: Sequence[Writing]) -> Iterator[Sequence[Writing]]:
    """What is written at a time: many objects of one bucket, or what follows several source objects."""
    alike: dict[tuple[str | None, bool], list[Writing]] = {}
    for each in writings:
        alike.setdefault((each.bucket, each.state is None), []).append(each)
    for its in alike.values():
        yield from in_batches(its, objects_max=OBJECTS_TOGETHER)


def _causes_of(batch: pa.RecordBatch) -> Sequence[Cause]:
    if CAUSE not in batch.schema.names:
        return ()
    texts: Iterable[str | None] = batch.column(CAUSE).to_pylist()
    return [NO_CAUSE if text is None else _causes.decode(text) for text in texts]
