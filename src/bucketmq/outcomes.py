"""What a handler may return to decide what becomes of its delivery. None means `Done()`."""

from __future__ import annotations

import msgspec


class Done(msgspec.Struct, frozen=True):
    """Handled: ack it."""


class Retry(msgspec.Struct, frozen=True):
    """It failed: hand it out again after `delay_seconds`, or after the queue's back-off. Counts as an attempt."""

    reason: str = "the handler asked for a retry"
    delay_seconds: float | None = None


class Bury(msgspec.Struct, frozen=True):
    """It can never succeed: make it a dead letter."""

    reason: str = "the handler buried it"


class Release(msgspec.Struct, frozen=True):
    """Not tried: hand it out again at once, without counting the attempt."""


Outcome = Done | Retry | Bury | Release
