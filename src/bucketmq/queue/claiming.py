"""Handing out: which messages a claim gets, and what becomes of leases that are over."""

from __future__ import annotations

import msgspec

from bucketmq.queue.commands import Claim, Claimed, Full, Known, Nothing, Outcome
from bucketmq.queue.head import SPANS_MAX, Head, Held, Lease, Span, Waiting
from bucketmq.queue.policy import Policy
from bucketmq.queue.settling import enlist, failed
from bucketmq.queue.spans import cut, join_spans, join_waiting

replace = msgspec.structs.replace

LOST_WORKER = "lost:"
"""How `failed` names an attempt whose holder never reported back."""


def claim(head: Head, command: Claim, now: float, policy: Policy) -> tuple[Head, Outcome]:
    """What is due again first, then fresh messages, under one new lease."""
    give = _claim_ordered if policy.ordered else _claim_any
    head, held, full = give(head, command, now, policy)
    if held:
        lease = Lease(head.lease + 1, command.holder, now + command.lease_seconds, tuple(held))
        return replace(head, lease=lease.number, leases=(*head.leases, lease)), Claimed(lease)
    due = next_due(head)
    return head, Full(due) if full else Nothing(head.next, head.segment, due)


def expire(head: Head, now: float, policy: Policy) -> Head:
    """Dissolve the leases that are over: their messages wait again, or die if that was their last attempt."""
    over = [lease for lease in head.leases if lease.until <= now]
    if not over:
        return head
    entries = [
        failed(held, LOST_WORKER + lease.holder, now=now, after=0.0, policy=policy)
        for lease in over
        for held in lease.held
    ]
    leases = tuple(lease for lease in head.leases if lease.until > now)
    return enlist(replace(head, leases=leases), entries)


def next_due(head: Head) -> float | None:
    """When something listed may become claimable; None if nothing is listed. What waits for its key does not count."""
    times, busy = [lease.until for lease in head.leases], _busy(head)
    for entry in head.waiting:
        if entry.key not in busy:
            times.append(entry.after)
        if entry.key is not None:
            busy.add(entry.key)
    return min(times, default=None)


def _busy(head: Head) -> set[str | None]:
    """The keys of messages in flight; only ordered queues have any."""
    return {held.key for lease in head.leases for held in lease.held if held.key is not None}


def _room(head: Head, policy: Policy) -> int:
    """How many fresh messages may still be handed out."""
    spans = sum(1 for _ in head.spans())
    unsettled = sum(span.count for span in head.spans())
    return 0 if spans >= SPANS_MAX else max(0, policy.in_flight_max - unsettled)


def _claim_any(head: Head, claim: Claim, now: float, policy: Policy) -> tuple[Head, list[Held], bool]:
    held: list[Held] = []
    left = claim.limit
    waiting = []
    for entry in head.waiting:
        if entry.after > now or not left:
            waiting.append(entry)
            continue
        taken, rest = cut(entry.span, left)
        left -= taken.count
        held.append(Held(taken, entry.attempts + 1, entry.failed, entry.key))
        if rest:
            waiting.append(replace(entry, span=rest))
    room = _room(head, policy)
    position = head.next, head.segment
    for known in claim.known:
        fresh, position = _fresh(position, known, min(left, room))
        given = sum(span.count for span in fresh)
        left, room = left - given, room - given
        held += [Held(span) for span in fresh]
    full = left > 0 and room == 0
    return replace(head, waiting=tuple(waiting), next=position[0], segment=position[1]), held, full


def _fresh(position: tuple[int, int], known: Known, limit: int) -> tuple[list[Span], tuple[int, int]]:
    """Up to `limit` deliverable messages of one known segment, and the position after them."""
    next_, segment = position
    if known.base != segment:
        return [], position
    end = known.base + known.count
    if not known.skip:
        stop = min(end, next_ + limit)
        spans = [Span(segment, next_, stop)] if stop > next_ else []
    else:
        spans, stop = _fresh_around(known, next_, limit)
    return spans, (stop, end if stop == end else segment)


def _fresh_around(known: Known, start: int, limit: int) -> tuple[list[Span], int]:
    """Like a plain cut, but leaving out the offsets this subscription must not deliver."""
    skip, spans, given, offset = set(known.skip), [], 0, start
    end = known.base + known.count
    while offset < end and (given < limit or offset in skip):
        if offset not in skip:
            spans.append(Span(known.base, offset, offset + 1))
            given += 1
        offset += 1
    return join_spans(spans), offset


def _claim_ordered(head: Head, claim: Claim, now: float, policy: Policy) -> tuple[Head, list[Held], bool]:
    """Walk everything unsettled in offset order; a key with an earlier unsettled message is passed over.

    Fresh messages that are passed over are listed as waiting, so that the keys behind them are not held up.
    """
    busy, left = _busy(head), claim.limit
    held: list[Held] = []
    waiting: list[Waiting] = []
    for entry in head.waiting:
        blocked = entry.key in busy
        if entry.key is not None:
            busy.add(entry.key)
        if blocked or entry.after > now or not left:
            waiting.append(entry)
            continue
        taken, rest = cut(entry.span, left if entry.key is None else 1)
        left -= taken.count
        held.append(Held(taken, entry.attempts + 1, entry.failed, entry.key))
        if rest:
            waiting.append(replace(entry, span=rest))
    next_, segment, room = head.next, head.segment, _room(head, policy)
    spans_elsewhere = sum(1 for _ in head.spans()) - len(head.waiting)
    for known in claim.known:
        if known.base != segment:
            continue
        end, skip = known.base + known.count, set(known.skip)
        while next_ < end and room > 0 and left > 0:
            if next_ not in skip:
                span, key = Span(segment, next_, next_ + 1), known.keys[next_ - known.base]
                if key in busy:
                    waiting[-1:] = join_waiting([*waiting[-1:], Waiting(span, key=key)])
                else:
                    left -= 1
                    held.append(Held(span, key=key))
                    if key is not None:
                        busy.add(key)
                room = room - 1 if spans_elsewhere + len(held) + len(waiting) < SPANS_MAX else 0
            next_ += 1
        segment = end if next_ == end else segment
    full = left > 0 and room == 0
    return replace(head, waiting=tuple(waiting), next=next_, segment=segment), held, full
