"""Writing: executors write parts, the driver publishes them as one segment for each shard.

A task may run twice, a batch may run twice, and what they wrote stays where it is: only the parts that one commit
publishes become messages, and `bucketmq.procedures.publish` sees to it that one commit does. So nothing is deleted
here, in `abort` least of all: Spark also calls it when a commit raised that had landed.

Rows may have failed on their way here. Those (column `_dead`) become parts of a queue's dead letters in the same pass,
and one register decides about both: whichever attempt of a batch counts, a row is a message or a dead letter.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from bucketmq.errors import Invalid
from bucketmq.log import segment
from bucketmq.procedures.opened import OpenBucket, OpenQueue
from bucketmq.procedures.publish import Made, Published, create_part, forget, publish
from bucketmq.procedures.queues import open_queue
from bucketmq.procedures.requests import NewId, Now, Procedure
from bucketmq.procedures.routing import shard_of
from bucketmq.procedures.shards import sending_settings
from bucketmq.queue.settings import DEAD_SUFFIX
from bucketmq.spark import checkpoint, dead
from bucketmq.spark.dead import DEAD
from bucketmq.spark.letters import Columns
from bucketmq.spark.opened import Opened, opened, spare_the_collector
from bucketmq.spark.options import SinkOptions
from bucketmq.spark.texts import held_by

log = logging.getLogger("bucketmq.spark")

PART_BYTES = 8 << 20
"""A part is closed when it is so large: a worker that receives one of its messages reads all of it."""

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""Where Spark tells a task what it runs for. Not a documented interface: used where there, missed where not."""


class Written(WriterCommitMessage):
    """What a task tells the driver: the parts it made."""

    def __init__(self, made: tuple[Made, ...], query_id: str | None) -> None:
        self.made = made
        self.query_id = query_id


class Task:
    """Which task of which batch this is; names its objects, and decides nothing."""

    def __init__(self, transaction: str | None) -> None:
        context = TaskContext.get()
        self.query_id = context.getLocalProperty(QUERY_ID) if context else None
        batch = context.getLocalProperty(BATCH_ID) if context else None
        self.partition = context.partitionId() if context else 0
        self.batch = int(batch) if batch else 0
        self.attempt = context.attemptNumber() if context else 0
        self.transaction = transaction or self.query_id or "once"


class Writer:
    """What all writers are: options and a schema, pickled as these; the queue is opened where they are used."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def __reduce__(self) -> Any:
        return type(self), (self._options, self._schema)

    @property
    def _opened(self) -> Opened:
        return opened(self._options.place, create=True)


class _Writer(Writer):
    """What batch and stream writers have in common."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        names = [name for name in schema.fieldNames() if name != DEAD]
        self._columns = Columns(names, text=options.text)
        check_dead(schema, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task as parts. One PUT for each shard and 8 MiB."""
        spare_the_collector()
        task = Task(self._options.transaction)
        made = self._opened.run(self._write(task, iterator))
        return Written(tuple(made), task.query_id)

    def _write(self, task: Task, batches: Iterable[pa.RecordBatch]) -> Procedure[list[Made]]:
        queue, columns = self._opened.queue, self._columns
        name: str = yield NewId()
        at = segment.time_text((yield Now()))
        parts = Parts(queue, task, (yield from sending_settings(queue)).shards)
        dead_letters = DeadLetters(queue.bucket, self._options.dead_letters, task)
        sent = 0
        for batch in batches:
            living = yield from dead_letters.take(batch)
            yield from parts.add(columns.lines(living, name, sent, at), columns.keys(living))
            sent += living.num_rows
        yield from parts.close()
        return [*parts.made, *(yield from dead_letters.close())]

    def abort(self, messages: list[WriterCommitMessage | None], *_: Any) -> None:
        """Leave everything as it is: what was published stays, and the rest is removed by age as an orphan."""
        count = sum(len(message.made) for message in messages if isinstance(message, Written))
        log.warning("a write was aborted; its %d parts stay until they are removed as orphans", count)


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
            return  # nothing to publish, and nobody to remember it for
        raise Invalid("Spark does not tell which query this is; give the sink a name with the option txn")
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
        log.info("batch %d of %s was published before; nothing was appended", done.batch, transaction)


def _publish_once(queue: OpenQueue, made: list[Made]) -> Procedure[None]:
    """Publish under a name that nobody else has, and forget it."""
    if made:
        transaction = f"once-{(yield NewId())}"
        yield from publish(queue, transaction, 0, made)
        yield from forget(queue, transaction)


class _Open:
    """Lines on their way into a part."""

    __slots__ = ("count", "lines", "size")

    def __init__(self) -> None:
        self.lines: list[memoryview] = []
        self.count = 0
        self.size = 0


class Parts:
    """Lines on their way into parts of one queue. One PUT for each shard and 8 MiB."""

    def __init__(self, queue: OpenQueue, task: Task, shards: int, *, name: str | None = None) -> None:
        self.made: list[Made] = []
        self._queue = queue
        self._task = task
        self._shards = shards
        self._name = name
        """The queue's, if it is not the one of the register."""
        self._open: dict[int, _Open] = {}

    def add(self, lines: pa.Array, keys: pa.Array | None) -> Procedure[None]:
        turn = self._task.partition + self._task.batch
        for shard, its in by_shard(self._shards, turn, keys, lines).items():
            part = self._open.setdefault(shard, _Open())
            part.lines.append(held_by(its))
            part.size += len(part.lines[-1])
            part.count += len(its)
            if part.size >= PART_BYTES:
                yield from self._finish(shard)

    def close(self) -> Procedure[None]:
        for shard in sorted(self._open):
            yield from self._finish(shard)

    def _finish(self, shard: int) -> Procedure[None]:
        part, task = self._open.pop(shard), self._task
        name = f"{task.batch}-{task.partition}-{task.attempt}-{(yield NewId())}"
        made = yield from create_part(self._queue, task.transaction, name, b"".join(part.lines), part.count)
        self.made.append(Made(shard, self._shards, made, (yield Now()), self._name))


class DeadLetters:
    """Rows that failed, on their way into parts of a queue's dead letters, which is opened when the first one comes."""

    def __init__(self, bucket: OpenBucket, queue: str | None, task: Task, *, own_register: bool = False) -> None:
        self._own_register = own_register
        """Whether they are published by a register of their own, there being no other queue."""
        self._bucket = bucket
        self._name = None if queue is None else queue + DEAD_SUFFIX
        self._task = task
        self._opened: tuple[OpenQueue, Parts] | None = None

    def take(self, batch: pa.RecordBatch) -> Procedure[pa.RecordBatch]:
        """Take the failed rows out of a batch; the others, without the column that told them apart."""
        if self._name is None:
            return batch
        column = batch.column(DEAD)
        living = batch.drop_columns([DEAD])
        if column.null_count == len(column):
            return living
        yield from self._bury([dead.read(text) for text in column.drop_null().to_pylist()], self._name)
        return living.filter(column.is_null())

    def _bury(self, fallen: list[dead.Fallen], name: str) -> Procedure[None]:
        if self._opened is None:
            # Whoever redrives them asks for the queue they came from, which rows of a table do not have.
            yield from open_queue(self._bucket, name.removesuffix(DEAD_SUFFIX), {})
            queue = yield from open_queue(self._bucket, name, {})
            shards = (yield from sending_settings(queue)).shards
            register = None if self._own_register else name
            self._opened = queue, Parts(queue, self._task, shards, name=register)
        queue, parts = self._opened
        at = segment.time_text((yield Now()))
        letters = []
        for each in fallen:
            letters.append((yield from dead.with_own_body(queue, dead.letter(each, at))))
        lines = pa.array([segment.encode([letter]) for letter in letters], pa.large_binary())
        yield from parts.add(lines, pa.array([letter.key for letter in letters], pa.string()))

    def close(self) -> Procedure[list[Made]]:
        if self._opened is None:
            return []
        yield from self._opened[1].close()
        return self._opened[1].made


def check_dead(schema: StructType, options: SinkOptions) -> None:
    """Rows that failed need somewhere to go, and the other way round."""
    if (options.dead_letters is None) != (DEAD not in schema.fieldNames()):
        raise Invalid(f"the column {DEAD} and the option deadLetters go together; give both or none")


def by_shard(shards: int, turn: int, keys: pa.Array | None, lines: pa.Array) -> dict[int, pa.Array]:
    """The lines of each shard: with a key they go to their key's shard, the others of one task all to one."""
    if not len(lines):
        return {}
    if shards == 1 or keys is None or keys.null_count == len(keys):
        return {shard_of(shards, None, turn): lines}
    distinct = keys.dictionary_encode()
    homes = np.array([shard_of(shards, key, turn) for key in [*distinct.dictionary.to_pylist(), None]])
    home = homes[distinct.indices.fill_null(len(homes) - 1).to_numpy()]
    return {shard: lines.filter(pa.array(home == shard)) for shard in np.unique(home).tolist()}
