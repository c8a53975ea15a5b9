"""What a handler may return to say what becomes of its delivery. Nothing (None) means `Done()`."""

from __future__ import annotations

import msgspec


class Done(msgspec.Struct, frozen=True):
    """Handled: ack it."""


class Retry(msgspec.Struct, frozen=True):
    """Not now: hand it out again, after the queue's back-off or after `delay_seconds`. Counts as an attempt."""

    reason: str = "the handler asked for a retry"
    delay_seconds: float | None = None


class Bury(msgspec.Struct, frozen=True):
    """Never: make it a dead letter."""

    reason: str = "the handler buried it"


class Release(msgspec.Struct, frozen=True):
    """Not by me: hand it out again at once, without counting the attempt."""


Outcome = Done | Retry | Bury | Release
