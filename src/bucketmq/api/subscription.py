"""What a user can ask of a subscription: an independent reader of a queue, with its own progress.

Opening is part of every procedure and free after the first time, so naming a queue or a subscription costs no request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import chain
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from bucketmq.api.opening import Opening
from bucketmq.api.times import subscription_start
from bucketmq.deliveries import Batch, DeliveryData, PeekedMessage
from bucketmq.errors import LeaseLost
from bucketmq.procedures.checks import check_seconds
from bucketmq.procedures.claiming import browse
from bucketmq.procedures.claiming.bodies import fetch_bodies
from bucketmq.procedures.claiming.browse import Place
from bucketmq.procedures.claiming.claim import Lot
from bucketmq.procedures.claiming.receipts import lot_of
from bucketmq.procedures.claiming.receive import (
    Nobody,
    OpenSubscription,
    begin,
    flush_all,
    open_subscription,
    receive,
)
from bucketmq.procedures.lane import Once
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.requests import IfAbandoned, Latch, Procedure, Wait
from bucketmq.procedures.working.keeper import Keeper, try_hand_in
from bucketmq.procedures.working.work import Work, call_handler, work
from bucketmq.queue.settings import LEASE_SECONDS_MAX, LEASE_SECONDS_MIN, MAIN, Settings, check_name
from bucketmq.typed import check_model

ITERATE_LIMIT = 100
ITERATE_WAIT_SECONDS = 20.0
PREFETCH = 4
"""A worker claims this many messages for each of its handlers at a time."""

Delivery = TypeVar("Delivery", bound=DeliveryData)
"""The delivery of the facade that the verbs are bound to."""


class NamedQueue(Protocol):
    """A queue that is opened by the first procedure that needs it."""

    bucket: Opening

    @property
    def name(self) -> str: ...
    def open(self) -> Procedure[OpenQueue]: ...


class Received(msgspec.Struct, frozen=True):
    """Lots and their large bodies, or nothing and why."""

    lots: list[Lot]
    bodies: dict[str, Any]
    nobody: Nobody


class SubscriptionApi(Generic[Delivery]):
    """One subscription of a queue by name."""

    def __init__(self, queue: NamedQueue, name: str = MAIN, start: object = "earliest") -> None:
        self.queue = queue
        self.subscription_name = check_name(name, "subscription")
        self._start = subscription_start(start)
        self._subscription = Once(self._subscribe)

    def subscribed(self) -> Procedure[OpenSubscription]:
        return (yield from self._subscription.get())

    def _subscribe(self) -> Procedure[OpenSubscription]:
        queue = yield from self.queue.open()
        if self._start != "earliest":
            yield from begin(queue, self.subscription_name, self._start)
        return open_subscription(queue, self.subscription_name)

    def begin(self) -> Procedure[None]:
        """Make it now, so that it sees what is sent from here on even if it is first received from later."""
        yield from begin((yield from self.queue.open()), self.subscription_name, self._start)

    def receive(
        self,
        limit: int = 10,
        *,
        wait_seconds: float = 0.0,
        lease_seconds: float | None = None,
        body: type | None = None,
    ) -> Procedure[Batch[Delivery]]:
        """Up to `limit` deliveries, waiting up to `wait_seconds` for the first.

        `body` is a model, a `msgspec.Struct`, a dataclass or a pydantic model: the bodies of the deliveries are of it.
        One that does not fit is delivered all the same: its `body` raises `Unfit` with the path of the field, so that
        the delivery can be buried; `plain_body` is what was sent.

        One GET and one PUT for each shard that they come from: those of one shard if it has enough, otherwise of others
        too, which costs no more GETs for those that have none than an idle receiver makes.
        """
        if body is not None:
            check_model(body, "body")
        found = yield from self.claim(limit, wait_seconds, lease_seconds, fill=True)
        for lot in found.lots:
            lot.model = body
        return self._batch(found)

    def loop(self) -> Loop[Delivery]:
        """What a caller that iterates needs."""
        return Loop(self)

    def next_few(self) -> Procedure[Received]:
        """The next messages for a caller that iterates, perhaps none, with their leases kept alive."""
        return (yield from self.claim(ITERATE_LIMIT, ITERATE_WAIT_SECONDS, None, keep_alive=True))

    def claim(
        self,
        limit: int,
        wait_seconds: float,
        lease_seconds: float | None,
        *,
        keep_alive: bool = False,
        fill: bool = False,
    ) -> Procedure[Received]:
        """What `receive` gives, before a facade makes deliveries of it. Given back at once if the caller leaves."""
        sub = yield from self.subscribed()
        keeper = self.queue.bucket.keeper
        yield from self.queue.bucket.start_keeper()
        lease = _lease(lease_seconds, sub.queue.settings)
        claimed = _Claimed(keeper)
        yield from IfAbandoned(claimed.abandon)
        try:
            found = yield from receive(
                sub, limit, wait_seconds=wait_seconds, lease_seconds=lease, fill=fill, stop=claimed.left
            )
            if isinstance(found, Nobody):
                return Received([], {}, found)
            claimed.lots = found
            if keep_alive:
                for lot in found:
                    keeper.keep_alive(lot)
            messages = chain.from_iterable(lot.messages for lot in found)
            return Received(found, (yield from fetch_bodies(sub.queue, messages)), Nobody())
        except BaseException:
            claimed.give_back()
            raise
        finally:
            claimed.ended.open()

    def _batch(self, found: Received) -> Batch[Delivery]:
        return Batch(self.deliveries_of(found), found.nobody)

    def deliveries_of(self, found: Received) -> list[Delivery]:
        deliveries = self.queue.bucket.lent.deliveries
        return list(chain.from_iterable(deliveries(lot, found.bodies) for lot in found.lots))

    def delivery(self, receipt: str) -> Procedure[Delivery]:
        """A delivery received elsewhere, to settle it here by its receipt. It has no body."""
        lot = yield from self.restore(receipt)
        made: list[Delivery] = self.queue.bucket.lent.deliveries(lot, {})
        return made[0]

    def restore(self, receipt: str) -> Procedure[Lot]:
        """The lot of a delivery that was received elsewhere, from its receipt. No request."""
        sub = yield from self.subscribed()
        yield from self.queue.bucket.start_keeper()
        return lot_of(sub, receipt)

    def flush(self) -> Procedure[None]:
        """Make every settlement so far durable. Raises `LeaseLost` if one came too late. One PUT for each shard."""
        sub = yield from self.subscribed()
        yield from flush_all(sub)
        lost = [text for desk in sub.desks.values() for text in desk.take_lost()]
        if lost:
            raise LeaseLost(f"{len(lost)} settlements came too late and changed nothing, the first: {lost[0]}")

    def peek(self, limit: int = 10, *, after: Place | None = None) -> Procedure[list[PeekedMessage]]:
        """Unsettled messages, oldest first in each shard, without claiming them. `after` goes on behind one that was
        seen (its `place`)."""
        seen = yield from browse.peek((yield from self.subscribed()), limit, after)
        return [PeekedMessage(each) for each in seen]

    def purge(self) -> Procedure[int]:
        """Forget everything unsettled; returns how many messages that were."""
        return (yield from browse.purge((yield from self.subscribed())))

    def run(
        self,
        handler: Callable[[Delivery], Any],
        *,
        concurrency: int = 1,
        prefetch: int | None = None,
        lease_seconds: float | None = None,
        stop_when_empty: bool = False,
        signals: bool = True,
    ) -> Procedure[None]:
        """Work until told to stop: SIGTERM or SIGINT finish what is in hand and release the rest.

        The handler may be plain or async. It returns nothing or an outcome (`Done`, `Retry`, `Bury`, `Release`); an
        exception is a retry with its traceback kept. Leases are kept alive while it runs. `prefetch` messages are
        claimed at a time, four for each handler by default.

        With `stop_when_empty` it ends when nothing is ready, or due again, any more. Messages that wait for a retry are
        left; messages that are ready behind `in_flight_max` others are waited for while workers hold those.
        """
        lent = self.queue.bucket.lent
        with lent.stops(signals) as stop:
            yield from self.work(
                handler,
                lent.deliveries,
                stop.watch,
                concurrency=concurrency,
                prefetch=prefetch,
                lease_seconds=lease_seconds,
                stop_when_empty=stop_when_empty,
            )

    def work(
        self,
        handler: Callable[[Any], Any],
        wrap: Callable[[Lot, dict[str, Any]], list[Any]],
        started: Callable[[Work], None],
        *,
        concurrency: int,
        prefetch: int | None,
        lease_seconds: float | None,
        stop_when_empty: bool,
    ) -> Procedure[None]:
        """What `run` does, with deliveries of the caller's making."""
        sub = open_subscription((yield from self.queue.open()), self.subscription_name)
        bucket = self.queue.bucket
        yield from bucket.start_keeper()

        def wrapped(lot: Lot) -> Procedure[list[Any]]:
            return wrap(lot, (yield from fetch_bodies(sub.queue, lot.messages)))

        state = Work(
            sub,
            bucket.keeper,
            call_handler(handler),
            wrapped,
            concurrency=concurrency,
            prefetch=prefetch if prefetch is not None else PREFETCH * concurrency,
            lease_seconds=_lease(lease_seconds, sub.queue.settings),
            stop_when_empty=stop_when_empty,
        )
        started(state)
        yield from work(state)


class _Claimed:
    """What one call has claimed, until its caller has it."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self.lots: list[Lot] = []
        self.left = Latch()
        """Opens when the caller is gone."""
        self.ended = Latch()
        """Opens when nothing more is claimed."""

    def abandon(self) -> Procedure[None]:
        """The caller is gone: stop waiting for messages, and hand back those that came."""
        self.left.open()
        yield from Wait(self.ended)
        self.give_back()
        for desk in {lot.desk for lot in self.lots}:
            yield from try_hand_in(desk)

    def give_back(self) -> None:
        for lot in self.lots:
            self._keeper.let_go(lot)
            lot.release_all()


class Loop(Generic[Delivery]):
    """What one loop over a subscription has in its hands. It keeps leases alive for as long as it lasts: what was not
    shown to the caller by then is given back, and what was shown and not settled is left to its lease."""

    def __init__(self, api: SubscriptionApi[Delivery]) -> None:
        self._api = api
        self._keeper = api.queue.bucket.keeper
        self._lots: list[Lot] = []
        self._unseen: deque[Delivery] = deque()
        self.ended = False
        self._keeper.closing.on_open(self.leave)

    def add(self, found: Received) -> None:
        self._lots = [*(lot for lot in self._lots if lot.open), *found.lots]
        self._unseen.extend(self._api.deliveries_of(found))

    def next(self) -> Delivery | None:
        """The next delivery, or None if more have to be claimed first."""
        try:
            return self._unseen.popleft()
        except IndexError:
            return None

    def leave(self) -> None:
        """The loop is over. No request: the keeper hands in what is given back."""
        self.ended = True
        self._keeper.closing.forget(self.leave)
        while (delivery := self.next()) is not None:
            delivery.lot.release(delivery.offset, delivery.attempt)
            self._keeper.hurry(delivery.lot.desk)
        for lot in self._lots:
            self._keeper.let_go(lot)


def _lease(lease_seconds: float | None, settings: Settings) -> float:
    if lease_seconds is None:
        return settings.lease_seconds
    return check_seconds(lease_seconds, "lease_seconds", low=LEASE_SECONDS_MIN, high=LEASE_SECONDS_MAX)
