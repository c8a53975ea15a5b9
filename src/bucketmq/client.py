"""The blocking facade: `connect(url)` gives a bucket, a bucket gives queues. What each verb does is said in `api/`.

Safe to use from many threads. A bucket does not survive a fork: connect again in the child.
"""

from __future__ import annotations

import asyncio
import atexit
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from bucketmq.api.bucket import BucketApi
from bucketmq.api.dead_letters import DeadApi
from bucketmq.api.opening import Opening
from bucketmq.api.options import StoreOptions
from bucketmq.api.queue import QueueApi
from bucketmq.api.rules import RulesApi
from bucketmq.api.subscription import SubscriptionApi
from bucketmq.api.tables import TableApi
from bucketmq.binding import blocking, plain
from bucketmq.bucket.urls import open_store, without_secrets
from bucketmq.changes import AsyncChange, Change
from bucketmq.deliveries import Batch, DeliveryApi, DeliveryData, HasModel, Settling, deliveries_of
from bucketmq.engines.blocking import Blocking
from bucketmq.engines.perform import Hands
from bucketmq.events.event import ObjectEvent
from bucketmq.facade import BucketFacade, DeadLettersFacade, QueueFacade, RulesFacade, SubscriptionFacade, TableFacade
from bucketmq.notify.lazy import LazyPoster
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.working.keeper import Keeper, hand_in_all
from bucketmq.rulebook import is_async

Result = TypeVar("Result")
Body = TypeVar("Body")


def connect(url: str, *, probe: bool = True, **options: Unpack[StoreOptions]) -> Bucket:
    """Open the bucket at `url`: `s3://name/prefix`, `gs://...`, `az://...`, `file:///folder`, `memory://`.

    Checks that the store honours conditional writes, also in a race, and raises `Unsupported` if not; about ten
    requests, none with `probe=False`. Credentials come from the environment, as for the store's own tools.
    """
    store, prefix = open_store(url, **options)
    poster = LazyPoster()
    bucket = Bucket(Blocking(Hands(store, poster, poster.close)), prefix, probe=probe, where=without_secrets(url))
    bucket.open()
    return bucket


class Delivery(Settling):
    __doc__ = DeliveryData.__doc__

    extend = blocking(DeliveryApi.extend)


class DeliveryOf(HasModel[Body], Delivery):
    """A delivery whose body is a model: what `receive(body=Model)` gives."""


class Subscription(SubscriptionFacade):
    """An independent reader of a queue, with its own progress."""

    if TYPE_CHECKING:

        @overload
        def receive(
            self, limit: int = 10, *, wait_seconds: float = 0.0, lease_seconds: float | None = None, body: None = None
        ) -> Batch[Delivery]: ...
        @overload
        def receive(
            self,
            limit: int = 10,
            *,
            wait_seconds: float = 0.0,
            lease_seconds: float | None = None,
            body: type[Body],
        ) -> Batch[DeliveryOf[Body]]: ...
        def receive(self, limit: int = 10, **options: Any) -> Any: ...
    else:
        receive = blocking(SubscriptionApi[Delivery].receive)
    delivery = blocking(SubscriptionApi[Delivery].delivery)
    flush = blocking(SubscriptionApi[Delivery].flush)
    peek = blocking(SubscriptionApi[Delivery].peek)
    purge = blocking(SubscriptionApi[Delivery].purge)
    run = blocking(SubscriptionApi[Delivery].run)

    def __iter__(self) -> Iterator[Delivery]:
        """Deliveries for ever, each lease kept alive until you settle it or leave the loop. Settle one before asking
        for the next.

        What you were not shown before you left the loop is given back. What you were shown and did not settle is handed
        out again when its lease is over.
        """
        loop = self._api.loop()
        try:
            while True:
                if (delivery := loop.next()) is not None:
                    yield delivery
                else:
                    loop.add(self._run(self._api.next_few()))
        finally:
            loop.leave()


class DeadLetters(DeadLettersFacade):
    """Messages that ran out of attempts or were buried."""

    peek = blocking(DeadApi.peek)
    redrive = blocking(DeadApi.redrive)
    delete = blocking(DeadApi.delete)
    purge = blocking(DeadApi.purge)


class Queue(QueueFacade[Delivery, None], Subscription):
    """A named log of messages with a work queue on it. Its own receive is the subscription `main`."""

    settings = blocking(QueueApi[Delivery].settings)
    send = blocking(QueueApi[Delivery].send)
    send_many = blocking(QueueApi[Delivery].send_many)
    subscription = blocking(QueueApi[Delivery].subscription, Subscription)
    subscriptions = blocking(QueueApi[Delivery].subscriptions)
    remove_subscription = blocking(QueueApi[Delivery].remove_subscription)
    stats = blocking(QueueApi[Delivery].stats)
    tail = blocking(QueueApi[Delivery].tail)
    tails = blocking(QueueApi[Delivery].tails)
    back = blocking(QueueApi[Delivery].back)
    raise_shards = blocking(QueueApi[Delivery].raise_shards)
    trim = blocking(QueueApi[Delivery].trim)
    pause = blocking(QueueApi[Delivery].pause)
    resume = blocking(QueueApi[Delivery].resume)

    @property
    def dead_letters(self) -> DeadLetters:
        return DeadLetters(self._engine, self._api.dead())


class Rules(RulesFacade):
    """The rules of a bucket."""

    add = blocking(RulesApi.add)
    list = blocking(RulesApi.list)
    get = blocking(RulesApi.get)
    secrets = blocking(RulesApi.secrets)
    change_secrets = blocking(RulesApi.change_secrets)
    pause = blocking(RulesApi.pause)
    resume = blocking(RulesApi.resume)
    remove = blocking(RulesApi.remove)
    tidy = blocking(RulesApi.tidy)
    test = blocking(RulesApi.test)
    matching = blocking(RulesApi.matching)
    replay = blocking(RulesApi.replay)


class Table(TableFacade):
    """Rows in Parquet files, replaced and deleted by group, each commit in one step."""

    commit = blocking(TableApi.commit)
    upsert = blocking(TableApi.upsert)
    replace = blocking(TableApi.replace)
    delete = blocking(TableApi.delete)
    snapshot = blocking(TableApi.snapshot)
    read = blocking(TableApi.read)
    drop = blocking(TableApi.drop)
    read_files = blocking(TableApi.read_files)


class Bucket(BucketFacade):
    """A place for queues, and the event bus of its objects. Make one with `connect`."""

    _engine: Blocking

    def __init__(self, engine: Blocking, prefix: str, *, probe: bool, where: str = "") -> None:
        deliveries = partial(deliveries_of, Delivery, DeliveryOf)
        super().__init__(engine, prefix, probe=probe, where=where, deliveries=deliveries, change=_change)
        self._at_exit = partial(_flush_at_exit, engine, weakref.ref(self._api.keeper))
        atexit.register(self._at_exit)

    def open(self) -> None:
        """Probe the store now rather than at the first use."""
        self._run(self._api.open())

    def run(self, procedure: Procedure[Result]) -> Result:
        """Carry out a procedure on this bucket: for programs that bring procedures of their own, made of those of
        `api`."""
        return self._engine.run(procedure)

    queue = plain(BucketApi.queue, Queue)
    existing_queue = plain(BucketApi.existing_queue, Queue)
    queues = blocking(BucketApi.queues)
    table = plain(BucketApi.table, Table)
    tables = blocking(BucketApi.tables)

    put = blocking(BucketApi.put)
    put_many = blocking(BucketApi.put_many)
    get = blocking(BucketApi.get)
    get_many = blocking(BucketApi.get_many)
    get_json = blocking(BucketApi.get_json)
    look = blocking(BucketApi.look)
    delete = blocking(BucketApi.delete)
    delete_many = blocking(BucketApi.delete_many)
    copy = blocking(BucketApi.copy)
    move = blocking(BucketApi.move)
    move_many = blocking(BucketApi.move_many)
    report = blocking(BucketApi.report)
    trigger = blocking(BucketApi.trigger)
    sweep = blocking(BucketApi.sweep)
    recover = blocking(BucketApi.recover)
    audit = blocking(BucketApi.audit)
    notify = blocking(BucketApi.notify)
    run_watchers = blocking(BucketApi.run_watchers)

    @property
    def rules(self) -> Rules:
        return Rules(self._engine, self._api.rules)

    def close(self) -> None:
        """Hand in settlements that wait and stop workers and the background work. Closing again does nothing.

        If some settlements cannot be handed in, the others are, and the first error is raised when all has ended.
        """
        if self._hands.closed:
            return
        try:
            self._run(self._api.close())
        finally:
            atexit.unregister(self._at_exit)
            self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _change(
    engine: Blocking, bucket: Opening, handler: Callable[[Any], Any], event: ObjectEvent, attempt: int
) -> Change | AsyncChange:
    """What a handler is given; an async one runs procedures on a thread, because it is on an event loop."""
    if is_async(handler):
        return AsyncChange(bucket, event, lambda each: asyncio.to_thread(engine.run, each), attempt)
    return Change(bucket, event, engine.run, attempt)


def _flush_at_exit(engine: Blocking, keeper: weakref.ref[Keeper]) -> None:
    """A program that ends without closing its bucket has its settlements handed in all the same."""
    kept = keeper()
    if kept is not None and not kept.stop.is_open and engine.hands.is_own_process:
        engine.run(hand_in_all(kept))
