"""A pipeline without Spark: the same intake, chain and targets for one change or one message at a time.

Made for `Pipeline.watcher`; the handler is run by the library's own watchers and workers, which see to retries and
dead letters. A row that fails is buried at once, as on Spark; an error that is not the row's is raised, so that it is
tried again.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from bucketmq.errors import BucketMQError
from bucketmq.log import segment
from bucketmq.log.bodies import encode_body
from bucketmq.outcomes import Bury, Done, Retry
from bucketmq.pipeline.chain import RAISED, Chain, error_text
from bucketmq.pipeline.columns import arrow_schema
from bucketmq.pipeline.dead import with_own_body
from bucketmq.pipeline.ends import MESSAGE_COLUMNS, FromEvents, Source, Target, ToQueue, ddl_of, is_following
from bucketmq.pipeline.intake import Bucket, intake_of
from bucketmq.pipeline.lineage import home_of, is_current
from bucketmq.pipeline.objects import check_keys
from bucketmq.pipeline.registers import Memory, Registers, TimeoutFailed
from bucketmq.pipeline.resources import of_process
from bucketmq.pipeline.shape import CheckKeys, column_of
from bucketmq.pipeline.states import State
from bucketmq.pipeline.upserts import ToUpserts, write_rows
from bucketmq.pipeline.writing import (
    Settled,
    Writing,
    buckets_of,
    carried_out,
    elsewhere,
    messages_of,
    settled,
    writings_of,
)
from bucketmq.procedures.queues import open_queue
from bucketmq.procedures.requests import NewId, Now, Procedure
from bucketmq.procedures.sending.send import send_messages

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("bucketmq")

RAW = ddl_of({**MESSAGE_COLUMNS, "shard": "int", "offset": "bigint"})
"""A message as the source of Spark gives it."""


def handler(
    name: str, source: Source, chain_of: Callable[[CheckKeys], Chain], targets: Sequence[Target], bucket: Any
) -> Callable[[Any], Done | Retry | Bury]:
    """The handler: given a `Change` where the source is events, a `Delivery` where it is a queue.

    Rows of tables first, then objects, then messages, as on Spark. Into objects it writes what Spark would; into queues
    too, but at least once: a message that was handled and not acked is handled again.
    """
    buckets = Buckets(name, targets, bucket)
    home = buckets.of(None)
    chain = chain_of(buckets.check_keys)
    _load(chain, bucket)
    intake = intake_of(source, lambda: home, collapse=False, follows=any(map(is_following, targets)))
    raw_of = _raw_change if isinstance(source, FromEvents) else _raw_delivery

    keeping = _Keeping(name, home, chain, lambda batch: buckets.write([Settled(batch, ())]))

    def handle(thing: Any) -> Done | Retry | Bury:
        buckets.open_all()  # a bucket that is unavailable is not the rows' fault
        keeping.expire()
        for taken in intake.take(raw_of(thing)):
            ran = chain.run(taken.batch, keeping.memory(thing.id))
            for failed in (*taken.failed, *ran.failed):
                return Bury(failed.error)
            for off in ran.put_off:
                times = thing.attempt - 1
                if times >= off.later_max:
                    return Bury(off.failed(f"given up after coming back {times} times").error)
                return Retry(off.failed("comes back").error, off.later.delay_seconds)
            buckets.write(list(settled(targets, taken, ran)))
        return Done()

    return handle


class _Keeping:
    """The registers of the stage that keeps state, if there is one."""

    def __init__(self, name: str, here: Bucket, chain: Chain, write: Callable[[pa.RecordBatch], None]) -> None:
        self._here = here
        self._write = write
        keyed = [place for place, stage in enumerate(chain.stages) if stage.keyed is not None]
        self._registers = Registers(here.open, name, chain.stages[keyed[0]]) if keyed else None
        self._rest = Chain(chain.stages[keyed[0] + 1 :] if keyed else ())

    def memory(self, message: str) -> Memory | None:
        """What keeps the state while this message is handled."""
        registers = self._registers
        if registers is None:
            return None
        return lambda stage, name, key, batch: self._here.run(registers.apply(message, name, key, batch))

    def expire(self) -> None:
        """Write what comes of keys that timed out. One that cannot be written stays, and is tried again later."""
        registers = self._registers
        if registers is None:
            return
        while True:
            try:
                found = self._here.run(registers.next_expired())
            except TimeoutFailed as failed:  # no fault of the message that is handled
                if isinstance(failed.error, RAISED):
                    raise failed.error from None
                logger.error("action=timeout_failed key=%s %s", failed.key, error_text(registers.stage, failed.error))
                continue
            if found is None:
                return
            name, batch = found
            ran = self._rest.run(batch)
            lost = [*ran.failed, *(each.failed("comes back") for each in ran.put_off)]
            if lost:
                logger.error("action=timeout_failed register=%s %s", name, lost[0].error)
                self._here.run(registers.put_back(name))
                continue
            try:
                for passed in ran.passed:
                    self._write(passed.batch)
                self._here.run(registers.forget_expired(name))
            except BucketMQError:
                self._here.run(registers.put_back(name))
                raise


def _load(chain: Chain, bucket: Any) -> None:
    """Make what the stages use, before a message is claimed that could not be handled without; held until the bucket is
    closed."""
    used = [each for stage in chain.stages for each in stage.uses]
    if not used:
        return
    bucket.on_close(of_process().hold(used))
    for stage in chain.stages:
        of_process().lend(stage.name, stage.uses)


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
        for each in done:
            for writing in writings_of(self._targets, each.batch, each.causes):
                self._carry_out(writing)
        for each in done:
            for place, target in enumerate(self._targets):
                if isinstance(target, ToQueue):
                    self._send(target, messages_of(target, place, each.batch))

    def _carry_out(self, writing: Writing) -> None:
        with elsewhere(writing.bucket):
            there = self.of(writing.bucket)
            home = "" if writing.bucket is None or writing.state is None else self._name
            there.run(carried_out(there.open, self._pipeline, writing, self._is_current, home=home))

    def _send(self, target: ToQueue, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            with elsewhere(target.bucket):
                there = self.of(target.bucket)
                there.run(_send(there, target, batch))

    @functools.cached_property
    def _name(self) -> str:
        return str(self._home.run(home_of(self._home.open)))

    def _is_current(self, state: State) -> bool:
        return bool(self._home.run(is_current(self._home.open, state)))


def _inside(bucket: Any) -> tuple[Any, Callable[[Procedure[Any]], Any]]:
    """The open bucket of a `bucketmq.Bucket`, and what carries procedures out on it."""
    return bucket.run(bucket.api.open()), bucket.run


def _raw_change(change: Any) -> pa.RecordBatch:
    body = msgspec.json.encode(change.event).decode()
    return _raw(id=change.id, body=body, sent_at=datetime.now(UTC), shard=0, offset=0)


def _raw_delivery(delivery: Any) -> pa.RecordBatch:
    body = delivery.body
    raw = isinstance(body, bytes)
    return _raw(
        id=delivery.id,
        key=delivery.key,
        headers=list(delivery.headers.items()) or None,
        body=None if raw or body is None else encode_body(body).decode(),
        body_bytes=body if raw else None,
        sent_at=delivery.sent_at,
        shard=delivery.shard,
        offset=delivery.offset,
    )


def _raw(**columns: Any) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_pylist([columns], schema=arrow_schema(RAW))


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
