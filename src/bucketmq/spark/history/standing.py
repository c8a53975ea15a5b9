"""How the subscriptions of a queue stand: what became of each offset, as far as heads tell.

Heads are read on the driver, as procedures; what they say travels to the executors as values. Which of the messages
that a subscription is past ended in the dead letters is for the dead letters to tell, not for heads.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from bucketmq.bucket.port import Missing
from bucketmq.log.documents import decode_head
from bucketmq.log.layout import head_of
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.verbs import get_many, list_all
from bucketmq.queue.head import Head
from bucketmq.queue.settings import MAIN

DONE, DEAD, EXPIRED = "done", "dead", "expired"
"""What became of a message: settled (acknowledged, purged, or passed over by a rule that does not want it); buried;
dropped unread because it was older than `expire_seconds`."""

UNSETTLED = READY, IN_FLIGHT, DELAYED, MOVING = "ready", "in flight", "delayed", "moving"
"""Not settled: never handed out; leased; to be tried again; on its way to the dead letters."""


class Listed(msgspec.Struct, frozen=True, gc=False):
    """Offsets `start` up to `stop`, not included, that a head lists, and how often they were tried."""

    start: int
    stop: int
    state: str
    attempts: int


class Standing(msgspec.Struct, frozen=True):
    """One subscription's view of one shard: below `next` all is settled but what is listed, in order."""

    next: int = 0
    listed: tuple[Listed, ...] = ()
    needs_from: int = 0
    """The base of the oldest segment it still reads."""

    def at(self, offset: int) -> tuple[str, int]:
        """What became of a message, and how often it was tried if that is known, else 0."""
        if offset >= self.next:
            return READY, 0
        place = bisect_right(self.listed, offset, key=_start) - 1
        if place >= 0 and offset < self.listed[place].stop:
            return self.listed[place].state, self.listed[place].attempts
        return DONE, 0

    def unsettled(self, end: int) -> tuple[tuple[int, int], ...]:
        """The offsets below `end` that are not settled."""
        found = [(each.start, min(each.stop, end)) for each in self.listed if each.start < end]
        return (*found, (self.next, end)) if self.next < end else tuple(found)


Standings = dict[str, dict[int, Standing]]
"""Subscription -> shard -> how it stands there. A shard without a head was not read yet."""


def _start(listed: Listed) -> int:
    return listed.start


def standings(queue: OpenQueue) -> Procedure[Standings]:
    """How every subscription stands. One LIST, and one GET for each head."""
    entries, _ = yield from list_all(queue.keys.heads)
    keys = [entry.key for entry in entries]
    found: Standings = {MAIN: {}} if queue.settings.main else {}
    for key, head in zip(keys, (yield from get_many(keys)) if keys else [], strict=True):
        name, shard = head_of(key)
        if not isinstance(head, Missing):
            found.setdefault(name, {})[shard] = standing_of(decode_head(head.body, key))
    return found


def standing_of(head: Head) -> Standing:
    listed = [Listed(h.span.start, h.span.stop, IN_FLIGHT, h.attempt) for lease in head.leases for h in lease.held]
    listed += [Listed(each.span.start, each.span.stop, DELAYED, each.attempts) for each in head.waiting]
    listed += [Listed(each.span.start, each.span.stop, MOVING, each.attempts) for each in head.moving]
    return Standing(head.next, tuple(sorted(listed, key=_start)), head.needs_from)


def settled_below(standings: Standings, shard: int) -> int | None:
    """The base up to which every subscription is past a shard; None if there is no subscription."""
    bases = [shards.get(shard, Standing()).needs_from for shards in standings.values()]
    return min(bases, default=None)


def inside(spans: Sequence[tuple[int, int]], offset: int) -> bool:
    """Whether one of the spans, which are in order, holds the offset."""
    place = bisect_right(spans, offset, key=lambda span: span[0]) - 1
    return place >= 0 and offset < spans[place][1]
