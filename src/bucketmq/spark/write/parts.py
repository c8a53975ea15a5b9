"""Parts: what a task writes. Lines become objects that nobody reads before a segment names them; several are on their
way to the store while the next lines are made."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from math import ceil
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from xxhash import xxh3_64_hexdigest

from bucketmq.log import segment
from bucketmq.pipeline import dead
from bucketmq.pipeline.dead import DEAD, Fallen
from bucketmq.pipeline.texts import held_by
from bucketmq.procedures.bulk.publish import Made, create_part
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.queues import open_queue
from bucketmq.procedures.requests import NewId, Now, Procedure
from bucketmq.procedures.sending.shards import sending_settings
from bucketmq.queue.message import Message
from bucketmq.queue.routing import shard_of
from bucketmq.queue.settings import DEAD_SUFFIX
from bucketmq.spark.opened import Opened

PART_BYTES = 8 << 20
"""A part is closed when it is so large: a worker that receives one of its messages reads all of it."""

ON_THEIR_WAY = 4
"""So many parts of a task are being written at a time, at most."""

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""Where Spark tells a task what it runs for. Not a documented interface: used where there, missed where not."""


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


class Uploads:
    """What a task is writing. A part that could not be written is an error of the next one, or of asking for it."""

    def __init__(self, here: Opened) -> None:
        self.here = here
        self._pool = ThreadPoolExecutor(ON_THEIR_WAY, thread_name_prefix="bucketmq-part")
        self._waiting: deque[Future[Made]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        self._pool.shutdown(cancel_futures=kind is not None)

    def begin(self, writing: Procedure[Made]) -> Future[Made]:
        """Begin to write a part; waits for the oldest one if too many are on their way."""
        if len(self._waiting) >= ON_THEIR_WAY:
            self._waiting.popleft().result()
        self._waiting.append(self._pool.submit(self.here.run, writing))
        return self._waiting[-1]


class Parts:
    """Lines on their way into parts of one queue. One PUT for each shard and 8 MiB."""

    def __init__(
        self,
        uploads: Uploads,
        queue: OpenQueue,
        task: Task,
        *,
        name: str | None = None,
        vouched: bool = False,
        due: int = 0,
    ) -> None:
        self._uploads = uploads
        self._queue = queue
        self._task = task
        self._shards = uploads.here.run(sending_settings(queue)).shards
        self._name = name
        """The queue's, if it is not the one of the register."""
        self._due = due
        """The second from which on lines may be in the log; 0 for at once."""
        self._vouched = vouched
        """Whether all lines are messages in UTF-8 whose body comes last."""
        self._open: dict[int, list[pa.Array]] = {}
        self._sizes: dict[int, int] = {}
        self._begun: list[Future[Made]] = []

    def add(self, lines: pa.Array, keys: pa.Array | None) -> None:
        turn = self._task.partition + self._task.batch
        for shard, its in by_shard(self._shards, turn, keys, lines).items():
            self._open.setdefault(shard, []).append(its)
            self._sizes[shard] = self._sizes.get(shard, 0) + len(held_by(its))
            if self._sizes[shard] >= PART_BYTES:
                self._begin(shard)

    def close(self) -> list[Made]:
        """Write what is left; all parts, in the order of their lines."""
        for shard in sorted(self._open):
            self._begin(shard)
        return [part.result() for part in self._begun]

    def _begin(self, shard: int) -> None:
        lines = self._open.pop(shard)
        del self._sizes[shard]
        self._begun.append(self._uploads.begin(self._write(shard, lines)))

    def _write(self, shard: int, lines: list[pa.Array]) -> Procedure[Made]:
        task = self._task
        name = f"{task.batch}-{task.partition}-{task.attempt}-{(yield from NewId())}"
        body = b"".join([held_by(each) for each in lines])
        xxh3 = xxh3_64_hexdigest(body) if self._vouched else ""
        made = yield from create_part(self._queue, task.transaction, name, body, sum(map(len, lines)), xxh3=xxh3)
        return Made(shard, self._shards, made, (yield from Now()), self._name, self._due)


class DeadLetters:
    """Rows that failed, on their way into parts of a queue's dead letters, and those that come back, on their way into
    parts of the queue that they are from. Queues are opened when the first row for them comes."""

    def __init__(self, uploads: Uploads, queue: str, task: Task) -> None:
        self._uploads = uploads
        self._name = queue + DEAD_SUFFIX
        self._task = task
        self._opened: dict[tuple[str, int] | None, tuple[OpenQueue, Parts]] = {}

    def take(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Take the failed rows out of a batch; the others, without the column that told them apart."""
        column = batch.column(DEAD)
        living = batch.drop_columns([DEAD])
        if column.null_count == len(column):
            return living
        by_place: dict[tuple[str, int] | None, list[Fallen]] = {}
        now = self._uploads.here.run(_now())
        for fallen in map(dead.read, column.drop_null().to_pylist()):
            back = fallen.back
            place = None if back is None else (back.queue, ceil(now + back.delay_seconds))
            by_place.setdefault(place, []).append(fallen)
        for place, its in by_place.items():
            queue, parts = self._open(place)
            letters = self._uploads.here.run(_letters(queue, its, now))
            lines = pa.array([segment.encode([letter]) for letter in letters], pa.large_binary())
            parts.add(lines, pa.array([letter.key for letter in letters], pa.string()))
        return living.filter(column.is_null())

    def close(self) -> list[Made]:
        dead_last = sorted(self._opened.items(), key=lambda each: each[0] is None)
        return [made for _, (_, parts) in dead_last for made in parts.close()]

    def _open(self, place: tuple[str, int] | None) -> tuple[OpenQueue, Parts]:
        """The queue that rows come back to when they are due, or that of dead letters."""
        if place not in self._opened:
            here = self._uploads.here
            name, due = place or (self._name, 0)
            if place is None:
                # Whoever redrives them asks for the queue they came from, which rows of a table do not have.
                here.run(open_queue(here.queue.bucket, name.removesuffix(DEAD_SUFFIX), {}))
            queue: OpenQueue = here.run(open_queue(here.queue.bucket, name, {}))
            own = None if place is None else name  # the register is that of dead letters
            self._opened[place] = queue, Parts(self._uploads, queue, self._task, name=own, due=due)
        return self._opened[place]


def _now() -> Procedure[float]:
    return (yield from Now())


def _letters(queue: OpenQueue, fallen: list[Fallen], now: float) -> Procedure[list[Message]]:
    at = segment.time_text(now)
    letters = []
    for each in fallen:
        letters.append((yield from dead.with_own_body(queue, dead.letter(each, at))))
    return letters


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
