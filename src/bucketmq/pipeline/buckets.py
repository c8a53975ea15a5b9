"""Where a pipeline without Spark writes: its own bucket, and those of its targets that lie elsewhere.

What came of a batch of changes or messages is written target by target: one commit for each table, the objects of each
bucket together, one send for each queue. In which order, and what a crash leaves, is decision 0031.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from bucketmq.log import segment
from bucketmq.pipeline.dead import with_own_body
from bucketmq.pipeline.ends import Target, ToQueue
from bucketmq.pipeline.fitting import joined
from bucketmq.pipeline.intake import Bucket
from bucketmq.pipeline.lineage import home_of, is_current
from bucketmq.pipeline.objects import check_keys
from bucketmq.pipeline.shape import column_of
from bucketmq.pipeline.states import State
from bucketmq.pipeline.upserts import ToUpserts, write_rows
from bucketmq.pipeline.writing import Settled, Writing, buckets_of, carried_out, elsewhere, messages_of, writings_of
from bucketmq.procedures.queues import open_queue
from bucketmq.procedures.requests import NewId, Now, Procedure
from bucketmq.procedures.sending.send import send_messages

if TYPE_CHECKING:
    import pyarrow as pa


class Buckets:
    """The pipeline's bucket, and those of its targets that lie elsewhere, which stay open as long as the first."""

    def __init__(self, pipeline: str, targets: Sequence[Target], home: Any) -> None:
        self._pipeline = pipeline
        self._targets = targets
        self._facade = home
        self._home = Bucket(*_inside(home))
        self._others: dict[str, Bucket] = {}
        self._lock = threading.Lock()

    def of(self, url: str | None) -> Bucket:
        if url is None:
            return self._home
        with self._lock:
            if url not in self._others:
                from bucketmq.client import connect

                other = connect(url)
                self._facade.on_close(other.close)
                self._others[url] = Bucket(*_inside(other))
            return self._others[url]

    def open_all(self) -> None:
        for url in buckets_of(self._targets):
            with elsewhere(url):
                self.of(url)

    def check_keys(self, url: str | None, keys: Sequence[str]) -> None:
        with elsewhere(url):
            there = self.of(url)
            there.run(check_keys(there.open, keys))

    def write(self, done: Sequence[Settled]) -> None:
        """Commit the rows of tables, write all objects, then send all messages: as on Spark."""
        for place, target in enumerate(self._targets):
            if isinstance(target, ToUpserts):
                columns = [each.batch.column(column_of(place)) for each in done]
                self._home.run(write_rows(self._home.open, target, columns))
        writings = [one for each in done for one in writings_of(self._targets, each.batch, each.causes)]
        for moves in (False, True):  # what takes a source away comes after all that is made of it
            its: dict[str | None, list[Writing]] = {}
            for writing in writings:
                if writing.moves == moves:
                    its.setdefault(writing.bucket, []).append(writing)
            for url, together in its.items():
                self._carry_out(url, together)
        for place, target in enumerate(self._targets):
            if isinstance(target, ToQueue):
                batches = [messages_of(target, place, each.batch) for each in done]
                self._send(target, [each for each in batches if each.num_rows])

    def _carry_out(self, url: str | None, writings: Sequence[Writing]) -> None:
        with elsewhere(url):
            there = self.of(url)
            home = "" if url is None or all(each.state is None for each in writings) else self._name
            there.run(carried_out(there.open, self._pipeline, writings, self._is_current, home=home))

    def _send(self, target: ToQueue, batches: list[pa.RecordBatch]) -> None:
        if batches:
            with elsewhere(target.bucket):
                there = self.of(target.bucket)
                there.run(_send(there, target, joined(batches)))

    @functools.cached_property
    def _name(self) -> str:
        return str(self._home.run(home_of(self._home.open)))

    def _is_current(self, state: State) -> bool:
        return bool(self._home.run(is_current(self._home.open, state)))


def _inside(bucket: Any) -> tuple[Any, Callable[[Procedure[Any]], Any]]:
    """The open bucket of a `bucketmq.Bucket`, and what carries procedures out on it."""
    return bucket.run(bucket.api.open()), bucket.run


def _send(here: Bucket, target: ToQueue, batch: pa.RecordBatch) -> Procedure[None]:
    from bucketmq.pipeline.letters import Columns
    from bucketmq.pipeline.lines import bytes_of

    name = yield from NewId()
    at = segment.time_text((yield from Now()))
    lines = bytes_of(Columns(batch.schema.names, text=target.text).lines(batch, name, 0, at))
    queue = yield from open_queue(here.open, target.queue, {})
    messages = []
    for message in segment.decode_lines(lines, target.queue) if lines else ():
        messages.append((yield from with_own_body(queue, message)))
    yield from send_messages(queue, messages)
