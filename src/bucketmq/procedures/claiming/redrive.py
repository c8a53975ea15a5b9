"""Redrive: send dead letters again, to the subscription they died in. And deleting those that nobody wants any more."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from bucketmq.procedures.claiming.browse import Peeked, peek
from bucketmq.procedures.claiming.claim import Lot, flush
from bucketmq.procedures.claiming.receive import Nobody, OpenSubscription, receive
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.sending.dead_letters import finish_moves
from bucketmq.values import Value

LOT = 200
LETTERS_MAX = 1_000_000
LEASE_SECONDS = 60.0


class Redriven(Value, msgspec.Struct, frozen=True):
    """How many dead letters matched, and how many were sent again (none in a dry run)."""

    matched: int
    redriven: int


def count_matching(dead: OpenSubscription, wanted: Callable[[Peeked], bool], limit: int) -> Procedure[Redriven]:
    """A dry run: how many dead letters match, without touching them."""
    seen = yield from peek(dead, LETTERS_MAX)
    return Redriven(min(limit, sum(1 for each in seen if wanted(each))), 0)


def redrive(dead: OpenSubscription, wanted: Callable[[Peeked], bool], limit: int) -> Procedure[Redriven]:
    """Send the dead letters that match again. Those that do not are given back untouched.

    Per 200 letters: one GET and two PUTs of the dead letters' head, one PUT into the queue.
    """
    matched, redriven = yield from _settle_matching(dead, wanted, limit, Lot.redrive)
    return Redriven(matched, redriven)


def delete_matching(dead: OpenSubscription, wanted: Callable[[Peeked], bool], limit: int) -> Procedure[int]:
    """Forget the dead letters that match; returns how many. Those that do not are given back untouched.

    Per 200 letters: one GET and two PUTs of the dead letters' head.
    """
    return (yield from _settle_matching(dead, wanted, limit, lambda lot, offset, _: lot.ack(offset)))[0]


def _settle_matching(
    dead: OpenSubscription, wanted: Callable[[Peeked], bool], limit: int, settle: Callable[[Lot, int, int], None]
) -> Procedure[tuple[int, int]]:
    """How many matched, and how many were moved."""
    matched = moved = 0
    seen: set[tuple[int, int]] = set()
    others = []
    while matched < limit:
        found = yield from receive(dead, LOT, wait_seconds=0, lease_seconds=LEASE_SECONDS)
        if isinstance(found, Nobody):
            break
        (lot,) = found
        for (offset, attempt), message in zip(lot.places(), lot.messages, strict=True):
            place = lot.desk.shard, offset
            fresh = place not in seen
            seen.add(place)
            if fresh and matched < limit and wanted(Peeked(message, lot.desk.shard, offset, "dead", attempt)):
                matched += 1
                settle(lot, offset, attempt)
            else:
                others.append((lot, offset, attempt))
        yield from flush(lot.desk)
        moved += yield from finish_moves(lot.desk, own=True)
    for lot, offset, attempt in others:
        lot.release(offset, attempt)
    for desk in dead.desks.values():
        yield from flush(desk)
    return matched, moved
