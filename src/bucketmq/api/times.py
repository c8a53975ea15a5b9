"""Times and positions as users give them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime

from bucketmq.errors import Invalid
from bucketmq.procedures.checks import check_seconds
from bucketmq.procedures.claiming.receive import Start
from bucketmq.procedures.requests import Now, Procedure
from bucketmq.procedures.sending.send import DELAY_SECONDS_MAX

STARTS = {"now": "latest", "latest": "latest", "beginning": "earliest", "earliest": "earliest"}


def seconds_of(at: object) -> float:
    """A time given as seconds since 1970 or as a datetime with a time zone."""
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise Invalid(f"{at} has no time zone; use datetime.now(timezone.utc) or seconds since 1970")
        return at.timestamp()
    if isinstance(at, int | float) and not isinstance(at, bool) and math.isfinite(at):
        return float(at)
    raise Invalid(f"a time must be a datetime with a time zone or seconds since 1970, not {at!r}")


def delay_of(delay_seconds: float | None, at: object) -> Procedure[float]:
    """How long a message is delayed, by either way of saying it."""
    if at is None:
        return 0.0 if delay_seconds is None else check_seconds(delay_seconds, "delay_seconds", high=DELAY_SECONDS_MAX)
    if delay_seconds is not None:
        raise Invalid("give delay_seconds or at, not both")
    now = yield from Now()
    return max(0.0, seconds_of(at) - now)


def subscription_start(start: object) -> Start:
    """Where a subscription begins: earliest, latest, a time, or offsets by shard."""
    if isinstance(start, str):
        if start not in ("earliest", "latest"):
            raise Invalid(f"start must be 'earliest', 'latest', a time or offsets by shard, not {start!r}")
        return start
    if isinstance(start, Mapping):
        try:
            return {int(shard): int(offset) for shard, offset in start.items()}
        except (TypeError, ValueError):
            raise Invalid(f"offsets must be numbers by shard, like {{0: 100}}, not {start!r}") from None
    return seconds_of(start)


def start_of(start: object) -> Start:
    """Where a rule begins: now, beginning, or a time."""
    if isinstance(start, str):
        if start in STARTS:
            return STARTS[start]
        try:
            at = datetime.fromisoformat(start)
        except ValueError:
            raise Invalid(f"start must be now, beginning or a time like 2026-11-16T08:00:00Z, not {start!r}") from None
        return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
    return seconds_of(start)
