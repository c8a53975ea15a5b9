"""Receive: claim messages of a subscription and read them; settle them later, many at a time.

A claim costs one PUT of the head and, in steady state, one GET of the segment, which is read while the claim before it
is being written. Settlements are gathered in the process and travel with the next claim, so receiving and settling a
batch is one GET and one PUT.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from bucketmq.bucket.port import Object
from bucketmq.errors import Corrupt, Invalid, LeaseLost
from bucketmq.log.segment import Segment
from bucketmq.procedures.checks import check_seconds, plain_text
from bucketmq.procedures.claiming.gaps import passed_gap, read_held
from bucketmq.procedures.heads.desk import Desk, Settlement, commit, jumped, load, recent_head
from bucketmq.procedures.requests import Now, Procedure
from bucketmq.procedures.segments.messages import keep_segment, read_segment, read_span
from bucketmq.procedures.verbs import get_many
from bucketmq.queue.claiming import next_due
from bucketmq.queue.commands import (
    Ack,
    Bury,
    Claim,
    Claimed,
    Extend,
    Extended,
    Full,
    Known,
    Nothing,
    Redrive,
    Release,
    Retry,
    Settle,
)
from bucketmq.queue.head import Head, Held, Lease, Span
from bucketmq.queue.message import Message
from bucketmq.queue.spans import cut

logger = logging.getLogger("bucketmq")

SEGMENTS_PER_CLAIM = 32
"""A claim looks at no more segments than this, so many tiny ones make it hand out fewer messages, not wait longer."""

CLAIM_ROUNDS = 8
PASS_SEGMENTS = 16
PASS_SECONDS = 60.0
"""A rule that wants nothing of what comes moves its head on after so many segments, or so long."""

MISSING_SECONDS = 1.0
"""How long the rules of one process believe that the log ends where one of them found its end."""


MakeSettle = Callable[[tuple[Span, ...], str], Settle]


class Lot:
    """The messages of one claim, in this process' hands under one lease."""

    def __init__(self, desk: Desk, lease: Lease, lease_seconds: float, messages: list[Message]) -> None:
        self.desk = desk
        self.lease = lease.number
        self.until = lease.until
        self.lease_seconds = lease_seconds
        self.messages = messages
        self.held = lease.held
        self.count = len(messages)
        self.unsettled: set[int] = set()
        """Offsets this process has not settled yet. To settle one is to remove it, which is one step and fails if it is
        not there: of several threads that settle one message only one may, and they need no lock."""
        for each in lease.held:
            self.unsettled.update(range(each.span.start, each.span.stop))
        self.bodies: dict[str, Any] = {}
        """Large bodies by message id, fetched for a facade."""
        self.model: type | None = None
        """What a facade was asked to make of bodies."""
        self.fitted: dict[int, Any] = {}
        """The bodies that were made so, by offset."""
        self.engine: Any = None
        """What a facade settles this lot with."""
        self.lost = False
        """Whether the bucket has told us that the lease is gone."""
        self.gone: set[int] = set()
        """Offsets of which the bucket has said that they were not ours to settle; the others still are, unless `lost`:
        a purge takes messages out of a lease that goes on."""
        self._acked: deque[int] = deque()
        self._dirty = False

    @property
    def open(self) -> int:
        """How many of them this process has not settled yet."""
        return len(self.unsettled)

    def places(self) -> list[tuple[int, int]]:
        """The offset and the attempt of each message, in order."""
        return [(offset, held.attempt) for held in self.held for offset in range(held.span.start, held.span.stop)]

    def ack(self, offset: int) -> None:
        """Note that the message is done; the next commit says so to the bucket."""
        try:  # as `_take`, without a call for every message
            self.unsettled.remove(offset)
        except KeyError:
            raise self._twice(offset) from None
        self._acked.append(offset)
        if not self._dirty:
            self.mark()

    def _take(self, offset: int) -> None:
        """Raise `Invalid` if somebody has settled this one before."""
        try:
            self.unsettled.remove(offset)
        except KeyError:
            raise self._twice(offset) from None

    def _twice(self, offset: int) -> Invalid:
        (id_,) = (m.id for m, (place, _) in zip(self.messages, self.places(), strict=True) if place == offset)
        return Invalid(f"message {id_} was settled already; settle each delivery once")

    def mark(self) -> None:
        self._dirty = True
        self.desk.add_dirty(self)

    def hand_in(self) -> list[Settlement]:
        self._dirty = False
        if len(self._acked) == self.count:  # all of them, each once, so nobody adds any more
            self._acked.clear()
            spans = tuple(held.span for held in self.held)
        elif offsets := [self._acked.popleft() for _ in range(len(self._acked))]:
            spans = self.spans_of(offsets)
        else:
            return []
        return [Settlement((), lambda _: Ack(self.lease, spans), None, 0, self.note_lost)]

    def settle(self, offset: int, attempt: int, make: MakeSettle, why: str | None) -> None:
        """Note any other end of a message. `why` is kept in a failure record."""
        why = None if why is None else plain_text(why)
        self._take(offset)
        spans = self.spans_of([offset])
        self.desk.add(Settlement((offset,), lambda record: make(spans, record), why, attempt, self.note_lost))

    def retry(self, offset: int, attempt: int, delay_seconds: float, why: str) -> None:
        delay_seconds = check_seconds(delay_seconds, "delay_seconds")
        self.settle(offset, attempt, lambda spans, record: Retry(self.lease, spans, delay_seconds, record), why)

    def bury(self, offset: int, attempt: int, why: str) -> None:
        self.settle(offset, attempt, lambda spans, record: Bury(self.lease, spans, record), why)

    def release(self, offset: int, attempt: int) -> None:
        self.settle(offset, attempt, lambda spans, _: Release(self.lease, spans), None)

    def release_all(self) -> None:
        """Give back everything that is not settled yet."""
        offsets: list[int] = []
        try:
            while True:
                offsets.append(self.unsettled.pop())
        except KeyError:
            pass  # none is left
        if offsets:
            spans = self.spans_of(offsets)
            self.desk.add(Settlement((), lambda _: Release(self.lease, spans), None, 0, self.note_lost))

    def split(self, limit: int) -> list[Lot]:
        """The same messages under the same lease as lots of at most `limit`."""
        lots: list[Lot] = []
        held = list(self.held)
        left = self.messages
        while left:
            taken, held = _take_held(held, limit)
            count = sum(each.span.count for each in taken)
            lease = Lease(self.lease, self.desk.queue.holder, self.until, tuple(taken))
            lots.append(Lot(self.desk, lease, self.lease_seconds, left[:count]))
            left = left[count:]
        return lots

    def redrive(self, offset: int, attempt: int) -> None:
        self.settle(offset, attempt, lambda spans, _: Redrive(self.lease, spans), None)

    def note_lost(self, spans: tuple[Span, ...]) -> None:
        """The bucket said that these were not ours to settle any more."""
        self.gone.update(offset for span in spans for offset in range(span.start, span.stop))
        self.lost = self.lost or not self.desk.has_lease(self.lease)
        self.desk.lost.append(self._lost_text())
        offsets = ",".join(f"{span.start}-{span.stop - 1}" for span in spans[:5])
        logger.warning("action=lease_lost head=%s lease=%d offsets=%s", self.desk.key, self.lease, offsets)

    def is_gone(self, offset: int) -> bool:
        """Whether the bucket has said that this message is not ours any more."""
        return self.lost or offset in self.gone

    def over(self, now: float) -> bool:
        """Whether the lease has ended, as far as we know."""
        return self.lost or now >= self.until

    def check(self, offset: int | None = None) -> None:
        """Raise `LeaseLost` if the bucket has said so already, of this message or of any."""
        if self.lost or self.gone if offset is None else self.is_gone(offset):
            raise LeaseLost(self._lost_text())

    def _lost_text(self) -> str:
        lease = f"lease {self.lease} on {self.desk.key}"
        if self.lost:
            return (
                f"{lease} is gone: it expired and its messages may be with somebody else; "
                "stop working on them, and extend the lease or raise lease_seconds if the work takes longer"
            )
        offsets = ", ".join(str(offset) for offset in sorted(self.gone)[:5])
        return f"{lease} does not hold messages {offsets} any more: they were purged"

    def spans_of(self, offsets: Sequence[int]) -> tuple[Span, ...]:
        """Offsets of this lot as spans, neighbours joined."""
        bases = [held.span for held in self.held]
        spans: list[Span] = []
        at = 0
        for offset in sorted(offsets):
            while not bases[at].start <= offset < bases[at].stop:
                at = (at + 1) % len(bases)
            base = bases[at].base
            if spans and spans[-1].stop == offset and spans[-1].base == base:
                spans[-1] = Span(base, spans[-1].start, offset + 1)
            else:
                spans.append(Span(base, offset, offset + 1))
        return tuple(spans)


def _take_held(held: list[Held], limit: int) -> tuple[list[Held], list[Held]]:
    """The first `limit` messages of `held`, and the rest."""
    taken: list[Held] = []
    for place, each in enumerate(held):
        first, rest = cut(each.span, limit)
        taken.append(msgspec.structs.replace(each, span=first))
        limit -= first.count
        if rest is not None:
            return taken, [msgspec.structs.replace(each, span=rest), *held[place + 1 :]]
        if not limit:
            return taken, held[place + 1 :]
    return taken, []


class Empty(msgspec.Struct, frozen=True):
    """Nothing to hand out now. `due` is when something listed may become claimable."""

    due: float | None


Claimless = Empty | Full


def claim(desk: Desk, limit: int, lease_seconds: float, *, gives_way: bool = False) -> Procedure[Lot | Claimless]:
    """Claim up to `limit` messages of one shard and read them. With `gives_way`, a lost race raises `Beaten`."""
    for _ in range(CLAIM_ROUNDS):
        head = yield from recent_head(desk)
        known = yield from _kept(desk, head, limit)
        if known is None:
            continue
        now = yield from Now()
        idle = not something_due(head, now) and not _may_free_some(desk)
        if idle and not known and (yield from passed_gap(desk, head)):
            continue
        if idle and (not known or _may_pass_later(desk, head, known, now)):
            return Empty(next_due(head))
        many = desk.contention.tactics.reads_ahead and desk.is_shared(now) and not desk.queue.bucket.local
        ahead = _ahead(head, known, limit, many=many)
        command = Claim(desk.queue.holder, limit, lease_seconds, known)
        outcome = (yield from commit(desk, command, ahead=ahead, gives_way=gives_way))[-1]
        match outcome:
            case Claimed(lease):
                if not head.version and (yield from _begun_too_late(desk)):
                    continue
                readable, messages = yield from read_held(desk, lease)
                _drop_finished(desk, known)
                if (yield from _slept_through(desk, lease)):
                    continue
                if readable.held:
                    return Lot(desk, readable, lease_seconds, messages)
            case Full():
                return outcome
            case Nothing(due=due):
                if not known:
                    return Empty(due)
            case _:
                raise AssertionError(outcome)
    return Empty(None)


def _begun_too_late(desk: Desk) -> Procedure[bool]:
    """Whether a trim that had not seen this new head has passed what it claimed. Asked once its head is written: a trim
    that moves the mark later sees the head. One GET."""
    desk.doubts_trim = True
    return (yield from jumped(desk, (yield from recent_head(desk))))


def _slept_through(desk: Desk, lease: Lease) -> Procedure[bool]:
    """Whether the lease is over and its messages are somebody else's by now: what was read at their places may be what
    a process that slept put there. One GET if the lease is over, otherwise none."""
    if (yield from Now()) < lease.until:
        return False
    head = yield from load(desk)
    return all(each.number != lease.number for each in head.leases)


def _may_pass_later(desk: Desk, head: Head, known: tuple[Known, ...], now: float) -> bool:
    """Whether there is nothing to do but to pass over messages that the subscription does not want, and that can wait:
    nobody loses anything by looking at them again, and a commit for its own sake costs a PUT."""
    if desk.choice is None or len(known) > PASS_SEGMENTS or any(wanted_of(each, head.next) for each in known):
        desk.passing_since = None
        return False
    if desk.passing_since is None:
        desk.passing_since = now
    if now - desk.passing_since < PASS_SECONDS:
        return True
    desk.passing_since = None
    return False


def something_due(head: Head, now: float) -> bool:
    """Whether something listed in the head may be handed out now."""
    due = next_due(head)
    return due is not None and due <= now


def _may_free_some(desk: Desk) -> bool:
    """Whether what this process has settled and not handed in yet may make something claimable: own retries and
    releases, and in an ordered queue the next message of a key."""
    return bool(desk.settlements) or (desk.ordered and bool(desk.dirty))


def _exhausts(head: Head, known: tuple[Known, ...], limit: int) -> bool:
    """Whether this claim is likely to hand out all that is known, so that the next one needs the segment behind it."""
    return known[-1].base + known[-1].count - head.next <= limit


def _ahead(head: Head, known: tuple[Known, ...], limit: int, *, many: bool) -> tuple[int, ...]:
    """The bases of the segments that the claim after this one is likely to need.

    More than one only where others compete: there a claim that has to read first is too late.
    """
    if not known or not _exhausts(head, known, limit):
        return ()
    last, end = known[-1], known[-1].base + known[-1].count
    if not many or any(each.count != last.count for each in known):
        return (end,)
    return guessed_bases(end, end + limit, last.count, len(known))


def _kept(desk: Desk, head: Head, limit: int) -> Procedure[tuple[Known, ...] | None]:
    """Segments from the head's position on; None if trimming had passed it, and it jumped to the trim mark."""
    try:
        known = yield from _known(desk, head, limit)
    except Corrupt:  # or half trimmed
        desk.doubts_trim = True
        if not (yield from jumped(desk, head)):
            raise
        return None
    return None if (yield from jumped(desk, head)) else known


def _known(desk: Desk, head: Head, limit: int) -> Procedure[tuple[Known, ...]]:
    """Segments from the head's position on, enough for `limit` messages."""
    known: list[Known] = []
    base, left = head.segment, limit
    at_once = 1
    while left > 0 and len(known) < SEGMENTS_PER_CLAIM:
        if known and not desk.queue.bucket.local:
            most = min(at_once, SEGMENTS_PER_CLAIM - len(known))
            guessed = guessed_bases(base, base + left, known[-1].count, most)
            at_once = at_once * 2 if (yield from _read_guessed(desk, guessed)) else 0
        if desk.choice is not None and (yield from _just_missing(desk, base)):
            break
        segment = yield from read_segment(desk.queue, desk.log, base)
        if segment is None:
            desk.log.missing = base, (yield from Now())
            break
        known.append((yield from _describe(desk, segment)))
        left -= wanted_of(known[-1], head.next)
        base = segment.end
    return tuple(known)


def wanted_of(known: Known, start: int) -> int:
    """How many messages of a segment, from `start` on, the subscription wants."""
    first = max(known.base, start)
    skipped = sum(offset >= first for offset in known.skip)
    return max(0, known.base + known.count - first) - skipped


def _just_missing(desk: Desk, base: int) -> Procedure[bool]:
    """Whether another rule of this process has just found that nothing is there, and nobody here has sent since."""
    missing, at = desk.log.missing
    if missing != base or desk.queue.bucket.local or (desk.log.tail is not None and desk.log.tail > base):
        return False
    now = yield from Now()
    return now - at < MISSING_SECONDS


def guessed_bases(base: int, end: int, count: int, most: int) -> tuple[int, ...]:
    """Where the next segments lie if they are as long as the last one: producers often send equal batches."""
    return tuple(range(base, end, count))[:most]


def _read_guessed(desk: Desk, bases: tuple[int, ...]) -> Procedure[bool]:
    """Read several segments at once instead of one after the other; a wrong guess costs a GET and nothing else.

    False if one was wrong: the log ends there, or goes on otherwise, and guessing on would cost more than it saves.
    """
    missing = [base for base in bases if desk.queue.segments.find(desk.log.key(base)) is None]
    right = True
    if len(missing) > 1:
        found = yield from get_many([desk.log.key(base) for base in missing])
        for base, each in zip(missing, found, strict=True):
            if isinstance(each, Object):
                keep_segment(desk.queue, desk.log, base, each)
            else:
                right = False
    return right


def _describe(desk: Desk, segment: Segment) -> Procedure[Known]:
    """What the rules need to know about a segment for this subscription."""
    ordered = desk.ordered
    if not segment.parts:
        segment.check()
    passed_over = (yield from desk.choice.passes_over(desk, segment)) if desk.choice is not None else frozenset()
    if not ordered and not passed_over and segment.is_for_all:
        return Known(segment.base, segment.count)
    messages = yield from read_span(desk.queue, desk.log, Span(segment.base, segment.base, segment.end))
    skip = tuple(
        segment.base + place
        for place, message in enumerate(messages)
        if message.fence is not None
        or message.to not in (None, desk.subscription)
        or segment.base + place in passed_over
    )
    keys = tuple(message.key for message in messages) if ordered else ()
    return Known(segment.base, segment.count, skip, keys)


def _drop_finished(desk: Desk, known: tuple[Known, ...]) -> None:
    """Let go of segments that are handed out: what is left of them is rarely read again."""
    for each in known:
        if desk.head is not None and each.base + each.count <= desk.head.segment:
            desk.queue.segments.drop(desk.log.key(each.base))


def flush(desk: Desk) -> Procedure[None]:
    """Commit the settlements that wait, if any. One PUT."""
    if desk.has_settlements:
        yield from commit(desk)


def extend(lot: Lot, lease_seconds: float) -> Procedure[float]:
    """Make the lease last `lease_seconds` from now; returns until when, on the store's clock. One PUT."""
    (outcome,) = yield from commit(lot.desk, Extend(lot.lease, lease_seconds))
    if isinstance(outcome, Extended):
        lot.until = outcome.until
        return outcome.until
    lot.lost = True
    lot.check()
    raise AssertionError(outcome)
