"""`apply` against a plain model: no spans, no joining, no cutting, but a cell for each offset and a loop for each rule.

Hypothesis plays several holders with one shard: it appends segments, claims, settles with good, stale and made-up
receipts, lets time pass (and go back a little, as clocks do), aims and finishes moves, and jumps. After every step the
head must say about every offset what the model says, and the invariants of the design must hold:

- I1   nothing is lost: in the end everything is settled, after every message was handed out or moved or jumped over
- I3   one lease for a message at a time, and lease numbers for a message only grow
- I4   a message is acked at most once, and never handed out after that
- I6   attempts are the leases a message had, less those that were released, and never more than allowed
- I9   in ordered queues, a key's messages are handed out in offset order, one at a time
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bucketmq.log import documents
from bucketmq.queue.claiming import LOST_WORKER
from bucketmq.queue.commands import (
    Ack,
    Aim,
    Bury,
    Claim,
    Claimed,
    Command,
    Extend,
    Extended,
    Full,
    Jump,
    Known,
    Lost,
    Moved,
    Noted,
    Nothing,
    Outcome,
    Redrive,
    Release,
    Retry,
    Settle,
    Settled,
)
from bucketmq.queue.head import Head, Span, Target
from bucketmq.queue.machine import apply
from bucketmq.queue.policy import Policy


@dataclass
class Cell:
    """All that is known about one offset below `next`."""

    state: str
    attempts: int = 0
    failed: tuple[str, ...] = ()
    lease: int = 0
    after: float = 0.0
    since: float = 0.0
    target: Target | None = None


class Model:
    """The rules once more, written for the reader and not for the bucket."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.segments: list[Known] = []
        self.cells: list[Cell] = []  # one for each offset below `next`
        self.base: list[int] = []
        self.key: list[str | None] = []
        self.skipped: set[int] = set()
        self.leases: dict[int, tuple[str, float]] = {}
        self.number = 0

    @property
    def end(self) -> int:
        return len(self.base)

    @property
    def next(self) -> int:
        return len(self.cells)

    def append(self, segment: Known) -> None:
        self.segments.append(segment)
        self.base += [segment.base] * segment.count
        self.key += segment.keys
        self.skipped |= set(segment.skip)

    def offsets(self, *states: str) -> list[int]:
        return [offset for offset, cell in enumerate(self.cells) if cell.state in states]

    def held_by(self, number: int) -> set[int]:
        return {offset for offset in self.offsets("held") if self.cells[offset].lease == number}

    def _key(self, offset: int) -> str | None:
        return self.key[offset] if self.policy.ordered else None

    def claim(self, command: Claim, now: float) -> list[int]:
        """The offsets handed out, in the order they are."""
        self._expire(now)
        given: list[int] = []
        busy = {self._key(offset) for offset in self.offsets("held")} - {None}
        for offset in self.offsets("waiting"):
            due = self.cells[offset].after <= now and len(given) < command.limit
            if due and self._key(offset) not in busy:
                given.append(offset)
            busy |= {self._key(offset)} - {None}
        room = self.room
        known = {segment.base for segment in command.known}
        while self.next < self.end and self.base[self.next] in known:
            offset, enough = self.next, room == 0 or len(given) == command.limit
            if offset in self.skipped and not (enough and self.policy.ordered):
                self.cells.append(Cell("settled"))
                continue
            if enough:
                break
            room -= 1
            self.cells.append(Cell("waiting"))
            if self._key(offset) not in busy:
                given.append(offset)
            busy |= {self._key(offset)} - {None}
        if given:
            self.number += 1
            self.leases[self.number] = command.holder, now + command.lease_seconds
        for offset in given:
            cell = self.cells[offset]
            self.cells[offset] = Cell("held", cell.attempts + 1, cell.failed, self.number)
        return given

    @property
    def room(self) -> int:
        return max(0, self.policy.in_flight_max - len(self.offsets("held", "waiting", "moving")))

    def _expire(self, now: float) -> None:
        for number, (holder, until) in list(self.leases.items()):
            if until <= now:
                for offset in self.held_by(number):
                    self._failed(offset, LOST_WORKER + holder, 0.0, now)
                del self.leases[number]

    def _failed(self, offset: int, why: str, after: float, now: float) -> None:
        cell = self.cells[offset]
        failed = (*cell.failed, why)
        if cell.attempts >= self.policy.attempts_max:
            self.cells[offset] = Cell("moving", cell.attempts, failed, since=now)
        else:
            self.cells[offset] = Cell("waiting", cell.attempts, failed, after=after)

    def due(self) -> float | None:
        """When something may become claimable: a lease ends, or a message that no other of its key is before."""
        times = [until for _, until in self.leases.values()]
        busy = {self._key(offset) for offset in self.offsets("held")} - {None}
        for offset in self.offsets("waiting"):
            if self._key(offset) not in busy:
                times.append(self.cells[offset].after)
            busy |= {self._key(offset)} - {None}
        return min(times, default=None)

    def settle(self, command: Command, offset: int, now: float) -> None:
        cell = self.cells[offset]
        match command:
            case Ack():
                self.cells[offset] = Cell("settled")
            case Retry():
                self._failed(offset, command.failed, now + command.delay_seconds, now)
            case Bury():
                self.cells[offset] = Cell("moving", cell.attempts, (*cell.failed, command.failed), since=now)
            case Release():
                self.cells[offset] = Cell("waiting", cell.attempts - 1, cell.failed)
            case Redrive():
                self.cells[offset] = Cell("moving", cell.attempts, cell.failed, since=now)

    def forget_empty_leases(self) -> None:
        self.leases = {number: lease for number, lease in self.leases.items() if self.held_by(number)}

    def jump(self, to: int) -> None:
        self.cells = [Cell("settled") if self.base[at] < to else cell for at, cell in enumerate(self.cells)]
        self.cells += [Cell("settled") for _ in range(self.next, to)]
        self.forget_empty_leases()


@dataclass
class Pick:
    """Which lease, and what of it, as Hypothesis chooses it."""

    which: int
    how: str
    start: int
    count: int


PICKS = st.builds(
    Pick,
    which=st.integers(0, 1000),
    how=st.sampled_from(["all", "all", "one", "run", "made up"]),
    start=st.integers(0, 40),
    count=st.integers(1, 5),
)
holding = precondition(lambda self: self.model.leases)

KEYS = st.lists(st.sampled_from([None, "a", "b"]), min_size=1, max_size=7)


class Agreement(RuleBasedStateMachine):
    """The head and the model, told the same things."""

    ordered = False

    @initialize(attempts_max=st.sampled_from([3, 2, 1]), in_flight_max=st.sampled_from([1000, 8, 2]), keys=KEYS)
    def begin(self, attempts_max: int, in_flight_max: int, keys: list[str | None]) -> None:
        policy = Policy(attempts_max, in_flight_max, self.ordered)
        self.model = Model(policy)
        self.head = Head(0, 0)
        self.now = 1000.0
        self.last: tuple[Head, Command, Outcome, float] | None = None
        self.receipts: dict[int, tuple[Span, ...]] = {}
        self.numbers: defaultdict[int, list[int]] = defaultdict(list)
        self.released: defaultdict[int, int] = defaultdict(int)
        self.acked: set[int] = set()
        self.moves = 0
        self.append(keys, set())
        self.claim(3, 0, 2)

    def do(self, command: Command) -> Outcome:
        """Apply, and see that two commands in one commit are the same as in two."""
        before = self.head
        self.head, (outcome,) = apply(before, [command], self.now, self.model.policy)
        if self.last and self.last[3] == self.now:
            earlier, other, other_outcome, _ = self.last
            together = apply(earlier, [other, command], self.now, self.model.policy)
            assert together == (self.head, (other_outcome, outcome))
        self.last = before, command, outcome, self.now
        assert documents.decode_head(documents.encode(self.head), "head") == self.head
        return outcome

    @rule(
        keys=KEYS,
        skip=st.sets(st.integers(0, 6), max_size=2),
    )
    def append(self, keys: list[str | None], skip: set[int]) -> None:
        base = self.model.end
        offsets = tuple(sorted(base + place for place in skip if place < len(keys)))
        self.model.append(Known(base, len(keys), offsets, tuple(keys)))

    @rule(limit=st.sampled_from([3, 9, 1, 5, 0]), behind=st.integers(0, 2), ahead=st.sampled_from([2, 4, 1, 0]))
    def claim(self, limit: int, behind: int, ahead: int) -> None:
        self._claim_near("x", 10.0, limit, behind, ahead)

    # Hypothesis leaves out some rules in each run, but without claims there is little to see: so there are three.

    @rule(keys=KEYS, limit=st.sampled_from([1, 3, 9]))
    def claim_something_new_with_a_long_lease(self, keys: list[str | None], limit: int) -> None:
        self.append(keys, set())
        self._claim_near("y", 1000.0, limit, 0, 3)

    @rule(limit=st.sampled_from([1, 3, 9]))
    def claim_with_a_short_lease(self, limit: int) -> None:
        self._claim_near("z", 1.0, limit, 0, 3)

    def _claim_near(self, holder: str, lease_seconds: float, limit: int, behind: int, ahead: int) -> None:
        """Knowing some segments before and after the head's position."""
        bases = [segment.base for segment in self.model.segments]
        here = bases.index(self.head.segment) if self.head.segment in bases else len(bases)
        known = tuple(self.model.segments[max(0, here - behind) : here + ahead])
        self._claim(Claim(holder, limit, lease_seconds, known))

    def _claim(self, command: Claim) -> Outcome:
        outcome = self.do(command)
        given = self.model.claim(command, self.now)
        if not given:
            due = self.model.due()
            full = command.limit > 0 and self.model.room == 0
            assert outcome == (Full(due) if full else Nothing(self.head.next, self.head.segment, due))
            assert due is None or due > self.now or command.limit == 0
            return outcome
        assert isinstance(outcome, Claimed)
        spans = tuple(held.span for held in outcome.lease.held)
        self.receipts[outcome.lease.number] = spans
        assert [offset for span in spans for offset in range(span.start, span.stop)] == given
        assert len(given) <= command.limit
        for offset in given:
            assert offset not in self.acked
            assert offset not in self.model.skipped
            assert all(number < outcome.lease.number for number in self.numbers[offset])
            self.numbers[offset].append(outcome.lease.number)
        if self.ordered:
            self._check_order(given)
        return outcome

    def _check_order(self, given: list[int]) -> None:
        for offset in given:
            key, open_ = self.model.key[offset], self.model.offsets("held", "waiting")
            assert key is None or all(other >= offset for other in open_ if self.model.key[other] == key)

    @holding
    @rule(pick=PICKS)
    def ack(self, pick: Pick) -> None:
        self._settle(Ack(*self._receipt(self._live_lease(pick), pick)))

    @holding
    @rule(pick=PICKS, delay_seconds=st.sampled_from([0.0, 20.0]), failed=st.sampled_from(["f", "g"]))
    def retry(self, pick: Pick, delay_seconds: float, failed: str) -> None:
        self._settle(Retry(*self._receipt(self._live_lease(pick), pick), delay_seconds, failed))

    @holding
    @rule(pick=PICKS)
    def release(self, pick: Pick) -> None:
        self._settle(Release(*self._receipt(self._live_lease(pick), pick)))

    @holding
    @rule(pick=PICKS)
    def bury(self, pick: Pick) -> None:
        self._settle(Bury(*self._receipt(self._live_lease(pick), pick), "f"))

    @holding
    @rule(pick=PICKS)
    def redrive(self, pick: Pick) -> None:
        self._settle(Redrive(*self._receipt(self._live_lease(pick), pick)))

    @precondition(lambda self: self.model.number > 1)
    @rule(pick=PICKS, kind=st.sampled_from([Ack, Release, Redrive]))
    def settle_with_any_number(self, pick: Pick, kind: type[Ack | Release | Redrive]) -> None:
        """Live, over, settled, or never given out."""
        self._settle(kind(*self._receipt(pick.which % (self.model.number + 2), pick)))

    def _live_lease(self, pick: Pick) -> int:
        live = sorted(self.model.leases)
        return live[pick.which % len(live)]

    def _receipt(self, number: int, pick: Pick) -> tuple[int, tuple[Span, ...]]:
        """All or a part of what was handed out under this number, or spans that overlap and may reach anywhere."""
        spans = self.receipts.get(number, ())
        if pick.how == "made up" or not spans:
            start, stop = pick.start, pick.start + pick.count
            return number, (Span(0, start + 1, stop + 1), Span(0, start, stop))
        if pick.how == "all":
            return number, spans
        span = spans[pick.which % len(spans)]
        start = span.start + pick.start % span.count
        return number, (Span(span.base, start, min(span.stop, start + (pick.count if pick.how == "run" else 1))),)

    def _settle(self, command: Settle) -> None:
        outcome = self.do(command)
        wanted = {offset for span in command.spans for offset in range(span.start, span.stop)}
        taken = wanted & self.model.held_by(command.lease)
        assert isinstance(outcome, Settled)
        assert outcome.count == len(taken)
        assert {offset for span in outcome.lost for offset in range(span.start, span.stop)} == wanted - taken
        for offset in taken:
            if isinstance(command, Ack):
                assert offset not in self.acked
                self.acked.add(offset)
            if isinstance(command, Release):
                self.released[offset] += 1
            self.model.settle(command, offset, self.now)
        self.model.forget_empty_leases()

    @precondition(lambda self: self.model.number > 1)
    @rule(which=st.integers(0, 1000), lease_seconds=st.sampled_from([10.0, 60.0, 0.5]))
    def extend(self, which: int, lease_seconds: float) -> None:
        live = sorted(self.model.leases)
        number = live[which % len(live)] if live and which % 4 else which % (self.model.number + 2)
        outcome = self.do(Extend(number, lease_seconds))
        if number not in self.model.leases:
            assert outcome == Lost(number)
            return
        holder, until = self.model.leases[number]
        self.model.leases[number] = holder, max(until, self.now + lease_seconds)
        assert outcome == Extended(self.model.leases[number][1])

    @rule(seconds=st.sampled_from([10.0, 30.0, 0.5, -1.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.head.moving)
    @rule(which=st.integers(0, 1000), every=st.integers(1, 3))
    def aim(self, which: int, every: int) -> None:
        """Some of the moves that have the same target, or none, as a mover does; now and then with a wrong `was`."""
        moving = self.head.moving
        was = Target(0, 0, "never") if which % 8 == 7 else moving[which % len(moving)].target
        self._aim(tuple(entry.span.start for entry in moving[::every]), was)

    def _aim(self, starts: tuple[int, ...], was: Target | None) -> Target:
        self.moves += 1
        target = Target(0, 10 * self.moves, f"m{self.moves}")
        entries = [entry for entry in self.head.moving if entry.span.start in starts and entry.target == was]
        assert self.do(Aim(starts, was, target)) == Noted(bool(entries))
        for entry in entries:
            for offset in range(entry.span.start, entry.span.stop):
                self.model.cells[offset].target = target
        return target

    @precondition(lambda self: self.head.moving)
    @rule(which=st.integers(0, 1000))
    def moved(self, which: int) -> None:
        targets = [entry.target for entry in self.head.moving if entry.target]
        self._moved(Target(0, 0, "never") if which % 8 == 7 or not targets else targets[which % len(targets)])

    def _moved(self, target: Target) -> None:
        arrived = [at for at in self.model.offsets("moving") if self.model.cells[at].target == target]
        assert self.do(Moved(target)) == Noted(bool(arrived))
        for offset in arrived:
            self.model.cells[offset] = Cell("settled")

    @precondition(lambda self: self.model.next > 12)
    @rule(which=st.integers(0, 1000), far=st.integers(0, 3))
    def jump(self, which: int, far: int) -> None:
        """Seldom, and seldom far: a jump ends what the other rules have built up."""
        bases = [*(segment.base for segment in self.model.segments), self.model.end]
        to = bases[which % len(bases)] if far == 3 else self.head.needs_from
        before = self.head
        assert self.do(Jump(to)) == Noted(self.head != before)
        self.model.jump(to)

    @invariant()
    def head_and_model_agree_about_every_offset(self) -> None:
        model = self.model
        found = [
            (offset, Cell("held", held.attempt, held.failed, lease.number), held.key)
            for lease in self.head.leases
            for held in lease.held
            for offset in range(held.span.start, held.span.stop)
        ]
        found += [
            (offset, Cell("waiting", entry.attempts, entry.failed, after=entry.after), entry.key)
            for entry in self.head.waiting
            for offset in range(entry.span.start, entry.span.stop)
        ]
        found += [
            (offset, Cell("moving", entry.attempts, entry.failed, since=entry.since, target=entry.target), None)
            for entry in self.head.moving
            for offset in range(entry.span.start, entry.span.stop)
        ]
        cells = {offset: cell for offset, cell, _ in found}
        assert len(cells) == len(found), "an offset is listed twice"
        assert cells == {offset: cell for offset, cell in enumerate(model.cells) if cell.state != "settled"}
        assert {lease.number: (lease.holder, lease.until) for lease in self.head.leases} == model.leases
        for offset, cell, key in found:
            assert key == (model.key[offset] if self.ordered and cell.state != "moving" else None)

    @invariant()
    def positions_are_right(self) -> None:
        model, head = self.model, self.head
        open_ = model.offsets("held", "waiting", "moving")
        segment = model.base[model.next] if model.next < model.end else model.end
        assert (head.next, head.segment, head.lease) == (model.next, segment, model.number)
        assert head.done_below == min(open_, default=model.next)
        assert head.needs_from == min((model.base[offset] for offset in open_), default=segment)
        assert all(span.base == model.base[at] for span in head.spans() for at in range(span.start, span.stop))
        assert head.held_count == len(model.offsets("held"))
        assert head.waiting_count == len(model.offsets("waiting"))
        assert head.moving_count == len(model.offsets("moving"))

    @invariant()
    def attempts_are_leases_that_were_not_released(self) -> None:
        for offset in self.model.offsets("held", "waiting", "moving"):
            cell = self.model.cells[offset]
            assert cell.attempts == len(self.numbers[offset]) - self.released[offset]
            assert cell.attempts <= self.model.policy.attempts_max
            if cell.state == "held":
                assert self.numbers[offset][-1] == cell.lease
                assert len(cell.failed) == cell.attempts - 1

    @invariant()
    def a_key_has_one_message_in_flight(self) -> None:
        if self.ordered:
            keys = [self.model.key[offset] for offset in self.model.offsets("held") if self.model.key[offset]]
            assert len(set(keys)) == len(keys)

    @invariant()
    def what_waits_is_in_order_and_neighbours_that_are_alike_are_one(self) -> None:
        for one, other in zip(self.head.waiting, self.head.waiting[1:], strict=False):
            assert one.span.stop <= other.span.start
            alike = (one.span.base, one.attempts, one.after, one.failed, one.key) == (
                other.span.base, other.attempts, other.after, other.failed, other.key,
            )  # fmt: skip
            assert not (alike and one.span.stop == other.span.start)

    def teardown(self) -> None:
        """Whatever happened, patient workers and movers get to the end, and then nothing is left."""
        if not hasattr(self, "model"):
            return
        self.now += 1_000_000.0
        for _ in range(20 * self.model.end + 20):
            outcome = self._claim(Claim("last", 50, 60.0, tuple(self.model.segments)))
            for was in {entry.target for entry in self.head.moving}:
                starts = tuple(entry.span.start for entry in self.head.moving if entry.target == was)
                self._moved(self._aim(starts, was))
            if isinstance(outcome, Claimed):
                self._settle(Ack(outcome.lease.number, self.receipts[outcome.lease.number]))
            elif isinstance(outcome, Nothing):
                break
        self.head_and_model_agree_about_every_offset()
        assert self.head.done_below == self.head.next == self.model.end
        assert list(self.head.spans()) == []


class OrderedAgreement(Agreement):
    ordered = True


TestAnyOrder = Agreement.TestCase
TestAnyOrder.settings = settings(max_examples=200, stateful_step_count=50)
TestOrdered = OrderedAgreement.TestCase
TestOrdered.settings = TestAnyOrder.settings
