"""Settling: what becomes of messages that a lease holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import msgspec

from bucketmq.queue.commands import Ack, Bury, Extend, Extended, Lost, Outcome, Redrive, Release, Retry, Settle, Settled
from bucketmq.queue.head import Head, Held, Moving, Span, Waiting
from bucketmq.queue.policy import Policy
from bucketmq.queue.spans import join_waiting, without

replace = msgspec.structs.replace


def settle(head: Head, command: Settle, now: float, policy: Policy) -> tuple[Head, Outcome]:
    """Take the named messages out of their lease. What the lease does not hold is answered as lost."""
    lease = next((lease for lease in head.leases if lease.number == command.lease), None)
    if lease is None:
        return head, Settled(0, command.spans)
    taken, kept, lost = _take(lease.held, command.spans)
    if not isinstance(command, Ack):
        head = enlist(head, [_becomes(held, command, now, policy) for held in taken])
    rest = [replace(lease, held=tuple(kept))] if kept else []
    leases = tuple(other for old in head.leases for other in (rest if old is lease else [old]))
    return replace(head, leases=leases), Settled(sum(held.span.count for held in taken), tuple(lost))


def _becomes(held: Held, command: Retry | Bury | Release | Redrive, now: float, policy: Policy) -> Waiting | Moving:
    match command:
        case Retry():
            return failed(held, command.failed, now=now, after=now + command.delay_seconds, policy=policy)
        case Bury():
            return Moving(held.span, held.attempt, now, (*held.failed, command.failed))
        case Release():
            return Waiting(held.span, held.attempt - 1, 0.0, held.failed, held.key)
        case Redrive():
            return Moving(held.span, held.attempt, now, held.failed)
        case _:
            assert_never(command)


def failed(held: Held, why: str, *, now: float, after: float, policy: Policy) -> Waiting | Moving:
    """One rule for every attempt that did not end well: wait for another, or be out of attempts."""
    if held.attempt >= policy.attempts_max:
        return Moving(held.span, held.attempt, now, (*held.failed, why))
    return Waiting(held.span, held.attempt, after, (*held.failed, why), held.key)


def enlist(head: Head, entries: Sequence[Waiting | Moving]) -> Head:
    """The head with these entries listed, in offset order."""
    waiting = [entry for entry in entries if isinstance(entry, Waiting)]
    moving = [entry for entry in entries if isinstance(entry, Moving)]
    return replace(
        head,
        waiting=join_waiting((*head.waiting, *waiting)) if waiting else head.waiting,
        moving=tuple(sorted((*head.moving, *moving), key=lambda entry: entry.span.start)),
    )


def _take(held: Sequence[Held], spans: Sequence[Span]) -> tuple[list[Held], list[Held], list[Span]]:
    """Split `held` into what `spans` covers and the rest; `lost` is the part of `spans` that is not held."""
    if tuple(entry.span for entry in held) == tuple(spans):
        return list(held), [], []
    wanted = sorted(spans, key=lambda span: span.start)
    taken: list[Held] = []
    kept: list[Held] = []
    covered: list[Span] = []
    for entry in held:
        position = entry.span.start
        for want in wanted:
            start, stop = max(position, want.start), min(entry.span.stop, want.stop)
            if start >= stop:
                continue
            if position < start:
                kept.append(replace(entry, span=Span(entry.span.base, position, start)))
            covered.append(Span(entry.span.base, start, stop))
            taken.append(replace(entry, span=covered[-1]))
            position = stop
        if position < entry.span.stop:
            kept.append(replace(entry, span=Span(entry.span.base, position, entry.span.stop)))
    return taken, kept, without(wanted, covered)


def extend(head: Head, command: Extend, now: float) -> tuple[Head, Outcome]:
    lease = next((lease for lease in head.leases if lease.number == command.lease), None)
    if lease is None:
        return head, Lost(command.lease)
    longer = replace(lease, until=max(now + command.lease_seconds, lease.until))
    leases = tuple(longer if other is lease else other for other in head.leases)
    return replace(head, leases=leases), Extended(longer.until)
