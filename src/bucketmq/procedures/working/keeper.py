"""The keeper: hands in settlements that nobody's next receive carries, and keeps leases alive while work goes on.

One keeper runs for each open bucket that receives. Nothing depends on it for safety: without it settlements wait for
the next receive or flush, and leases expire.
"""

from __future__ import annotations

import logging
import math

from bucketmq.errors import BucketMQError
from bucketmq.procedures.claiming.claim import Lot, extend
from bucketmq.procedures.claiming.receive import give_back, hand_in
from bucketmq.procedures.heads.desk import Desk
from bucketmq.procedures.observers import Observers
from bucketmq.procedures.requests import Latch, Now, Procedure, Wait

LINGER_SECONDS = 1.0
"""A settlement waits at most about this long for a receive to travel with."""

TICK_SECONDS = 0.5
TICKS_PER_LEASE = 6
BEAT_AFTER = 1 / 3
"""A lease that is kept alive is extended after this part of it has passed."""

logger = logging.getLogger("bucketmq")


class Keeper:
    """What there is to look after."""

    def __init__(self) -> None:
        self.stop = Latch()
        self.closing = Latch()
        """Opens when the bucket is being closed: workers end then."""
        self.running = False
        self.observers = Observers()
        """Those who see what workers have handled."""
        self.unsettled: dict[Desk, float | None] = {}
        """The desks at which something waits to be handed in, and since when we know. A desk enters itself, and is
        forgotten when it has nothing left, so a tick costs nothing for subscriptions that are not in use."""
        self._lots: dict[Lot, None] = {}
        """In the order in which they came, so that a run of the simulator is the same every time."""

    def keep_alive(self, lot: Lot) -> None:
        """Extend this lot's lease until all of it is settled, or it is let go."""
        self._lots[lot] = None

    def let_go(self, lot: Lot) -> None:
        """Nobody works on this lot any more: its lease may run out."""
        self._lots.pop(lot, None)

    def hurry(self, desk: Desk) -> None:
        """Hand in what waits at this desk with the next tick."""
        self.unsettled[desk] = -math.inf

    def forget(self, desk: Desk) -> None:
        """This desk has nothing left, unless something came in just now."""
        self.unsettled.pop(desk, None)
        if desk.has_settlements or desk.spare:
            desk.have_looked_after()

    def tick_seconds(self) -> float:
        lots = list(self._lots)
        if not lots:
            return TICK_SECONDS
        return min(TICK_SECONDS, min(lot.lease_seconds for lot in lots) / TICKS_PER_LEASE)


def keep(keeper: Keeper) -> Procedure[None]:
    """Look after everything until `keeper.stop` opens."""
    while not keeper.stop.is_open:
        yield from Wait(keeper.stop, keeper.tick_seconds())
        yield from tick(keeper)


def tick(keeper: Keeper) -> Procedure[None]:
    """One round."""
    now = yield from Now()
    for lot in list(keeper._lots):
        if lot.open <= 0 or lot.lost:
            keeper.let_go(lot)
        elif now >= lot.until - lot.lease_seconds * (1 - BEAT_AFTER):
            yield from _beat(lot)
    for desk, since in list(keeper.unsettled.items()):
        if desk.spare and now - desk.spare_at > LINGER_SECONDS:
            give_back(desk)
        if not desk.has_settlements and not desk.spare:
            keeper.forget(desk)
        elif not desk.has_settlements or since is None:
            keeper.unsettled[desk] = now if desk.has_settlements else None
        elif not 0 <= now - since < _linger(desk, now):  # below 0: the clock was set back
            keeper.unsettled[desk] = None
            yield from try_hand_in(desk)


def _linger(desk: Desk, now: float) -> float:
    most = desk.contention.tactics.linger_seconds if desk.is_shared(now) else LINGER_SECONDS
    return min(most, desk.queue.settings.lease_seconds / 4)


def hand_in_all(keeper: Keeper) -> Procedure[list[BucketMQError]]:
    """Hand in everything that waits, without waiting for it to be due. A desk where that fails does not keep the others
    from trying; what went wrong is returned."""
    errors = []
    for desk in list(keeper.unsettled):
        give_back(desk)
        error = yield from try_hand_in(desk)
        if error is not None:
            errors.append(error)
    return errors


def _beat(lot: Lot) -> Procedure[None]:
    try:
        yield from extend(lot, lot.lease_seconds)
    except BucketMQError as error:
        logger.warning("action=extend_failed head=%s lease=%d kind=%s %s", lot.desk.key, lot.lease, error.kind, error)


def try_hand_in(desk: Desk) -> Procedure[BucketMQError | None]:
    """Hand in what waits at one desk. An error is logged and returned; what it was about still waits."""
    try:
        yield from hand_in(desk)
    except BucketMQError as error:
        logger.warning("action=settle_failed queue=%s kind=%s %s", desk.queue.name, error.kind, error)
        return error
    return None
