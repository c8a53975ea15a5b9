"""Draining: a job whose tasks are workers of a subscription, beside whatever other workers it has.

A stream reads the log by offsets and settles nothing. Where a queue is shared with ordinary workers, messages must be
claimed instead: every task here receives under leases, has a handler called for many messages at a time, and settles by
what it says. Spark gives the tasks a place to run; which task gets which message is decided by the heads, as for any
worker. An executor that dies loses nothing: its leases expire, and another worker gets the messages.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from bucketmq.client import Bucket, Delivery, connect
from bucketmq.errors import BucketMQError, Invalid, NotFound, Unavailable
from bucketmq.log.layout import head_of
from bucketmq.outcomes import Bury, Done, Outcome, Release, Retry
from bucketmq.pipeline.bisection import Bad, bisected
from bucketmq.pipeline.columns import PLACED_COLUMNS, arrow_schema, ddl_of
from bucketmq.pipeline.watcher import row_of
from bucketmq.procedures.checks import check_seconds
from bucketmq.procedures.claiming.bodies import fetch_bodies
from bucketmq.procedures.claiming.claim import Lot
from bucketmq.procedures.claiming.receive import open_subscription
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.requests import Call, Procedure
from bucketmq.procedures.verbs import list_page
from bucketmq.procedures.working.work import Piece, Work, failure_text, work
from bucketmq.queue.settings import LEASE_SECONDS_MAX, LEASE_SECONDS_MIN, MAIN, check_name
from bucketmq.spark.opened import opened
from bucketmq.spark.options import place_of
from bucketmq.spark.running.tasks import on_executors

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

TASKS_DEFAULT = 2
TASKS_MAX = 1_000
ROWS_MAX = 10_000
CALLS_MAX = 64
"""A batch that fails is divided until the messages at fault are found, in no more calls of the handler than this."""

Kind = Literal["deliveries", "arrow"]
Handle = Callable[[Bucket, Any], Any]
Place = tuple[int, int]


class Drained(msgspec.Struct, frozen=True):
    """What one task did. Attempts of the task that died are not counted."""

    task: int
    received: int = 0
    done: int = 0
    retried: int = 0
    buried: int = 0
    released: int = 0


class Share(msgspec.Struct, frozen=True):
    """What one task is to do."""

    task: int
    url: str
    queue: str
    subscription: str
    handle: Any
    kind: Kind
    messages_max: int | None
    seconds_max: float
    rows_max: int
    lease_seconds: float | None
    options: dict[str, str]


def drain(
    spark: SparkSession,
    url: str,
    queue: str,
    handle: Handle,
    *,
    subscription: str = MAIN,
    kind: Kind = "deliveries",
    tasks: int | None = None,
    messages_max: int | None = None,
    seconds_max: float = 60.0,
    rows_max: int = 1000,
    lease_seconds: float | None = None,
    options: Mapping[str, str] | None = None,
) -> list[Drained]:
    """Have executors receive and handle what a subscription has, until nothing is there to receive.

    `handle(bucket, rows)` is called with up to `rows_max` messages: a list of deliveries, or for the kind "arrow" a
    record batch (id, key, headers, body, body_bytes, sent_at, shard, offset, attempt). It returns nothing when all are
    done, one outcome (`Done`, `Retry`, `Bury`, `Release`) for all of them, or a list with an outcome or None for each.
    If it raises, the batch is divided and tried again until those at fault are alone: these are retried later as the
    queue's settings say, and are dead letters in the end. `Unavailable` is a retry for the whole batch. So a handler
    may see a message twice, as every handler may. Leases are kept alive while it works.

    `tasks` tasks (one for each core by default) stop early after `messages_max` messages in all, and claim nothing new
    after `seconds_max`.
    """
    check_name(subscription, "subscription")
    if kind not in ("deliveries", "arrow"):
        raise Invalid(f"kind must be deliveries or arrow, not {kind!r}")
    if not 1 <= rows_max <= ROWS_MAX:
        raise Invalid(f"rows_max must be 1 to {ROWS_MAX:,}, not {rows_max}")
    if messages_max is not None and messages_max < 1:
        raise Invalid(f"messages_max must be 1 or more, not {messages_max}")
    count = _cores(spark) if tasks is None else tasks
    if not 1 <= count <= TASKS_MAX:
        raise Invalid(f"tasks must be 1 to {TASKS_MAX:,}, not {tasks}")
    if lease_seconds is not None:
        check_seconds(lease_seconds, "lease_seconds", low=LEASE_SECONDS_MIN, high=LEASE_SECONDS_MAX)
    seconds = check_seconds(seconds_max, "seconds_max", high=LEASE_SECONDS_MAX)
    place = place_of(url, queue, options or {})
    found = opened(place)
    found.run(_check_subscription(found.queue, subscription))
    shares = [
        Share(
            task,
            place.url,
            queue,
            subscription,
            handle,
            kind,
            None if messages_max is None else messages_max // count + (task < messages_max % count),
            seconds,
            rows_max,
            lease_seconds,
            dict(options or {}),
        )
        for task in range(count)
    ]
    # The handler goes with the function, which Spark pickles by value: it may be one of the caller's main module.
    places = {share.task: share for share in shares}
    return on_executors(spark, lambda task: drain_share(places[task]), range(count))


def _cores(spark: SparkSession) -> int:
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect has no context, and says so with errors of several kinds
        return TASKS_DEFAULT


def _check_subscription(queue: OpenQueue, name: str) -> Procedure[None]:
    """A mistyped name must not make a subscription, which would receive everything."""
    page = yield from list_page(f"{queue.keys.heads}{name}/", limit=1)
    if name != MAIN and not [entry for entry in page.entries if head_of(entry.key)[0] == name]:
        raise NotFound(f"queue {queue.name!r} has no subscription {name!r}; make it: queue.subscription({name!r})")


def drain_share(share: Share) -> Drained:
    """One task: a worker that ends when nothing is there. On an executor, or anywhere."""
    if share.messages_max == 0:
        return Drained(share.task)
    with connect(share.url, probe=False, **share.options) as bucket:
        return _Drain(share, bucket).run()


class _Drain:
    """One running task."""

    def __init__(self, share: Share, bucket: Bucket) -> None:
        self._share = share
        self._bucket = bucket
        self._until = time.monotonic() + share.seconds_max
        self._counts = dict.fromkeys(("received", "done", "retried", "buried", "released"), 0)
        self._error: BucketMQError | None = None
        self._work: Work | None = None

    def run(self) -> Drained:
        self._bucket.run(self._worker())
        if self._error is not None:
            raise self._error
        return Drained(self._share.task, **self._counts)

    def _worker(self) -> Procedure[None]:
        share, api = self._share, self._bucket.api
        queue = yield from api.existing_queue(share.queue).open()
        sub = open_subscription(queue, share.subscription)
        yield from api.start_keeper()

        def wrap(lot: Lot) -> Procedure[list[Delivery]]:
            return api.lent.deliveries(lot, (yield from fetch_bodies(queue, lot.messages)))

        self._work = Work(
            sub,
            api.keeper,
            self._handle,
            wrap,
            concurrency=1,
            prefetch=self._room(),
            lease_seconds=share.lease_seconds or queue.settings.lease_seconds,
            stop_when_empty=True,
            batch=share.rows_max,
            trims=False,
        )
        yield from work(self._work)

    def _room(self) -> int:
        """How many messages to claim next."""
        most = self._share.messages_max
        return self._share.rows_max if most is None else min(self._share.rows_max, most - self._counts["received"])

    def _handle(self, pieces: list[Piece]) -> Procedure[list[object]]:
        self._counts["received"] += len(pieces)
        outcomes: list[Outcome] = yield from Call(self._outcomes, [piece.delivery for piece in pieces])
        for outcome in outcomes:
            self._counts[_NAMES[type(outcome)]] += 1
        assert self._work is not None
        room = self._room()
        if room <= 0 or time.monotonic() >= self._until or self._error is not None:
            self._work.stop()
        else:
            self._work.prefetch = room
        return list(outcomes)

    def _outcomes(self, deliveries: list[Delivery]) -> list[Outcome]:
        """What becomes of each. Never raises what the handler raised. What it settled itself counts as done."""
        found: dict[Place, Outcome] = {}
        rows = deliveries
        if self._share.kind == "arrow":
            found = {_place(each): Retry(text) for each in deliveries if (text := _unreadable(each)) is not None}
            rows = [each for each in deliveries if _place(each) not in found]
        try:
            self._try(rows, found)
        except _WrongAnswer as error:
            self._error = Invalid(str(error))
        return [found.get(_place(each), Done() if each.settled else Release()) for each in deliveries]

    def _try(self, deliveries: Sequence[Delivery], found: dict[Place, Outcome]) -> None:
        """Call the handler, for all or in parts; `found` gets what becomes of each, by its place."""

        def call(start: int, stop: int) -> None:
            left = [each for each in deliveries[start:stop] if not each.settled]
            if not left:
                return
            try:
                answer = self._share.handle(self._bucket, arrow_of(left) if self._share.kind == "arrow" else left)
            except Unavailable as error:
                answer = Retry(failure_text(error))
            found.update(zip(map(_place, left), _outcomes_of(answer, len(left)), strict=True))

        for part in bisected(call, 0, len(deliveries), raises=(_WrongAnswer,), calls_max=CALLS_MAX):
            if isinstance(part, Bad):
                retry = Retry(failure_text(part.error))
                found |= {_place(each): retry for each in deliveries[part.start : part.stop] if not each.settled}


_NAMES = {Done: "done", Retry: "retried", Bury: "buried", Release: "released"}


class _WrongAnswer(Exception):
    """The handler returned something that says nothing about its messages: it must be corrected, not tried again."""


def _place(delivery: Delivery) -> Place:
    return delivery.shard, delivery.offset


def _outcomes_of(answer: object, count: int) -> list[Outcome]:
    if isinstance(answer, list | tuple):
        if len(answer) != count:
            raise _WrongAnswer(f"the handler returned {len(answer)} outcomes for {count} messages; return one for each")
        return [_outcome(each) for each in answer]
    return [_outcome(answer)] * count


def _outcome(answer: object) -> Outcome:
    if isinstance(answer, type) and issubclass(answer, Outcome):
        answer = answer()  # `Retry` means `Retry()`
    if answer is None:
        return Done()
    if not isinstance(answer, Outcome):
        raise _WrongAnswer(
            f"the handler returned {answer!r:.80}; return None, an outcome (Done, Retry, Bury, Release), or a list"
        )
    return answer


def _unreadable(delivery: Delivery) -> str | None:
    """Why a body cannot be read, if so: a large one may be gone."""
    try:
        delivery.body  # noqa: B018  # looking is what fails
    except BucketMQError as error:
        return str(error)
    return None


def arrow_of(deliveries: Sequence[Delivery]) -> pa.RecordBatch:
    """Deliveries as rows, like those of the source, and with the attempt."""
    import pyarrow as pa

    rows = [{**row_of(each), "attempt": each.attempt} for each in deliveries]
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(ddl_of({**PLACED_COLUMNS, "attempt": "int"})))
