"""A message as it lies in a log, one line of a segment.

Values only. How lines become bytes is `log.segment`; how a caller's body becomes one of these is `sending.send`.
"""

from __future__ import annotations

from typing import Any

import msgspec

ATTEMPT_ERROR_CHARS_MAX = 4_000


class BodyAt(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a large body lies: an object of its own."""

    key: str
    size_bytes: int
    json: bool = True


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One attempt that did not end well, as a dead letter tells it."""

    attempt: int
    error: str
    at: str | None = None
    holder: str | None = None


class Died(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why and where a dead letter died."""

    subscription: str
    shard: int
    offset: int
    at: str
    attempts: int
    failures: tuple[Failure, ...] = ()
    later: int = 0
    """Not dead: so many times a pipeline asked to see it again, this one included."""


class Message(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One line. `body` is a JSON value; bytes are in `body_base64`; large ones lie at `body_at`."""

    id: str
    at: str
    key: str | None = None
    headers: dict[str, str] | None = None
    body: Any = msgspec.UNSET
    body_base64: str | None = None
    body_at: BodyAt | None = None
    to: str | None = None
    """Only this subscription delivers it (a redriven dead letter)."""
    move: str | None = None
    """The number of the move that put it here, where it came from another log (see `head.Moving`)."""
    died: Died | None = None
    fence: int | None = None
    """Not a message but a mark: the shard count was raised to this (see `procedures.sending.shards`)."""
