"""What can be asked of a head, and what is answered. Data only; the meaning is in `queue.machine`."""

from __future__ import annotations

import msgspec

from bucketmq.queue.head import Lease, Span, Target


class Known(msgspec.Struct, frozen=True):
    """A segment the caller has read, so that a claim can hand it out. Segments never change, so this cannot be stale.

    `skip` lists offsets that this subscription must not deliver. `keys` (one for each message) is given for ordered
    queues only.
    """

    base: int
    count: int
    skip: tuple[int, ...] = ()
    keys: tuple[str | None, ...] = ()


class Claim(msgspec.Struct, frozen=True):
    """Hand out up to `limit` messages: what is due again first, then fresh ones out of the `known` segments."""

    holder: str
    limit: int
    lease_seconds: float
    known: tuple[Known, ...]


class Ack(msgspec.Struct, frozen=True):
    """These are done."""

    lease: int
    spans: tuple[Span, ...]


class Retry(msgspec.Struct, frozen=True):
    """These failed; hand them out again after `delay_seconds`, or move them to the dead letters if out of attempts."""

    lease: int
    spans: tuple[Span, ...]
    delay_seconds: float
    failed: str


class Bury(msgspec.Struct, frozen=True):
    """These are to become dead letters now."""

    lease: int
    spans: tuple[Span, ...]
    failed: str


class Release(msgspec.Struct, frozen=True):
    """These were not tried; hand them out again at once, without counting the attempt."""

    lease: int
    spans: tuple[Span, ...]


class Extend(msgspec.Struct, frozen=True):
    """The holder is still working: the lease lasts `lease_seconds` from now."""

    lease: int
    lease_seconds: float


class Redrive(msgspec.Struct, frozen=True):
    """Start a move that does not come from a failure: a redrive. The span leaves its lease."""

    lease: int
    spans: tuple[Span, ...]


class Aim(msgspec.Struct, frozen=True):
    """Give the moves at `starts` this target, where their target is still `was`."""

    starts: tuple[int, ...]
    was: Target | None
    target: Target


class Moved(msgspec.Struct, frozen=True):
    """The segment with this target exists: its moves are over."""

    target: Target


class Jump(msgspec.Struct, frozen=True):
    """Forget everything below `to`, a segment's base: a purge, or messages that retention has removed."""

    to: int


class Skip(msgspec.Struct, frozen=True):
    """Pass a gap: the messages from `start` up to `to`, a segment's base, are gone. What is listed stays."""

    start: int
    to: int


Settle = Ack | Retry | Bury | Release | Redrive
Command = Claim | Settle | Extend | Aim | Moved | Jump | Skip


class Claimed(msgspec.Struct, frozen=True):
    """Messages handed out under one lease."""

    lease: Lease


class Nothing(msgspec.Struct, frozen=True):
    """Nothing to hand out out of what is known. `due` is when something listed may become claimable."""

    next: int
    segment: int
    due: float | None


class Full(msgspec.Struct, frozen=True):
    """`in_flight_max` or `SPANS_MAX` is reached and nothing listed is due: settle something first."""

    due: float | None


class Settled(msgspec.Struct, frozen=True):
    """How many messages were settled, and the spans that this lease does not hold (any more)."""

    count: int
    lost: tuple[Span, ...] = ()


class Extended(msgspec.Struct, frozen=True):
    """The lease lasts until then."""

    until: float


class Lost(msgspec.Struct, frozen=True):
    """There is no such lease (any more)."""

    lease: int


class Noted(msgspec.Struct, frozen=True):
    """Done; `changed` says whether anything was."""

    changed: bool


Outcome = Claimed | Nothing | Full | Settled | Extended | Lost | Noted
