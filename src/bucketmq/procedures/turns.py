"""Whose turn it is: keeping workers on one shard from running into each other. Advice only; heads decide.

A claim is one conditional write, and of two at the same time one is refused and wasted. So when several processes claim
from one shard, the one that wrote last goes on, and the others look at the head (a GET) instead of writing. A worker
takes its turn when it has seen the same head twice, a few write times apart: then whoever was writing is busy handling,
has gone elsewhere, or is dead. Who has had many lots in a row gives up the turn for a while.

No clock but the worker's own is used, and a call that does not want to wait does not.
"""

from __future__ import annotations

from bucketmq.procedures.commit import Desk, load
from bucketmq.procedures.requests import Chance, Now, Procedure
from bucketmq.queue.head import Head

TURN_WRITES = 3.0
"""A turn lasts as long as this many writes of a head take."""

TURN_SECONDS_MAX = 2.0
REST_TURNS = 2.0
SHARED_SECONDS = 30.0
"""A head is shared if another holder committed to it within this time."""


def later_turn(desk: Desk) -> Procedure[float | None]:
    """None: claim now. A time: somebody else is at it; look again then. At most one GET."""
    now: float = yield Now()
    head = desk.head if desk.head is not None else (yield from load(desk))
    if not is_shared(desk, head, now):
        return None
    turn = turn_seconds(desk)
    if now < desk.rest_until:
        return desk.rest_until
    if desk.wrote_last and now - desk.seen_at < turn:
        return None
    if now - desk.looked_at < turn:
        return desk.looked_at + turn
    looked = desk.looked
    head = yield from load(desk)
    desk.looked, desk.looked_at = head.version, now
    chance: float = yield Chance()
    return None if head.version == looked else now + turn * (1 + chance)


def rest(desk: Desk, now: float) -> None:
    """Give up the turn on this shard."""
    desk.rest_until = now + REST_TURNS * turn_seconds(desk)
    desk.wrote_last = False


def turn_seconds(desk: Desk) -> float:
    return min(TURN_WRITES * desk.write_seconds, TURN_SECONDS_MAX)


def is_shared(desk: Desk, head: Head, now: float) -> bool:
    """Whether another holder commits to this head these days."""
    me, since = desk.queue.holder, now - SHARED_SECONDS
    return any(seen.at > since for name, seen in head.holders.items() if name != me)
