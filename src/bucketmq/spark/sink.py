"""Writing: executors write parts, the driver publishes them as one segment for each shard.

A task may run twice, a batch may run twice, and what they wrote stays where it is: only the parts that one commit
publishes become messages, and `bucketmq.procedures.publish` sees to it that one commit does. So nothing is deleted
here, in `abort` least of all: Spark also calls it when a commit raised that had landed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any

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
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.publish import Made, Published, create_part, forget, publish
from bucketmq.procedures.requests import NewId, Now, Procedure
from bucketmq.procedures.routing import shard_of
from bucketmq.procedures.shards import sending_settings
from bucketmq.queue.message import Message
from bucketmq.spark import checkpoint
from bucketmq.spark.letters import Columns
from bucketmq.spark.opened import Opened, opened, spare_the_collector
from bucketmq.spark.options import SinkOptions

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


class _Writer:
    """What batch and stream writers have in common."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._columns = Columns(schema.fieldNames(), text=options.text)

    def __reduce__(self) -> Any:
        return type(self), (self._options, self._schema)

    @property
    def _opened(self) -> Opened:
        return opened(self._options.place, create=True)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task as parts. One PUT for each shard and 8 MiB."""
        spare_the_collector()
        task = Task(self._options.transaction)
        made = self._opened.run(_write(self._opened.queue, task, self._columns, iterator))
        return Written(tuple(made), task.query_id)

    def abort(self, messages: list[WriterCommitMessage | None], *_: Any) -> None:
        """Leave everything as it is: what was published stays, and the rest is removed by age as an orphan."""
        count = sum(len(message.made) for message in messages if isinstance(message, Written))
        log.warning("a write was aborted; its %d parts stay until they are removed as orphans", count)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """`df.write`. With a `txn` the same write done again appends nothing; without, every write is one of its own."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        made = _all_made(messages)
        if self._options.transaction is not None:
            done = self._opened.run(publish(self._opened.queue, self._options.transaction, self._options.batch, made))
            _tell(self._options.transaction, done)
        else:
            self._opened.run(_publish_once(self._opened.queue, made))


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """`df.writeStream`. Once for each batch of the query, however often Spark runs it."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        transaction = self._options.transaction or _query_id(self._options.checkpoint, messages)
        if transaction is None:
            if not _all_made(messages):
                return  # nothing to publish, and nobody to remember it for
            raise Invalid("Spark does not tell which query this is; give the sink a name with the option txn")
        offsets = checkpoint.offsets_of(self._options.checkpoint, batchId)
        done = self._opened.run(publish(self._opened.queue, transaction, batchId, _all_made(messages), offsets))
        _tell(transaction, done)


def _query_id(location: str | None, messages: Iterable[WriterCommitMessage | None]) -> str | None:
    told = {message.query_id for message in messages if isinstance(message, Written) and message.query_id}
    return told.pop() if len(told) == 1 else checkpoint.query_id(location)


def _all_made(messages: Iterable[WriterCommitMessage | None]) -> list[Made]:
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
        self.lines: list[bytes] = []
        self.count = 0
        self.size = 0


def _write(queue: OpenQueue, task: Task, columns: Columns, batches: Iterable[pa.RecordBatch]) -> Procedure[list[Made]]:
    shards = (yield from sending_settings(queue)).shards
    name: str = yield NewId()
    now: float = yield Now()
    at = segment.time_text(now)
    turn = task.partition + task.batch
    sent = 0
    made: list[Made] = []
    parts: dict[int, _Open] = {}
    for batch in batches:
        messages = columns.messages(batch, name, sent, at)
        sent += len(messages)
        for shard, its in _by_shard(shards, turn, messages).items():
            part = parts.setdefault(shard, _Open())
            lines = segment.encode(its)
            part.lines.append(lines)
            part.size += len(lines)
            part.count += len(its)
            if part.size >= PART_BYTES:
                made.append((yield from _close(queue, task, shard, shards, parts.pop(shard))))
    for shard, part in sorted(parts.items()):
        made.append((yield from _close(queue, task, shard, shards, part)))
    return made


def _close(queue: OpenQueue, task: Task, shard: int, shards: int, part: _Open) -> Procedure[Made]:
    name = f"{task.batch}-{task.partition}-{task.attempt}-{(yield NewId())}"
    made = yield from create_part(queue, task.transaction, name, b"".join(part.lines), part.count)
    return Made(shard, shards, made, (yield Now()))


def _by_shard(shards: int, turn: int, messages: list[Message]) -> dict[int, list[Message]]:
    """Keyed messages go to their key's shard, the others of one task all to one."""
    if shards == 1:
        return {0: messages} if messages else {}
    homes: dict[str | None, int] = {}
    found: dict[int, list[Message]] = {}
    for message in messages:
        home = homes.get(message.key)
        if home is None:
            home = homes[message.key] = shard_of(shards, message.key, turn)
        found.setdefault(home, []).append(message)
    return found
