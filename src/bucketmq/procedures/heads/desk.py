"""Commit: many commands, one replacement of a head.

All callers of a process who want something of one head share the next commit. The commands are applied to the head as
this process last saw it; if the replacement is refused, the head is read and they are applied again to what is there.

Whether a write whose reply was lost has landed is told by the head itself: it names, for each holder, the number of its
last commit. At any time only the newest attempt of a commit can still land, because each is conditional on one state
and states never recur; so if the number is there, it is the newest attempt that counted and its outcomes hold.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

import msgspec

from bucketmq.bucket.port import Missing, Object, Version, Written
from bucketmq.errors import BucketMQError, Contended
from bucketmq.log import documents
from bucketmq.log.documents import FailureLine
from bucketmq.log.segment import Segment, time_text
from bucketmq.procedures.heads.contention import Contention, ShardContention
from bucketmq.procedures.lane import Item, Lane, share
from bucketmq.procedures.opened import OpenQueue, ShardLog
from bucketmq.procedures.requests import Chance, Create, Get, NewId, Now, Pause, Procedure, Replace, Together
from bucketmq.procedures.segments.messages import keep_segment
from bucketmq.procedures.segments.tail import trim_mark
from bucketmq.procedures.verbs import Patience, create_named, get
from bucketmq.queue.commands import Command, Jump, Lost, Outcome, Settle, Settled
from bucketmq.queue.head import Head, Span, stamp
from bucketmq.queue.machine import apply
from bucketmq.queue.message import ATTEMPT_ERROR_CHARS_MAX, Failure
from bucketmq.queue.policy import Policy

CONFLICTS_MAX = 100
"""A commit that lost this many races in a row gives up with `Contended`."""

LOST_MAX = 1_000
HEAD_SECONDS = 5.0
"""An idle process reads a head again after this long, to see leases that others let expire."""


class Ask(Item):
    """Commands of one caller, and their outcomes once the commit has landed."""

    __slots__ = ("ahead", "commands", "gives_way", "outcomes")

    def __init__(self, commands: tuple[Command, ...], ahead: tuple[int, ...], *, gives_way: bool) -> None:
        super().__init__()
        self.gives_way = gives_way
        """Whether the caller would rather do something else than race again."""
        self.commands = commands
        self.outcomes: tuple[Outcome, ...] = ()
        self.ahead = ahead
        """The bases of segments to read along with the write, for the next claim."""


class Settlement(msgspec.Struct, frozen=True):
    """A settlement that waits for the next commit. `make` builds the command, given the failure record's name."""

    offsets: tuple[int, ...]
    make: Callable[[str], Settle]
    failure: str | None
    attempt: int
    on_lost: Callable[[tuple[Span, ...]], None]


class InHand(Protocol):
    """Messages in this process' hands, which gather settlements by themselves (see `claiming.claim.Lot`)."""

    def hand_in(self) -> list[Settlement]: ...

    def release_all(self) -> None: ...


KnownHead = tuple[Head, Version | None]
"""One state of a head, and its mark; None where there is none in the bucket yet."""


class Choice(Protocol):
    """How a subscription differs from a plain reader of all messages. The same for all its readers, or near enough:
    what one passes over nobody else of the subscription will see."""

    @property
    def ordered(self) -> bool:
        """Whether messages of one key are handed out one at a time."""
        ...

    def passes_over(self, desk: Desk, segment: Segment) -> Procedure[frozenset[int]]:
        """The offsets of a segment that the subscription does not want."""
        ...


class Desk:
    """One subscription's shard in one process: the head as last seen, and what waits for the next commit."""

    def __init__(self, queue: OpenQueue, subscription: str, shard: int, contention: Contention) -> None:
        self.queue = queue
        self.subscription = subscription
        self.shard = shard
        self.log: ShardLog = queue.log(shard)
        self.key = queue.keys.head(subscription, shard)
        self.choice: Choice | None = queue.choices.get(subscription)
        self.seen: KnownHead | None = None
        """The head as last seen and its mark, always both: several callers read and write at a time."""
        self.seen_at = 0.0
        """When the head was last read or written, on the store's clock."""
        self.commits = 0
        """The number of this process' last commit."""
        self.contention = ShardContention(contention)
        self.doubts_trim = False
        """Whether trimming may have passed what the head needs: the head was not looked at for long, or something that
        it lists is missing. The next claim compares it with the trim mark."""
        self.passing_since: float | None = None
        """Since when messages that nobody wants have waited to be passed over."""
        self.began_moves = False
        """Whether a commit of ours listed messages to be moved that nobody has begun to move."""
        self.lane: Lane[Ask] = Lane(len)
        self.settlements: deque[Settlement] = deque()
        self.dirty: deque[InHand] = deque()
        """What has settlements to hand in at the next commit."""
        self.spare: deque[InHand] = deque()
        """Claimed and not given to a caller yet: where workers collide, one claim serves several receives."""
        self.spare_at = 0.0
        """When something was last put there or taken."""
        self.fill_at, self.fill_pause = 0.0, 0.0
        """Before this time there is no point in looking here to fill a batch; how long that was."""
        self.lost: deque[str] = deque(maxlen=LOST_MAX)
        """What came too late, until somebody asks."""

    @property
    def ordered(self) -> bool:
        return self.choice.ordered if self.choice is not None else self.queue.settings.ordered

    @property
    def policy(self) -> Policy:
        settings = self.queue.settings
        return Policy(settings.attempts_max, settings.in_flight_max, self.ordered)

    @property
    def head(self) -> Head | None:
        return self.seen[0] if self.seen is not None else None

    def has_lease(self, number: int) -> bool:
        """Whether the head has it, as far as we know."""
        return self.head is not None and any(lease.number == number for lease in self.head.leases)

    def is_recent(self, now: float) -> bool:
        """Whether the head was read or written a moment ago."""
        return self.seen is not None and 0 <= now - self.seen_at <= HEAD_SECONDS

    def is_shared(self, now: float) -> bool:
        """Whether another holder has committed to this head lately."""
        me, since = self.queue.holder, now - self.contention.tactics.shared_seconds
        holders = self.head.holders if self.head is not None else {}
        return any(seen.at > since for name, seen in holders.items() if name != me)

    @property
    def has_settlements(self) -> bool:
        return bool(self.settlements or self.dirty)

    def add(self, *settlements: Settlement) -> None:
        """Have these carried by the next commit."""
        self.settlements.extend(settlements)
        self.have_looked_after()

    def add_dirty(self, lot: InHand) -> None:
        self.dirty.append(lot)
        self.have_looked_after()

    def have_looked_after(self) -> None:
        """Tell the keeper that something waits here."""
        self.queue.bucket.unsettled.setdefault(self, None)

    def take_lost(self) -> list[str]:
        return [self.lost.popleft() for _ in range(len(self.lost))]


class Beaten(Exception):
    """Somebody else was faster, and the caller had said that it gives way then. Never leaves `procedures`."""


def commit(
    desk: Desk, *commands: Command, ahead: tuple[int, ...] = (), gives_way: bool = False
) -> Procedure[tuple[Outcome, ...]]:
    """Have `commands` applied, together with all settlements that wait. One PUT, or none if nothing changes."""
    ask = Ask(commands, ahead, gives_way=gives_way)
    yield from share(desk.lane, ask, lambda asks: _carry(desk, asks))
    return ask.outcomes


def load(desk: Desk) -> Procedure[Head]:
    """Read the head, or begin a new one where there is none. One GET."""
    began = yield from Now()
    desk.doubts_trim = desk.doubts_trim or not desk.is_recent(began)
    found = yield from get(desk.key)
    now = yield from Now()
    desk.contention.shared.time_request(now - began)
    return _see(desk, found, now)[0]


def recent_head(desk: Desk) -> Procedure[Head]:
    """The head as last seen; read again when that was long ago."""
    if desk.head is None or not desk.is_recent((yield from Now())):
        return (yield from load(desk))
    return desk.head


def jumped(desk: Desk, head: Head) -> Procedure[bool]:
    """Whether trimming has passed what the head needs, so that it went on to the trim mark: read it again.

    Usually no request; one GET where there is doubt. To be asked after segments were read, not before: below the mark a
    sender that slept may create a name again which was trimmed, and what it put there is not part of the log. The mark
    only grows, so what was read before it was found at or below a base was part of the log.
    """
    if not desk.doubts_trim:
        return False
    desk.doubts_trim = False
    low = yield from trim_mark(desk.log)
    if low <= head.needs_from:
        return False
    yield from commit(desk, Jump(low))
    return True


def _see(desk: Desk, found: Object | Missing, now: float) -> KnownHead:
    """Note what was read, unless it is older than what is known: answers may come in another order than questions."""
    seen: KnownHead = Head(0, 0), None
    if isinstance(found, Object):
        seen = documents.decode_head(found.body, desk.key), found.version
    if desk.seen is None or seen[0].version >= desk.seen[0].version:
        _believe(desk, seen, now)
    return seen


def _believe(desk: Desk, seen: KnownHead, now: float) -> None:
    """A head that was not there before keeps no trim back that was under way: what is claimed from it needs a trim mark
    that is read after it was made."""
    if seen[0].version and (desk.seen is None or not desk.seen[0].version):
        desk.doubts_trim = True
    desk.seen, desk.seen_at = seen, now


def _carry(desk: Desk, asks: list[Ask]) -> Procedure[None]:
    settlements = _hand_in(desk)
    try:
        settles = yield from _record_failures(desk, settlements)
        commands = (*settles, *(command for ask in asks for command in ask.commands))
        outcomes = yield from _land(desk, commands, asks)
    except BaseException:
        desk.settlements.extendleft(reversed(settlements))
        desk.have_looked_after()
        raise
    for settlement, outcome in zip(settlements, outcomes, strict=False):
        if isinstance(outcome, Settled) and outcome.lost:
            settlement.on_lost(outcome.lost)
    position = len(settles)
    for ask in asks:
        ask.outcomes = outcomes[position : position + len(ask.commands)]
        position += len(ask.commands)


def _hand_in(desk: Desk) -> list[Settlement]:
    """Everything that waits. Takes from the left while others add at the right: nothing is lost between."""
    settlements = [desk.settlements.popleft() for _ in range(len(desk.settlements))]
    for dirty in [desk.dirty.popleft() for _ in range(len(desk.dirty))]:
        settlements += dirty.hand_in()
    return settlements


def _record_failures(desk: Desk, settlements: list[Settlement]) -> Procedure[tuple[Settle, ...]]:
    """Write what went wrong into one object, so that the head only needs its name."""
    failed = [each for each in settlements if each.failure is not None]
    name = ""
    if failed:
        at, holder = time_text((yield from Now())), desk.queue.holder
        lines = [
            FailureLine(desk.shard, offset, Failure(each.attempt, each.failure[:ATTEMPT_ERROR_CHARS_MAX], at, holder))
            for each in failed
            if each.failure is not None
            for offset in each.offsets
        ]
        name = yield from NewId()
        yield from create_named(desk.queue.keys.failure(name), documents.encode_failures(lines))
    return tuple(each.make(name) for each in settlements)


def _land(desk: Desk, commands: tuple[Command, ...], asks: list[Ask]) -> Procedure[tuple[Outcome, ...]]:
    queue, contention = desk.queue, desk.contention
    desk.commits += 1
    number = desk.commits
    ahead = [base for ask in asks for base in ask.ahead]
    conflicts, fresh = 0, False
    head, version = yield from _recent(desk)
    while True:
        now = round((yield from Now()), 3)
        after, outcomes = apply(head, commands, now, desk.policy)
        if after == head and not fresh and any(map(_refuses, outcomes)):
            # A receipt from another process may be for a lease that is younger than the head as we last saw it.
            (head, version), fresh = (yield from _read(desk)), True
            continue
        if after == head:
            return outcomes
        left = yield from _write(
            desk, stamp(after, queue.holder, number, now, lost=contention.conflicts), version, number, ahead
        )
        if left is None:
            contention.recent = contention.recent[0] + 1, contention.recent[1] + conflicts
            desk.began_moves = desk.began_moves or any(entry not in head.moving for entry in after.moving)
            return outcomes
        conflicts += 1
        contention.conflicts += 1
        if all(ask.gives_way for ask in asks):
            raise Beaten
        if conflicts >= CONFLICTS_MAX:
            raise Contended(
                f"{desk.key}: lost {conflicts} races in a row; raise the shard count of queue {queue.name!r} "
                f"(now {queue.settings.shards}) or use fewer workers"
            )
        yield from Pause(contention.tactics.conflict_pause_seconds * conflicts * (yield from Chance()))
        head, version = left


def _read(desk: Desk) -> Procedure[KnownHead]:
    found = yield from get(desk.key)
    return _see(desk, found, (yield from Now()))


def _recent(desk: Desk) -> Procedure[KnownHead]:
    """The head to apply commands to: as last seen, or read again where others are likely to have changed it since."""
    now = yield from Now()
    seen = desk.seen
    contention = desk.contention
    stale = contention.tactics.rereads and now - desk.seen_at > contention.shared.turn_seconds
    if seen is None or (stale and desk.is_shared(now)):
        return (yield from _read(desk))
    return seen


def _refuses(outcome: Outcome) -> bool:
    return isinstance(outcome, Lost) or (isinstance(outcome, Settled) and bool(outcome.lost))


def _write(
    desk: Desk, head: Head, base_version: Version | None, number: int, ahead: list[int]
) -> Procedure[KnownHead | None]:
    """Replace the state of the head that `base_version` marks. If somebody else was faster, what they left.

    While the state we replace is still there, the very same bytes are sent again: whichever attempt lands, it is the
    same commit.
    """
    patience = Patience(f"committing {desk.key}")
    body = documents.encode(head)
    began = yield from Now()
    while True:
        write = Create(desk.key, body) if base_version is None else Replace(desk.key, body, base_version)
        reply, *read = yield from Together((write, *(Get(desk.log.key(base)) for base in ahead)))
        for base, found in zip(ahead, read, strict=True):
            if isinstance(found, Object):
                keep_segment(desk.queue, desk.log, base, found)
        ahead = []
        if isinstance(reply, BucketMQError):
            raise reply
        now = yield from Now()
        if isinstance(reply, Written):
            if desk.seen is None or head.version > desk.seen[0].version:
                _believe(desk, (head, reply.version), now)
            desk.contention.shared.time_request(now - began)
            return None
        seen = yield from _read(desk)
        holder = seen[0].holders.get(desk.queue.holder)
        if holder is not None and holder.commit == number:
            return None
        if seen[1] != base_version:
            return seen
        yield from patience.again(reply)
