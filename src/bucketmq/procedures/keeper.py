"""The keeper: hands in settlements that nobody's next receive carries, and keeps leases alive while work goes on.

One keeper runs for each open bucket that receives. Nothing depends on it for safety: without it settlements wait for
the next receive or flush, and leases expire.
"""

from __future__ import annotations

import logging

from bucketmq.errors import BucketMQError
from bucketmq.procedures.receive import Lot, extend
from bucketmq.procedures.requests import Latch, Now, Procedure, Wait
from bucketmq.procedures.subscription import OpenSubscription, flush_all, give_back

LINGER_SECONDS = 1.0
"""A settlement waits at most about this long for a receive to travel with."""

LINGER_SECONDS_SHARED = 5.0
"""Where other processes commit to the same head, a write for its own sake is likely to collide with theirs."""

TICK_SECONDS = 0.5
TICKS_PER_LEASE = 6
BEAT_AFTER = 1 / 3
"""A lease that is kept alive is extended after this part of it has passed."""

log = logging.getLogger("bucketmq")


class Keeper:
    """What there is to look after."""

    def __init__(self) -> None:
        self.stop = Latch()
        self.running = False
        self._subscriptions: dict[OpenSubscription, float | None] = {}
        self._lots: set[Lot] = set()

    def watch(self, subscription: OpenSubscription) -> None:
        """Hand in this subscription's settlements when they have waited long enough."""
        self._subscriptions.setdefault(subscription, None)

    def forget(self, subscription: OpenSubscription) -> None:
        """Stop looking after it: it has handed in everything and is not used again."""
        self._subscriptions.pop(subscription, None)

    def subscriptions(self) -> list[OpenSubscription]:
        return list(self._subscriptions)

    def keep_alive(self, lot: Lot) -> None:
        """Extend this lot's lease until all of it is settled."""
        self._lots.add(lot)

    def tick_seconds(self) -> float:
        shortest = min((lot.lease_seconds for lot in list(self._lots)), default=TICK_SECONDS * TICKS_PER_LEASE)
        return min(TICK_SECONDS, shortest / TICKS_PER_LEASE)


def keep(keeper: Keeper) -> Procedure[None]:
    """Look after everything until `keeper.stop` opens."""
    while not keeper.stop.is_open:
        yield Wait(keeper.stop, keeper.tick_seconds())
        yield from tick(keeper)


def tick(keeper: Keeper) -> Procedure[None]:
    """One round."""
    now = yield Now()
    for lot in list(keeper._lots):
        if lot.open <= 0 or lot.lost:
            keeper._lots.discard(lot)
        elif now >= lot.until - lot.lease_seconds * (1 - BEAT_AFTER):
            yield from _beat(lot)
    for subscription, since in list(keeper._subscriptions.items()):
        if subscription.spare and now - subscription.received_at > LINGER_SECONDS:
            give_back(subscription)
        pending = any(desk.settlements or desk.dirty for desk in list(subscription.desks.values()))
        if subscription not in keeper._subscriptions:
            continue
        if not pending:
            keeper._subscriptions[subscription] = None
        elif since is None:
            keeper._subscriptions[subscription] = now
        elif now - since >= _linger(subscription, now):
            keeper._subscriptions[subscription] = None
            yield from _hand_in(subscription)


def _linger(subscription: OpenSubscription, now: float) -> float:
    desks = list(subscription.desks.values())
    shared = any(desk.is_shared(now) for desk in desks)
    lease = subscription.queue.settings.lease_seconds
    return min(LINGER_SECONDS_SHARED if shared else LINGER_SECONDS, lease / 4)


def hand_in_all(keeper: Keeper) -> Procedure[None]:
    """Hand in everything that waits, without waiting for it to be due."""
    for subscription in keeper.subscriptions():
        give_back(subscription)
        yield from _hand_in(subscription)


def _beat(lot: Lot) -> Procedure[None]:
    try:
        yield from extend(lot, lot.lease_seconds)
    except BucketMQError as error:
        log.warning("action=extend_failed head=%s lease=%d kind=%s %s", lot.desk.key, lot.lease, error.kind, error)


def _hand_in(subscription: OpenSubscription) -> Procedure[None]:
    try:
        yield from flush_all(subscription)
    except BucketMQError as error:
        log.warning("action=settle_failed queue=%s kind=%s %s", subscription.queue.name, error.kind, error)
