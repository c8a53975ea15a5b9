"""A pipeline without Spark: the same intake, chain and targets for a batch of changes or messages; one is a batch of
one.

Made for `Pipeline.watcher`; the handler is run by the library's own watchers and workers, which see to retries and
dead letters. What is handled together is written together, and each is settled by what became of it: a row that fails
is buried at once, as on Spark, and the others are done. An error that is not a row's is raised where there is one
change; of several each is then handled alone, so that it is a failed attempt for as few as possible (decision 0049).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from bucketmq.log.bodies import encode_body
from bucketmq.outcomes import Bury, Done, Outcome, Release, Retry
from bucketmq.pipeline.buckets import opener, write
from bucketmq.pipeline.chain import Chain, PutOff
from bucketmq.pipeline.columns import PLACED_COLUMNS, arrow_schema, ddl_of
from bucketmq.pipeline.content import BYTES_AT_ONCE
from bucketmq.pipeline.ends import FromEvents, Source, Target, is_following
from bucketmq.pipeline.intake import intake_of
from bucketmq.pipeline.keeping import Keeping
from bucketmq.pipeline.resources import of_process
from bucketmq.pipeline.shape import CheckKeys
from bucketmq.pipeline.writing import Buckets, Settled, settled
from bucketmq.procedures.working.work import failure_text

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("bucketmq")

ROWS_AT_ONCE = 25
"""So many rows go through the stages at a time at first, unless the pipeline says how many (`task_rows`)."""

QUICK_SECONDS = 0.5
"""Rows that took less are followed by twice as many."""

BATCH_SECONDS = 5.0
"""After so long nothing more of a batch is begun. Until it is through none of it is settled, and no worker stops."""


class Handler:
    """Handles a `Change` or a list of them where the source is events, a `Delivery` or a list where it is a queue.

    Rows of tables first, then objects, then messages, as on Spark. Into objects it writes what Spark would; into queues
    too, but at least once: a message that was handled and not acked is handled again.
    """

    def __init__(
        self,
        name: str,
        source: Source,
        chain_of: Callable[[CheckKeys], Chain],
        targets: Sequence[Target],
        bucket: Any,
        *,
        task_rows: int | None,
    ) -> None:
        self.__name__ = name  # a watcher that is given no name of its own is called so
        self._targets = targets
        self._buckets = Buckets(name, targets, opener(bucket))
        home = self._buckets.of(None)
        self._chain = chain_of(self._buckets.check_keys)
        _load(self._chain, bucket)
        self._intake = intake_of(source, lambda: home, collapse=False, follows=any(map(is_following, targets)))
        self._raw_of = _raw_change if isinstance(source, FromEvents) else row_of
        self._keeping = Keeping(name, home, self._chain, lambda batch: self._write([Settled(batch, ())]))
        self._rows_at_once = task_rows or ROWS_AT_ONCE

    def _write(self, done: Sequence[Settled]) -> None:
        write(self._buckets, self._targets, done)

    def __call__(self, given: Any) -> Any:
        """What becomes of it, or of each of them."""
        if not isinstance(given, Sequence):
            (outcome,) = self._handle([given])
            return outcome
        try:
            return self._handle(given)
        except Exception as error:
            if len(given) == 1:
                raise
            logger.warning("action=batch_failed pipeline=%s size=%d error=%.200s", self.__name__, len(given), error)
        return self._each_alone(given)

    def _each_alone(self, things: Sequence[Any]) -> list[Outcome]:
        """What became of each by itself; those that are not reached in time are given back, untried."""
        outcomes: list[Outcome] = []
        until = time.monotonic() + BATCH_SECONDS
        for each in things:
            if outcomes and time.monotonic() > until:
                break
            try:
                outcomes += self._handle([each])
            except Exception as error:
                outcomes.append(Retry(failure_text(error)))
        return _with_the_rest_released(outcomes, things)

    def _handle(self, things: Sequence[Any]) -> list[Outcome]:
        """Run the first of them through the stages, as many as there is time and room for, and write what came of them
        together. The rest is given back."""
        self._buckets.open_all()  # a bucket that is unavailable is not the rows' fault
        self._keeping.expire()
        batch = _Batch()
        until = time.monotonic() + BATCH_SECONDS
        rows, start = 1 if self._keeping.keeps else self._rows_at_once, 0
        while start < len(things):
            began = time.monotonic()
            if start and (self._keeping.keeps or began > until or batch.size_bytes > BYTES_AT_ONCE):
                break
            self._run(batch, things[start : start + rows])
            start += rows
            if time.monotonic() - began < QUICK_SECONDS:
                rows *= 2
        self._write(batch.settled)
        return _with_the_rest_released(batch.outcomes, things)

    def _run(self, batch: _Batch, things: Sequence[Any]) -> None:
        """Run some of them through the stages. With a memory it is one: what a key keeps changes message by message,
        and is to be written before the next message changes it."""
        became: dict[int, Outcome] = {}
        for taken in self._intake.take(_raw([self._raw_of(each) for each in things])):
            ran = self._chain.run(taken.batch, self._keeping.memory(things[0].id))
            became |= {each.row: Bury(each.error) for each in taken.failed}
            became |= {taken.rows[each.row]: Bury(each.error) for each in ran.failed}
            for off in ran.put_off:
                row = taken.rows[off.row]
                became[row] = _put_off(off, things[row].attempt - 1)
            batch.settled += settled(self._targets, taken, ran)
        batch.outcomes += [became.get(row, Done()) for row in range(len(things))]


class _Batch:
    """What came of those that went through the stages so far, and what is to be written of them."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.settled: list[Settled] = []

    @property
    def size_bytes(self) -> int:
        return sum(each.batch.nbytes for each in self.settled)


def _with_the_rest_released(outcomes: Sequence[Outcome], things: Sequence[Any]) -> list[Outcome]:
    return [*outcomes, *(Release() for _ in things[len(outcomes) :])]


def _put_off(off: PutOff, times: int) -> Retry | Bury:
    """What becomes of a row that a stage wants to see again, and that came back so many times."""
    if times >= off.later_max:
        return Bury(off.failed(f"given up after coming back {times} times").error)
    return Retry(off.failed("comes back").error, off.later.delay_seconds)


def _load(chain: Chain, bucket: Any) -> None:
    """Make what the stages use, before a message is claimed that could not be handled without; held until the bucket is
    closed."""
    used = [each for stage in chain.stages for each in stage.uses]
    if not used:
        return
    bucket.on_close(of_process().hold(used))
    for stage in chain.stages:
        of_process().lend(stage.name, stage.uses)


def _raw_change(change: Any) -> dict[str, Any]:
    body = msgspec.json.encode(change.event).decode()
    return {"id": change.id, "body": body, "sent_at": datetime.now(UTC), "shard": 0, "offset": 0}


def row_of(delivery: Any) -> dict[str, Any]:
    """A delivery as a row of the source on Spark."""
    body = delivery.body
    raw = isinstance(body, bytes)
    return {
        "id": delivery.id,
        "key": delivery.key,
        "headers": list(delivery.headers.items()) or None,
        "body": None if raw or body is None else encode_body(body).decode(),
        "body_bytes": body if raw else None,
        "sent_at": delivery.sent_at,
        "shard": delivery.shard,
        "offset": delivery.offset,
    }


def _raw(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(ddl_of(PLACED_COLUMNS)))
