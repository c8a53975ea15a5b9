"""A shard driven by hand: its segments, a clock that moves when told, and the head of one subscription."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, settings

from bucketmq.queue.commands import Ack, Bury, Claim, Claimed, Command, Known, Outcome, Redrive, Release, Retry, Settled
from bucketmq.queue.head import Head, Lease, Span
from bucketmq.queue.machine import apply
from bucketmq.queue.policy import Policy

# How fast an example runs on a busy machine says nothing about the code.
settings.register_profile("bucketmq", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("bucketmq")


class Shard:
    """What the tests of the rules talk to. It adds nothing to the rules: every change goes through `apply`."""

    def __init__(self, *, attempts_max: int = 3, in_flight_max: int = 10_000, ordered: bool = False) -> None:
        self.policy = Policy(attempts_max, in_flight_max, ordered)
        self.head = Head(0, 0)
        self.now = 1000.0
        self.segments: list[Known] = []

    def append(self, messages: int | str, *, skip: Iterable[int] = ()) -> Known:
        """A new segment: of so many messages, or one for each letter, which is its key (`.` for none)."""
        letters = "." * messages if isinstance(messages, int) else messages
        keys = tuple(None if letter == "." else letter for letter in letters)
        known = Known(sum(other.count for other in self.segments), len(keys), tuple(skip), keys)
        self.segments.append(known)
        return known

    def do(self, command: Command) -> Outcome:
        self.head, (outcome,) = apply(self.head, [command], self.now, self.policy)
        return outcome

    def ask(
        self, limit: int = 1000, *, holder: str = "w", lease_seconds: float = 60, known: Iterable[Known] | None = None
    ) -> Outcome:
        """Claim, out of all segments unless told which are known."""
        return self.do(Claim(holder, limit, lease_seconds, tuple(self.segments if known is None else known)))

    def claim(self, limit: int = 1000, *, holder: str = "w", lease_seconds: float = 60) -> Lease:
        """Claim, and expect to get something."""
        outcome = self.ask(limit, holder=holder, lease_seconds=lease_seconds)
        assert isinstance(outcome, Claimed), outcome
        return outcome.lease

    def ack(self, lease: Lease, *offsets: int) -> Settled:
        return self._settled(Ack(lease.number, _spans(lease, offsets)))

    def retry(self, lease: Lease, *offsets: int, delay_seconds: float = 0, failed: str = "f") -> Settled:
        return self._settled(Retry(lease.number, _spans(lease, offsets), delay_seconds, failed))

    def bury(self, lease: Lease, *offsets: int, failed: str = "f") -> Settled:
        return self._settled(Bury(lease.number, _spans(lease, offsets), failed))

    def release(self, lease: Lease, *offsets: int) -> Settled:
        return self._settled(Release(lease.number, _spans(lease, offsets)))

    def redrive(self, lease: Lease, *offsets: int) -> Settled:
        return self._settled(Redrive(lease.number, _spans(lease, offsets)))

    def _settled(self, command: Command) -> Settled:
        outcome = self.do(command)
        assert isinstance(outcome, Settled)
        return outcome

    def states(self) -> str:
        """One letter for each offset: Fresh, Held, Waiting, Moving, or `-` for settled; none is listed twice."""
        head = self.head
        listed = [(offset, "H") for lease in head.leases for held in lease.held for offset in _each(held.span)]
        listed += [(offset, "W") for entry in head.waiting for offset in _each(entry.span)]
        listed += [(offset, "M") for entry in head.moving for offset in _each(entry.span)]
        where = dict(listed)
        assert len(where) == len(listed)
        end = sum(known.count for known in self.segments)
        return "".join(where.get(offset, "-" if offset < head.next else "F") for offset in range(end))

    @staticmethod
    def attempts(lease: Lease) -> dict[int, int]:
        """The number of the attempt for each offset that the lease holds, in the order of the lease."""
        return {offset: held.attempt for held in lease.held for offset in _each(held.span)}


def _each(span: Span) -> range:
    return range(span.start, span.stop)


def _spans(lease: Lease, offsets: tuple[int, ...]) -> tuple[Span, ...]:
    """What a holder shows to settle these offsets of its lease, or all of it."""
    if not offsets:
        return tuple(held.span for held in lease.held)
    bases = {offset: held.span.base for held in lease.held for offset in _each(held.span)}
    return tuple(Span(bases[offset], offset, offset + 1) for offset in offsets)


@pytest.fixture
def make_shard() -> type[Shard]:
    return Shard


@pytest.fixture
def shard() -> Shard:
    return Shard()


@pytest.fixture
def ordered() -> Shard:
    return Shard(ordered=True)
