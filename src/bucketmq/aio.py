"""The asyncio facade: the same names as `bucketmq.client`, awaited, bound to the same verbs.

```python
async with bucketmq.aio.connect("s3://inbox") as bucket:
    await bucket.queue("jobs").send({"n": 2})
```

A bucket belongs to the event loop it is first used in.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, overload

from bucketmq.api.bucket import BucketApi
from bucketmq.api.dead_letters import DeadApi
from bucketmq.api.opening import Opening
from bucketmq.api.options import StoreOptions
from bucketmq.api.queue import QueueApi
from bucketmq.api.rules import RulesApi
from bucketmq.api.subscription import SubscriptionApi
from bucketmq.api.tables import TableApi
from bucketmq.binding import awaiting, looking_like, plain
from bucketmq.bucket.urls import open_store, without_secrets
from bucketmq.changes import AsyncChange, Change
from bucketmq.deliveries import Batch, DeliveryApi, DeliveryData, HasModel, deliveries_of, settle_now
from bucketmq.engines.asynchronous import Asynchronous
from bucketmq.engines.perform import Hands
from bucketmq.events.event import ObjectEvent
from bucketmq.facade import BucketFacade, DeadLettersFacade, QueueFacade, RulesFacade, SubscriptionFacade, TableFacade
from bucketmq.notify.lazy import LazyPoster
from bucketmq.procedures.requests import Procedure
from bucketmq.rulebook import is_async

Given = ParamSpec("Given")
Result = TypeVar("Result")
Body = TypeVar("Body")


def connect(url: str, *, probe: bool = True, **options: Unpack[StoreOptions]) -> Bucket:
    """Open the bucket at `url`: `s3://name/prefix`, `gs://...`, `az://...`, `file:///folder`, `memory://`.

    The first use, or `async with`, checks that the store honours conditional writes, also in a race, and raises
    `Unsupported` if not; about ten requests, none with `probe=False`. Credentials come from the environment, as for
    the store's own tools.
    """
    store, prefix = open_store(url, **options)
    poster = LazyPoster()
    engine = Asynchronous(Hands(store, poster, poster.close))
    return Bucket(engine, prefix, probe=probe, where=without_secrets(url))


def _settling(
    verb: Callable[Concatenate[Any, Given], None],
) -> Callable[Concatenate[Any, Given], Coroutine[Any, Any, None]]:
    """A verb that notes what becomes of a delivery; to wait for the bucket is a procedure of its own."""

    async def call(self: Delivery, /, *args: Any, wait: bool = False, **options: Any) -> None:
        if args or options:
            note(self, *args, **options)
        else:
            note(self)  # an ack, once for each message: passing nothing on is faster
        if wait:
            await self._run(settle_now(self.lot, self.offset))

    note: Callable[..., None] = verb
    made: Callable[Concatenate[Any, Given], Coroutine[Any, Any, None]] = looking_like(verb, call)
    return made


class Delivery(DeliveryData):
    __doc__ = DeliveryData.__doc__

    ack = _settling(DeliveryApi.ack)
    retry = _settling(DeliveryApi.retry)
    bury = _settling(DeliveryApi.bury)
    release = _settling(DeliveryApi.release)
    extend = awaiting(DeliveryApi.extend)


class DeliveryOf(HasModel[Body], Delivery):
    """A delivery whose body is a model: what `receive(body=Model)` gives."""


class Deliveries(AsyncIterator[Delivery]):
    """A loop over a subscription. Not an async generator: the event loop would end that some time after it was left,
    perhaps after its bucket was closed."""

    def __init__(
        self, run: Callable[[Procedure[Any]], Coroutine[Any, Any, Any]], api: SubscriptionApi[Delivery]
    ) -> None:
        self._run = run
        self._api = api
        self._loop = api.loop()

    async def __anext__(self) -> Delivery:
        while not self._loop.ended:
            if (delivery := self._loop.next()) is not None:
                return delivery
            self._loop.add(await self._run(self._api.next_few()))
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Leave the loop."""
        self._loop.leave()

    def __del__(self) -> None:
        self._loop.leave()


class Subscription(SubscriptionFacade):
    """An independent reader of a queue, with its own progress."""

    if TYPE_CHECKING:

        @overload
        async def receive(
            self, limit: int = 10, *, wait_seconds: float = 0.0, lease_seconds: float | None = None, body: None = None
        ) -> Batch[Delivery]: ...
        @overload
        async def receive(
            self,
            limit: int = 10,
            *,
            wait_seconds: float = 0.0,
            lease_seconds: float | None = None,
            body: type[Body],
        ) -> Batch[DeliveryOf[Body]]: ...
        async def receive(self, limit: int = 10, **options: Any) -> Any: ...
    else:
        receive = awaiting(SubscriptionApi[Delivery].receive)
    delivery = awaiting(SubscriptionApi[Delivery].delivery)
    flush = awaiting(SubscriptionApi[Delivery].flush)
    peek = awaiting(SubscriptionApi[Delivery].peek)
    purge = awaiting(SubscriptionApi[Delivery].purge)
    run = awaiting(SubscriptionApi[Delivery].run)

    def __aiter__(self) -> AsyncIterator[Delivery]:
        """Deliveries for ever, each lease kept alive until you settle it or leave the loop. Settle one before asking
        for the next.

        What you were not shown before you left the loop is given back. What you were shown and did not settle is handed
        out again when its lease is over.
        """
        return Deliveries(self._run, self._api)


class DeadLetters(DeadLettersFacade):
    """Messages that ran out of attempts or were buried."""

    peek = awaiting(DeadApi.peek)
    redrive = awaiting(DeadApi.redrive)
    delete = awaiting(DeadApi.delete)
    purge = awaiting(DeadApi.purge)


class Queue(QueueFacade[Delivery, Coroutine[Any, Any, None]], Subscription):
    """A named log of messages with a work queue on it. Its own receive is the subscription `main`."""

    settings = awaiting(QueueApi[Delivery].settings)
    send = awaiting(QueueApi[Delivery].send)
    send_many = awaiting(QueueApi[Delivery].send_many)
    subscription = awaiting(QueueApi[Delivery].subscription, Subscription)
    subscriptions = awaiting(QueueApi[Delivery].subscriptions)
    remove_subscription = awaiting(QueueApi[Delivery].remove_subscription)
    stats = awaiting(QueueApi[Delivery].stats)
    tail = awaiting(QueueApi[Delivery].tail)
    tails = awaiting(QueueApi[Delivery].tails)
    back = awaiting(QueueApi[Delivery].back)
    raise_shards = awaiting(QueueApi[Delivery].raise_shards)
    trim = awaiting(QueueApi[Delivery].trim)
    pause = awaiting(QueueApi[Delivery].pause)
    resume = awaiting(QueueApi[Delivery].resume)

    @property
    def dead_letters(self) -> DeadLetters:
        return DeadLetters(self._engine, self._api.dead())


class Rules(RulesFacade):
    """The rules of a bucket."""

    add = awaiting(RulesApi.add)
    list = awaiting(RulesApi.list)
    get = awaiting(RulesApi.get)
    secrets = awaiting(RulesApi.secrets)
    change_secrets = awaiting(RulesApi.change_secrets)
    pause = awaiting(RulesApi.pause)
    resume = awaiting(RulesApi.resume)
    remove = awaiting(RulesApi.remove)
    tidy = awaiting(RulesApi.tidy)
    test = awaiting(RulesApi.test)
    matching = awaiting(RulesApi.matching)
    replay = awaiting(RulesApi.replay)


class Table(TableFacade):
    """Rows in Parquet files, replaced and deleted by group, each commit in one step."""

    commit = awaiting(TableApi.commit)
    upsert = awaiting(TableApi.upsert)
    replace = awaiting(TableApi.replace)
    delete = awaiting(TableApi.delete)
    snapshot = awaiting(TableApi.snapshot)
    read = awaiting(TableApi.read)
    drop = awaiting(TableApi.drop)
    read_files = awaiting(TableApi.read_files)


class Bucket(BucketFacade):
    """A place for queues, and the event bus of its objects. Make one with `connect`."""

    _engine: Asynchronous

    def __init__(self, engine: Asynchronous, prefix: str, *, probe: bool, where: str = "") -> None:
        deliveries = partial(deliveries_of, Delivery, DeliveryOf)
        super().__init__(engine, prefix, probe=probe, where=where, deliveries=deliveries, change=_change)

    async def open(self) -> None:
        """Probe the store now rather than at the first use."""
        await self._run(self._api.open())

    async def run(self, procedure: Procedure[Result]) -> Result:
        """Carry out a procedure on this bucket: for programs that bring procedures of their own, made of those of
        `api`."""
        return await self._engine.run(procedure)

    queue = plain(BucketApi.queue, Queue)
    existing_queue = plain(BucketApi.existing_queue, Queue)
    queues = awaiting(BucketApi.queues)
    table = plain(BucketApi.table, Table)
    tables = awaiting(BucketApi.tables)

    put = awaiting(BucketApi.put)
    put_many = awaiting(BucketApi.put_many)
    get = awaiting(BucketApi.get)
    get_many = awaiting(BucketApi.get_many)
    get_json = awaiting(BucketApi.get_json)
    look = awaiting(BucketApi.look)
    delete = awaiting(BucketApi.delete)
    delete_many = awaiting(BucketApi.delete_many)
    copy = awaiting(BucketApi.copy)
    move = awaiting(BucketApi.move)
    move_many = awaiting(BucketApi.move_many)
    report = awaiting(BucketApi.report)
    trigger = awaiting(BucketApi.trigger)
    sweep = awaiting(BucketApi.sweep)
    recover = awaiting(BucketApi.recover)
    audit = awaiting(BucketApi.audit)
    notify = awaiting(BucketApi.notify)
    run_watchers = awaiting(BucketApi.run_watchers)

    @property
    def rules(self) -> Rules:
        return Rules(self._engine, self._api.rules)

    async def close(self) -> None:
        """Hand in settlements that wait and stop workers and the background work. Closing again does nothing.

        If some settlements cannot be handed in, the others are, and the first error is raised when all has ended.
        """
        if self._hands.closed:
            return
        try:
            await self._run(self._api.close())
        finally:
            await self._engine.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()


def _change(
    engine: Asynchronous, bucket: Opening, handler: Callable[[Any], Any], event: ObjectEvent, attempt: int
) -> Change | AsyncChange:
    """What a handler is given; a plain one is on a thread, and has its procedures run on the loop."""
    if is_async(handler):
        return AsyncChange(bucket, event, engine.run, attempt)
    loop = asyncio.get_running_loop()
    return Change(
        bucket, event, lambda each: asyncio.run_coroutine_threadsafe(engine.run(each), loop).result(), attempt
    )
