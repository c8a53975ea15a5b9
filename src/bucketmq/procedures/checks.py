"""Checking what callers give before it is noted anywhere: what waits for a commit must be sure to be writable."""

from __future__ import annotations

from bucketmq.errors import Invalid
from bucketmq.queue.settings import SECONDS_MAX


def check_seconds(value: object, what: str, *, low: float = 0.0, high: float = SECONDS_MAX) -> float:
    """A number of seconds in these bounds. Infinity and "not a number" are in none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise Invalid(f"{what} must be {low:g} to {high:g} seconds, not {value!r}")
    return float(value)


def plain_text(value: object) -> str:
    """A reason as text that can be written: tracebacks may quote bytes that are not Unicode."""
    return str(value).encode("utf-8", "backslashreplace").decode()
