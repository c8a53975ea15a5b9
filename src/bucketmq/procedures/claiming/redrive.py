"""Redrive: send dead letters again, to the subscription they died in. And deleting those that nobody wants any more."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from bucketmq.procedures.claiming.browse import Peeked, peek
from bucketmq.procedures.claiming.claim import Lot, flush
from bucketmq.procedures.claiming.receive import Nobody, OpenSubscription, receive
from bucketmq.procedures.requests import Now, Procedure
from bucketmq.procedures.sending.dead_letters import finish_moves, put_behind
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

    Per 200 letters: one GET and two PUTs of the dead letters' head, one PUT into the queue. Where more letters do not
    match than a head can list, these are put behind the others: two PUTs for 200 of them.
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
    passed = Passed()
    while matched < limit:
        found = yield from receive(dead, LOT, wait_seconds=0, lease_seconds=LEASE_SECONDS)
        if isinstance(found, Nobody):
            if found.full and (yield from passed.make_room()):
                continue
            break
        (lot,) = found
        for (offset, attempt), message in zip(lot.places(), lot.messages, strict=True):
            place = lot.desk.shard, offset
            fresh = place not in seen
            seen.add(place)
            if fresh and matched < limit and wanted(Peeked(message, lot.desk.shard, offset, "dead", attempt)):
                matched += 1
                settle(lot, offset, attempt)
        passed.lots.append(lot)
        yield from flush(lot.desk)
        moved += yield from finish_moves(lot.desk, own=True)
    for lot in passed.lots:
        lot.release_all()
    for desk in dead.desks.values():
        yield from flush(desk)
    return matched, moved


class Passed:
    """Dead letters that did not match. They are held until the end, so that they are not handed out again; a head
    lists a limited number of them, so if they are many they are put behind all others, to reach those that follow."""

    def __init__(self) -> None:
        self.lots: list[Lot] = []
        self._behind: set[tuple[int, int]] = set()
        """Shard and offset of those that were put behind the others: once is enough."""
        self._ids: set[str] = set()

    def make_room(self) -> Procedure[bool]:
        """Whether there is room now. A PUT of a segment and one of the head for each lot of letters."""
        now = yield from Now()
        made = False
        for lot in self.lots:
            shard = lot.desk.shard
            letters = {
                offset: message
                for (offset, _), message in zip(lot.places(), lot.messages, strict=True)
                if offset in lot.unsettled and (shard, offset) not in self._behind
            }
            if not letters or lot.over(now):
                continue
            # One that is here again after its lease was over has its copy already.
            new = [message for message in letters.values() if message.id not in self._ids]
            if new:
                base = yield from put_behind(lot.desk, new)
                self._behind.update((shard, base + place) for place in range(len(new)))
                self._ids.update(message.id for message in new)
            for offset in letters:
                lot.ack(offset)
            yield from flush(lot.desk)
            made = True
        return made
