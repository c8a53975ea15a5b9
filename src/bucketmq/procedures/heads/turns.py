"""Whose turn it is: keeping workers on one shard from running into each other. Advice only; heads decide.

A claim is one conditional write, and of two at the same time one is refused and wasted. So when several processes claim
from one shard, the one that claimed last goes on, and the others look at the head (a GET) before they write. Its
version counts the commits, so two looks tell how often others commit, and so how likely a write is to collide. Claims
are tried less often the more likely they are to collide.

No clock but the worker's own is used, and a call that does not want to wait does not.
"""

from __future__ import annotations

from bucketmq.procedures.heads.desk import Desk, load
from bucketmq.procedures.requests import Chance, Now, Procedure


def later_turn(desk: Desk) -> Procedure[float | None]:
    """None: claim now. A time: others are claiming; look again then. At most one GET."""
    now = yield from Now()
    if desk.head is None:
        yield from load(desk)
    shard = desk.contention
    if not desk.is_shared(now) or shard.has_turn(now):
        return None
    turn = shard.shared.turn_seconds
    soonest = max(shard.rest_until, shard.looked_at + turn)
    if now < soonest:
        return soonest
    head = yield from load(desk)
    collision = shard.collision(head.version, desk.commits, now)
    chance = yield from Chance()
    return None if chance > shard.tactics.caution * collision else now + turn * (0.5 + chance)
