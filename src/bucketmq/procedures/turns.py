"""Whose turn it is: keeping workers on one shard from running into each other. Advice only; heads decide.

A claim is one conditional write, and of two at the same time one is refused and wasted. So when several processes claim
from one shard, the one that claimed last goes on, and the others look at the head (a GET) before they write. Its
version counts the commits, so two looks tell how often others commit, and that tells how likely a write is to collide.
The likelier, the rarer it is tried. Who has had many lots in a row gives up the turn for a while.

No clock but the worker's own is used, and a call that does not want to wait does not.
"""

from __future__ import annotations

from bucketmq.procedures.commit import Desk, load
from bucketmq.procedures.requests import Chance, Now, Procedure

OWN_TURNS = 0.6
"""Who claims again within this part of a turn still has it."""

CAUTION = 2.0
"""A write that would collide with a chance of p is tried with a chance of 1 - CAUTION * p."""


def later_turn(desk: Desk) -> Procedure[float | None]:
    """None: claim now. A time: somebody else is at it; look again then. At most one GET."""
    now: float = yield Now()
    if desk.head is None:
        yield from load(desk)
    if not desk.is_shared(now) or has_turn(desk, now):
        return None
    turn = desk.turn_seconds
    soonest = max(desk.rest_until, desk.looked_at + turn)
    if now < soonest:
        return soonest
    collision = yield from _look(desk, now)
    chance: float = yield Chance()
    return None if chance > CAUTION * collision else now + turn * (0.5 + chance)


def _look(desk: Desk, now: float) -> Procedure[float]:
    """How likely it is that somebody else's commit lands while ours is on its way, judged since the last look."""
    version, commits, at = desk.looked, desk.looked_commits, desk.looked_at
    head = yield from load(desk)
    desk.looked, desk.looked_commits, desk.looked_at = head.version, desk.commits, now
    if version < 0 or now <= at:  # several callers may look at one moment
        return 1.0
    others = head.version - version - (desk.commits - commits)
    return max(0, others) / max(now - at, 0.001) * desk.queue.bucket.request_seconds


def has_turn(desk: Desk, now: float) -> bool:
    """Whether we claimed from this shard a moment ago."""
    return now - desk.claimed_at < OWN_TURNS * desk.turn_seconds


def rest(desk: Desk, now: float, turns: float) -> None:
    """Give up the turn on this shard for that many turns."""
    desk.rest_until = now + turns * desk.turn_seconds
    desk.claimed_at = 0.0
