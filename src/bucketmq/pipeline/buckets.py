"""How a pipeline without Spark opens its buckets and writes to them.

What came of a batch of changes or messages is written target by target: one commit for each table, the objects of each
bucket together, one send for each queue. In which order, and what a crash leaves, is decision 0031.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from bucketmq.log import segment
from bucketmq.pipeline.dead import with_own_body
from bucketmq.pipeline.ends import Target, ToQueue
from bucketmq.pipeline.fitting import joined
from bucketmq.pipeline.intake import Bucket
from bucketmq.pipeline.shape import column_of
from bucketmq.pipeline.upserts import ToUpserts, write_rows
from bucketmq.pipeline.writing import Buckets, Settled, Writing, elsewhere, messages_of, writings_of
from bucketmq.procedures.queues import open_queue
from bucketmq.procedures.requests import NewId, Now, Procedure
from bucketmq.procedures.sending.send import send_messages

if TYPE_CHECKING:
    import pyarrow as pa


def opener(facade: Any) -> Callable[[str | None], Bucket]:
    """Opens the buckets of targets beside a `bucketmq.Bucket`, which is None: they stay open as long as that one."""
    home = _inside(facade)
    others: dict[str, Bucket] = {}
    lock = threading.Lock()

    def of(url: str | None) -> Bucket:
        if url is None:
            return home
        with lock:
            if url not in others:
                from bucketmq.client import connect

                other = connect(url)
                facade.on_close(other.close)
                others[url] = _inside(other)
            return others[url]

    return of


def _inside(bucket: Any) -> Bucket:
    return Bucket(bucket.run(bucket.api.open()), bucket.run)


def write(buckets: Buckets, targets: Sequence[Target], done: Sequence[Settled]) -> None:
    """Commit the rows of tables, write all objects, then send all messages: as on Spark."""
    for place, target in enumerate(targets):
        if isinstance(target, ToUpserts):
            home = buckets.of(None)
            home.run(write_rows(home.open, target, [each.batch.column(column_of(place)) for each in done]))
    writings = [one for each in done for one in writings_of(targets, each.batch, each.causes)]
    for moves in (False, True):  # what takes a source away comes after all that is made of it
        its: dict[str | None, list[Writing]] = {}
        for writing in writings:
            if writing.moves == moves:
                its.setdefault(writing.bucket, []).append(writing)
        for together in its.values():
            buckets.carry_out(together)
    for place, target in enumerate(targets):
        if isinstance(target, ToQueue):
            batches = [batch for each in done if (batch := messages_of(target, place, each.batch)).num_rows]
            if batches:
                with elsewhere(target.bucket):
                    there = buckets.of(target.bucket)
                    there.run(_send(there, target, joined(batches)))


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
