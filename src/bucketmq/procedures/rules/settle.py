"""Settling: from how an attempt ended to what becomes of its events, and a line in the journal for each.

Nothing is acknowledged here. The worker does that, by the outcome it finds in the parcel.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bucketmq import outcomes
from bucketmq.events.event import time_text
from bucketmq.events.rule import wait_seconds
from bucketmq.procedures.requests import Chance, Now, Procedure
from bucketmq.procedures.rules.journal import Attempt, record
from bucketmq.procedures.rules.run import Parcel, RuleRun
from bucketmq.procedures.working.work import outcome_of


class End(msgspec.Struct, frozen=True):
    """How an attempt ended."""

    what: str
    """done, retry, bury or pause"""
    reason: str = ""
    status: int | None = None
    seconds: float = 0.0
    after: float | None = None
    """When the other side would like the next attempt, in seconds from now."""
    exactly: bool = False
    """Whether that is an order rather than a wish."""


def settle_all(run: RuleRun, parcels: Sequence[Parcel], end: End) -> Procedure[None]:
    """Say what becomes of these, which came to the same end, and note it in the journal."""
    yield from _settle_each(run, [(parcel, end) for parcel in parcels])


def _settle_each(run: RuleRun, ended: Sequence[tuple[Parcel, End]]) -> Procedure[None]:
    attempts = []
    at = time_text((yield from Now()))
    for parcel, end in ended:
        final = yield from _settle(run, parcel, end)
        attempts.append(
            Attempt(
                rule=run.rule.name,
                event=parcel.event.id,
                key=parcel.event.key,
                attempt=parcel.piece.attempt,
                outcome=final,
                at=at,
                happened_at=parcel.event.at,
                seconds=round(end.seconds, 3),
                status=end.status,
                reason=end.reason[:200],
            )
        )
    yield from record(run.bucket, attempts)


def _settle(run: RuleRun, parcel: Parcel, end: End) -> Procedure[str]:
    counts = run.counts
    match end.what:
        case "done":
            counts.done += 1
            parcel.outcome = outcomes.Done()
        case "pause":
            parcel.outcome = outcomes.Release()
        case "bury":
            counts.buried += 1
            parcel.outcome = outcomes.Bury(end.reason)
        case _:
            wait = wait_seconds(run.rule.policy, parcel.piece.attempt, (yield from Chance()), end.after)
            counts.failed += 1
            if wait is None:
                counts.buried += 1
                parcel.outcome = outcomes.Bury(end.reason)
                return "bury"
            wanted = end.after if end.exactly and end.after is not None else wait
            parcel.outcome = outcomes.Retry(end.reason, delay_seconds=wanted)
    return end.what


def settle_outcomes(
    run: RuleRun, parcels: Sequence[Parcel], answers: Sequence[object], seconds: float
) -> Procedure[None]:
    """What a handler returned for each of these, by the rule's policy."""
    ended = []
    for parcel, answer in zip(parcels, answers, strict=True):
        match outcome_of(answer):
            case outcomes.Retry(reason, delay_seconds):
                ended.append((parcel, End("retry", reason, None, seconds, delay_seconds, exactly=True)))
            case outcomes.Bury(reason):
                ended.append((parcel, End("bury", reason, None, seconds)))
            case outcomes.Release() as release:
                parcel.outcome = release
            case outcomes.Done():
                ended.append((parcel, End("done", "", None, seconds)))
    yield from _settle_each(run, ended)
