"""The blocking facade: `connect(url)` gives a bucket, a bucket gives queues. Every method is one line of procedure.

Safe to use from many threads. A bucket does not survive a fork: connect again in the child.
"""

from __future__ import annotations

import atexit
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self

from bucketmq import deliveries
from bucketmq.bucket.urls import open_store
from bucketmq.client_events import EventBus
from bucketmq.deliveries import Batch, DeadLetter, PeekedMessage, deliveries_of, give_back, matching
from bucketmq.engines.blocking import Blocking
from bucketmq.engines.meter import Requests
from bucketmq.engines.perform import Hands
from bucketmq.engines.signals import StopOnSignal
from bucketmq.notify.lazy import LazyPoster
from bucketmq.procedures.api import BucketApi, DeadApi, QueueApi, Received, SubscriptionApi, extend_now, settle_now
from bucketmq.procedures.keeper import Keeper, hand_in_all
from bucketmq.procedures.receive import Lot
from bucketmq.procedures.redrive import Redriven
from bucketmq.procedures.send import KeyOf, Receipt, letters
from bucketmq.procedures.stats import QueueStats
from bucketmq.procedures.trim import Trimmed
from bucketmq.queue.settings import Settings

ITERATE_LIMIT = 100
ITERATE_WAIT_SECONDS = 20.0


def connect(url: str, *, probe: bool = True, **options: Any) -> Bucket:
    """Open the bucket at `url`: `s3://name/prefix`, `gs://...`, `az://...`, `file:///folder`, `memory://`.

    Checks that the store honours conditional writes, also in a race, and raises `Unsupported` if not; about ten
    requests, none with `probe=False`. Credentials come from the environment, as for the store's own tools.
    """
    store, prefix = open_store(url, **options)
    poster = LazyPoster()
    bucket = Bucket(Blocking(Hands(store, poster, poster.close)), prefix, probe=probe)
    bucket.open()
    return bucket


def _flush_at_exit(engine: Blocking, keeper: weakref.ref[Keeper]) -> None:
    """A program that ends without closing its bucket has its settlements handed in all the same."""
    kept = keeper()
    if kept is not None and not kept.stop.is_open and engine.hands.is_own_process:
        engine.run(hand_in_all(kept))


class Bucket(EventBus):
    """A place for queues, and the event bus of its objects. Make one with `connect`."""

    def __init__(self, engine: Blocking, prefix: str, *, probe: bool) -> None:
        store = engine.hands.store
        self._engine = engine
        self._api = BucketApi(
            prefix,
            lists_in_order=store.lists_in_order,
            local=store.local,
            probe_first=probe,
            renames=store.renames,
            exact_versions=store.exact_versions,
        )
        EventBus.__init__(self, engine, self._api)
        self._at_exit = partial(_flush_at_exit, engine, weakref.ref(self._api.keeper))
        atexit.register(self._at_exit)

    def open(self) -> None:
        """Probe the store now rather than at the first use."""
        self._engine.run(self._api.open())

    def queue(self, name: str, **settings: Any) -> Queue:
        """The queue of this name, made on first use. Settings given here are written to the bucket."""
        return Queue(self._engine, QueueApi(self._api, name, settings))

    def existing_queue(self, name: str) -> Queue:
        """The queue of this name; its first use raises `NotFound` if there is none."""
        return Queue(self._engine, QueueApi(self._api, name, {}, create=False))

    def queues(self) -> list[str]:
        """The names of all queues."""
        return self._engine.run(self._api.queues())

    @property
    def requests(self) -> Requests:
        """Requests made through this bucket so far, by kind."""
        return self._engine.hands.meter.read()

    @property
    def clock_skew_seconds(self) -> float:
        """How far this machine's clock is ahead of the store's."""
        return self._engine.hands.clock.skew_seconds

    def close(self) -> None:
        """Hand in settlements that wait and stop the background work. Closing again does nothing."""
        if self._engine.hands.closed:
            return
        atexit.unregister(self._at_exit)
        self._engine.run(self._api.close())
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class Subscription:
    """An independent reader of a queue, with its own progress."""

    def __init__(self, engine: Blocking, api: SubscriptionApi) -> None:
        self._engine = engine
        self._sub = api

    def receive(
        self, limit: int = 10, *, wait_seconds: float = 0.0, lease_seconds: float | None = None
    ) -> Batch[Delivery]:
        """Up to `limit` deliveries from one shard, waiting up to `wait_seconds` for the first. One GET and one PUT."""
        found = self._engine.run(self._sub.receive(limit, wait_seconds, lease_seconds))
        return self._batch(found)

    def __iter__(self) -> Iterator[Delivery]:
        """Deliveries for ever, each lease kept alive until you settle it. Settle one before asking for the next.

        What you did not get to see before you left the loop is given back.
        """
        while True:
            found = self._engine.run(self._sub.receive(ITERATE_LIMIT, ITERATE_WAIT_SECONDS, None, keep_alive=True))
            waiting = deque(self._batch(found))
            try:
                while waiting:
                    yield waiting.popleft()
            finally:
                give_back(waiting)

    def _batch(self, found: Received) -> Batch[Delivery]:
        return Batch(self._deliveries(found.lot, found.bodies) if found.lot is not None else [], found.nobody)

    def _deliveries(self, lot: Lot, bodies: dict[str, Any]) -> list[Delivery]:
        lot.engine = self._engine
        return deliveries_of(Delivery, lot, bodies)

    def delivery(self, receipt: str) -> Delivery:
        """A delivery received elsewhere, to settle it here by its receipt. It has no body."""
        lot = self._engine.run(self._sub.restore(receipt))
        return self._deliveries(lot, {})[0]

    def flush(self) -> None:
        """Make every settlement so far durable. Raises `LeaseLost` if one came too late. One PUT for each shard."""
        self._engine.run(self._sub.flush())

    def peek(self, limit: int = 10) -> list[PeekedMessage]:
        """Unsettled messages, oldest first in each shard, without claiming them."""
        return [PeekedMessage(seen) for seen in self._engine.run(self._sub.peek(limit))]

    def purge(self) -> int:
        """Forget everything unsettled; returns how many messages that were."""
        return self._engine.run(self._sub.purge())

    def run(
        self,
        handler: Callable[[Delivery], Any],
        *,
        concurrency: int = 1,
        prefetch: int | None = None,
        lease_seconds: float | None = None,
        stop_when_empty: bool = False,
        signals: bool = True,
    ) -> None:
        """Work until told to stop: SIGTERM or SIGINT finish what is in hand and release the rest.

        The handler may be plain or async. It returns nothing or an outcome (`Done`, `Retry`, `Bury`, `Release`); an
        exception is a retry with its traceback kept. Leases are kept alive while it runs. `prefetch` messages are
        claimed at a time, four for each handler by default.
        """
        with StopOnSignal(active=signals) as stop:
            self._engine.run(
                self._sub.work(
                    handler,
                    self._deliveries,
                    stop.watch,
                    concurrency=concurrency,
                    prefetch=prefetch,
                    lease_seconds=lease_seconds,
                    stop_when_empty=stop_when_empty,
                )
            )


class Queue(Subscription):
    """A named log of messages with a work queue on it. Its own receive is the subscription `main`."""

    def __init__(self, engine: Blocking, api: QueueApi) -> None:
        super().__init__(engine, SubscriptionApi(api))
        self._api = api

    @property
    def name(self) -> str:
        return self._api.name

    def settings(self) -> Settings:
        """The queue's settings as this process knows them."""
        return self._engine.run(self._api.settings())

    def send(
        self,
        body: Any,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        delay_seconds: float | None = None,
        at: object = None,
        dedup_key: str | None = None,
    ) -> Receipt:
        """Send one message; returns when it is durable. One PUT, shared with other sends of this process."""
        message = letters([body], key, headers, dedup_key)
        return self._engine.run(self._api.send(message, delay_seconds, at))[0]

    def send_many(
        self,
        bodies: Iterable[Any],
        *,
        key: KeyOf = None,
        headers: Mapping[str, str] | None = None,
        delay_seconds: float | None = None,
        at: object = None,
    ) -> list[Receipt]:
        """Send many messages in one segment, or one for each shard that their keys go to. One PUT each.

        `key` is a key for all of them, or a function that finds the key of a body.
        """
        messages = letters(bodies, key, headers)
        return self._engine.run(self._api.send(messages, delay_seconds, at))

    def subscription(self, name: str, *, start: object = "earliest") -> Subscription:
        """Another reader of the same messages.

        `start` counts when it is first used: "earliest", "latest", a time, or a dict of offsets by shard.
        """
        subscription = Subscription(self._engine, SubscriptionApi(self._api, name, start))
        self._engine.run(subscription._sub.begin())
        return subscription

    def handler(self, function: Callable[[Delivery], Any]) -> Callable[[Delivery], Any]:
        """A decorator that makes the function this queue's handler, for `bucketmq worker` and for `function.run()`."""
        function.run = lambda **options: self.run(function, **options)  # type: ignore[attr-defined]
        function.queue = self  # type: ignore[attr-defined]
        return function

    def stats(self) -> QueueStats:
        """How the queue is doing, in a handful of requests however deep it is."""
        return self._engine.run(self._api.stats())

    def tail(self, positions: dict[int, int]) -> list[PeekedMessage]:
        """Messages sent behind `positions` (an offset for each shard, see `tails`), which are moved on."""
        return [PeekedMessage(seen) for seen in self._engine.run(self._api.read_on(positions))]

    def tails(self) -> dict[int, int]:
        """The offset behind the last message of each shard."""
        return self._engine.run(self._api.tails())

    def raise_shards(self, shards: int) -> Settings:
        """Raise the shard count, while the queue is in use."""
        return self._engine.run(self._api.raise_shards(shards))

    def trim(self) -> Trimmed:
        """Delete what every subscription has settled and retention allows. Workers do this by themselves."""
        return self._engine.run(self._api.trim())

    @property
    def dead_letters(self) -> DeadLetters:
        return DeadLetters(self._engine, self._api.dead())


class DeadLetters:
    """Messages that ran out of attempts or were buried."""

    def __init__(self, engine: Blocking, api: DeadApi) -> None:
        self._engine = engine
        self._api = api

    def peek(self, limit: int = 10) -> list[DeadLetter]:
        """The oldest dead letters with everything that went wrong, without touching them."""
        return [DeadLetter(seen) for seen in self._engine.run(self._api.peek(limit))]

    def redrive(
        self,
        *,
        ids: Iterable[str] | None = None,
        where: Callable[[DeadLetter], bool] | None = None,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> Redriven:
        """Send dead letters again, all of them or those with these ids or for which `where` holds."""
        return self._engine.run(self._api.redrive(matching(ids, where), limit, dry_run=dry_run))

    def purge(self) -> int:
        """Forget all dead letters; returns how many."""
        return self._engine.run(self._api.purge())


class Delivery(deliveries.DeliveryData):
    """A message in your hands until its lease is over.

    Settling notes what becomes of it and returns at once; the bucket is told with the next receive, by `flush`, or in
    the background within a few seconds. `wait=True` tells it now and raises `LeaseLost` if the lease is gone.
    """

    __slots__ = ()

    @property
    def _engine(self) -> Blocking:
        engine: Blocking = self._lot.engine
        return engine

    def ack(self, *, wait: bool = False) -> None:
        """Done with it."""
        lot = self._lot
        if lot.lost or self.offset in lot.settled:
            self._open()
        lot.ack(self.offset)
        if wait:
            self._engine.run(settle_now(self._lot))

    def retry(self, reason: str = "", *, delay_seconds: float | None = None, wait: bool = False) -> None:
        """It failed: hand it out again after the queue's back-off, or after `delay_seconds`."""
        self._open().retry(self.offset, self.attempt, self._delay(delay_seconds), reason)
        if wait:
            self._engine.run(settle_now(self._lot))

    def _delay(self, delay_seconds: float | None) -> float:
        backoff = self._lot.desk.queue.settings.backoff
        return backoff.seconds(self.attempt, self._engine.hands.chance()) if delay_seconds is None else delay_seconds

    def bury(self, reason: str = "", *, wait: bool = False) -> None:
        """It can never succeed: make it a dead letter."""
        self._open().bury(self.offset, self.attempt, reason)
        if wait:
            self._engine.run(settle_now(self._lot))

    def release(self, *, wait: bool = False) -> None:
        """Not tried: hand it out again at once, without counting the attempt."""
        self._open().release(self.offset, self.attempt)
        if wait:
            self._engine.run(settle_now(self._lot))

    def extend(self, seconds: float | None = None) -> float:
        """Keep the lease for `seconds` from now (the queue's own lease time by default). One PUT."""
        return self._engine.run(extend_now(self._open(), seconds))
