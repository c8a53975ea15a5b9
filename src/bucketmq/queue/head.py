"""A head: all that one subscription knows about one shard, in one small value.

The theory. A shard is a dense row of offsets, cut into segments. Seen from one subscription every offset is in exactly
one of these states:

```
                 next                          settled: below `next` and listed nowhere
   ...settled... |  ...never handed out...     fresh:   at or above `next`
      held   waiting   moving                  held / waiting / moving: listed, all below `next`
```

Rules, checked by `check` after every change and after every decoding:

 1. Listed spans are disjoint, lie below `next`, and each lies inside one segment, whose base it names.
 2. Lease numbers only grow; every live lease has a number of its own, at most `lease`.
 3. `version` grows by one with every commit, so no two states of a head have equal bytes.
 4. An offset leaves the list only by Ack, by a finished move, or by Jump. Nothing else forgets a message.
 5. Times are finite: JSON has no other numbers, and a head that cannot be read again is lost.

The lists stay short because neighbours that are alike are one span, and bounded because a claim hands out nothing fresh
when `in_flight_max` messages or `SPANS_MAX` spans are listed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import msgspec

from bucketmq.errors import Corrupt
from bucketmq.queue.settings import FORMAT

SPANS_MAX = 1_000
"""A claim hands out nothing fresh while more spans than this are listed."""

HOLDERS_MAX = 64
"""How many holders' last commit numbers a head remembers; the longest silent are forgotten first."""


class Span(msgspec.Struct, frozen=True, array_like=True):
    """Offsets `start` up to `stop` (not included) of the segment at `base`."""

    base: int
    start: int
    stop: int

    @property
    def count(self) -> int:
        return self.stop - self.start


class Held(msgspec.Struct, frozen=True, omit_defaults=True):
    """Part of a lease that is not settled yet. `attempt` is the number of this attempt, counted at the claim."""

    span: Span
    attempt: int = 1
    failed: tuple[str, ...] = ()
    """For each earlier attempt: the name of its failure record, or why there is none."""
    key: str | None = None
    """Only in ordered queues."""


class Lease(msgspec.Struct, frozen=True):
    """Messages in one holder's hands until a time on the store's clock."""

    number: int
    holder: str
    until: float
    held: tuple[Held, ...]


class Waiting(msgspec.Struct, frozen=True, omit_defaults=True):
    """Handed out before, or held back, and to be handed out (again) after a time. `attempts` counts those made."""

    span: Span
    attempts: int = 0
    after: float = 0.0
    failed: tuple[str, ...] = ()
    key: str | None = None


class Target(msgspec.Struct, frozen=True, array_like=True):
    """Where in another log a move intends to put its segment, and the number that marks the move."""

    shard: int
    base: int
    move: str


class Moving(msgspec.Struct, frozen=True, omit_defaults=True):
    """On its way to another log: the dead letters, or back to the origin by a redrive.

    The target is written into the head before the segment is created, so that any process that finishes the move
    after a crash creates the same name, and the message arrives once.
    """

    span: Span
    attempts: int
    since: float
    failed: tuple[str, ...] = ()
    target: Target | None = None


class LastCommit(msgspec.Struct, frozen=True, array_like=True):
    """A holder's last commit: its number and when, and how many races the holder has lost on this head so far."""

    commit: int
    at: float
    lost: int = 0


class Head(msgspec.Struct, frozen=True, omit_defaults=True):
    """See the module's theory. `segment` is the base of the segment that holds `next`."""

    next: int
    segment: int
    version: int = 0
    lease: int = 0
    leases: tuple[Lease, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    moving: tuple[Moving, ...] = ()
    holders: dict[str, LastCommit] = {}
    format: int = msgspec.field(default_factory=lambda: FORMAT)
    """Made by a factory so that it is always written: a default is left out, and the next release has another."""

    @property
    def done_below(self) -> int:
        """Every offset below this is settled."""
        return min((span.start for span in self.spans()), default=self.next)

    @property
    def needs_from(self) -> int:
        """The base of the oldest segment this subscription still reads."""
        return min((span.base for span in self.spans()), default=self.segment)

    @property
    def held_count(self) -> int:
        return sum(held.span.count for lease in self.leases for held in lease.held)

    @property
    def waiting_count(self) -> int:
        return sum(entry.span.count for entry in self.waiting)

    @property
    def moving_count(self) -> int:
        return sum(entry.span.count for entry in self.moving)

    def spans(self) -> Iterator[Span]:
        """Every listed span."""
        for lease in self.leases:
            for held in lease.held:
                yield held.span
        for waiting in self.waiting:
            yield waiting.span
        for moving in self.moving:
            yield moving.span


def stamp(head: Head, holder: str, commit: int, now: float, *, lost: int = 0) -> Head:
    """Note that `holder` made its commit number `commit`, and forget the longest silent holders above the limit."""
    holders = {**head.holders, holder: LastCommit(commit, round(now, 3), lost)}
    while len(holders) > HOLDERS_MAX:
        del holders[min(holders.keys() - {holder}, key=lambda name: (holders[name].at, name))]
    return msgspec.structs.replace(head, holders=holders, version=head.version + 1)


def check(head: Head) -> Head:
    """Raise `Corrupt` unless the rules above hold."""
    if head.format != FORMAT:
        raise Corrupt(f"head has format {head.format}, this release reads {FORMAT}; upgrade bucketmq")
    if not 0 <= head.segment <= head.next or head.version < 0 or head.lease < 0:
        raise Corrupt(f"head at offset {head.next} has impossible counters; restore it or start a new subscription")
    numbers = [lease.number for lease in head.leases]
    if len(set(numbers)) != len(numbers) or any(not 0 < number <= head.lease for number in numbers):
        raise Corrupt(f"head at offset {head.next} has lease numbers that cannot be; restore it")
    _check_spans(head.next, head.segment, head.spans())
    times = [lease.until for lease in head.leases] + [entry.after for entry in head.waiting]
    if not all(map(math.isfinite, times)) or not all(math.isfinite(entry.since) for entry in head.moving):
        raise Corrupt(f"head at offset {head.next} has a time that is not a number; use finite delays and leases")
    return head


def _check_spans(next_: int, segment: int, spans: Iterable[Span]) -> None:
    base, end = 0, 0
    for span in sorted(spans, key=lambda span: span.start):
        inside = span.base <= span.start < span.stop <= (next_ if span.base == segment else segment)
        if not inside or span.start < end or (span.base != base and span.base < end):
            raise Corrupt(f"head lists offsets {span.start}..{span.stop} wrongly (next is {next_}); restore it")
        base, end = span.base, span.stop
