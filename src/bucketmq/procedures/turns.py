"""Whose turn it is: keeping workers on one shard from running into each other. Advice only; heads decide.

A claim is one conditional write, and of two at the same time one is refused and wasted. So when several processes claim
from one shard, the one that claimed last goes on, and the others look at the head (a GET) instead of writing. A worker
takes its turn when it has seen the same head twice, a few write times apart: then whoever was writing is busy handling,
has gone elsewhere, or is dead. Who has had many lots in a row gives up the turn for a while.

No clock but the worker's own is used, and a call that does not want to wait does not.
"""

from __future__ import annotations

from bucketmq.procedures.commit import Desk, load
from bucketmq.procedures.requests import Chance, Now, Procedure

REST_TURNS = 2.0
TAKE_CHANCE = 0.5
BUSY_TURNS = 5.0


def later_turn(desk: Desk) -> Procedure[float | None]:
    """None: claim now. A time: somebody else is at it; look again then. At most one GET."""
    now: float = yield Now()
    if desk.head is None:
        yield from load(desk)
    if not desk.is_shared(now):
        return None
    turn = desk.turn_seconds
    if now < desk.rest_until:
        return desk.rest_until
    if has_turn(desk, now):
        return None
    if now - desk.looked_at < turn:
        return desk.looked_at + turn
    looked = desk.looked
    head = yield from load(desk)
    desk.looked, desk.looked_at = head.version, now
    chance: float = yield Chance()
    if head.version != looked:
        desk.busy_at = now
        return now + turn * (1 + chance)
    # Several may find a busy shard free at the same time: let chance choose.
    return None if chance < TAKE_CHANCE or now - desk.busy_at > BUSY_TURNS * turn else now + turn


def has_turn(desk: Desk, now: float) -> bool:
    """Whether we claimed from this shard a moment ago."""
    return now - desk.claimed_at < desk.turn_seconds


def rest(desk: Desk, now: float) -> None:
    """Give up the turn on this shard."""
    desk.rest_until = now + REST_TURNS * desk.turn_seconds
    desk.claimed_at = 0.0
