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
from bucketmq.procedures.append import keep_segment
from bucketmq.procedures.lane import Item, Lane, share
from bucketmq.procedures.opened import OpenQueue, ShardLog
from bucketmq.procedures.requests import Chance, Create, Get, NewId, Now, Pause, Procedure, Replace, Together
from bucketmq.procedures.verbs import Patience, create_named, get
from bucketmq.queue.commands import Command, Lost, Outcome, Settle, Settled
from bucketmq.queue.head import Head, Span, stamp
from bucketmq.queue.machine import apply
from bucketmq.queue.message import ATTEMPT_ERROR_CHARS_MAX, Failure
from bucketmq.queue.policy import Policy, policy_of

CONFLICTS_MAX = 100
"""A commit that lost this many races in a row gives up with `Contended`."""

CONFLICT_PAUSE_SECONDS = 0.01
LOST_MAX = 1_000
TURN_REQUESTS = 4.0
TURN_SECONDS_MAX = 2.0
SHARED_SECONDS = 30.0
"""A head is shared if another holder committed to it within this time."""


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


class Dirty(Protocol):
    """Something that gathers settlements by itself (see `receive.Lot`)."""

    def hand_in(self) -> list[Settlement]: ...


Seen = tuple[Head, Version | None]
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

    def __init__(self, queue: OpenQueue, subscription: str, shard: int) -> None:
        self.queue = queue
        self.subscription = subscription
        self.shard = shard
        self.log: ShardLog = queue.log(shard)
        self.key = queue.keys.head(subscription, shard)
        self.choice: Choice | None = queue.choices.get(subscription)
        self.seen: Seen | None = None
        """The head as last seen and its mark, always both: several callers read and write at a time."""
        self.seen_at = 0.0
        """When the head was last read or written, on the store's clock."""
        self.commits = 0
        """The number of this process' last commit."""
        self.conflicts = 0
        """Races lost so far."""
        self.recent = 0, 0
        """Commits and lost races since somebody last judged them."""
        self.claimed_at = 0.0
        """When we last claimed something, or 0 once we gave up our turn (see `turns`)."""
        self.looked, self.looked_commits, self.looked_at = -1, 0, 0.0
        """The head's version when we last looked whether others are at it, our own commits by then, and when."""
        self.rest_until = 0.0
        self.doubts_trim = False
        """Whether something was missing that the head lists: it may have expired, so the trim mark is looked at."""
        self.passing_since: float | None = None
        """Since when messages that nobody wants have waited to be passed over."""
        self.began_moves = False
        """Whether a commit of ours listed messages to be moved that nobody has begun to move."""
        self.lane: Lane[Ask] = Lane(len)
        self.settlements: deque[Settlement] = deque()
        self.dirty: deque[Dirty] = deque()
        """Who has settlements to hand in at the next commit."""
        self.lost: deque[str] = deque(maxlen=LOST_MAX)
        """What came too late, until somebody asks."""

    @property
    def ordered(self) -> bool:
        return self.choice.ordered if self.choice is not None else self.queue.settings.ordered

    @property
    def policy(self) -> Policy:
        return msgspec.structs.replace(policy_of(self.queue.settings), ordered=self.ordered)

    @property
    def head(self) -> Head | None:
        return self.seen[0] if self.seen is not None else None

    @property
    def turn_seconds(self) -> float:
        """How long a moment is: a few requests (see `turns`)."""
        return min(TURN_REQUESTS * self.queue.bucket.request_seconds, TURN_SECONDS_MAX)

    def is_shared(self, now: float) -> bool:
        """Whether another holder commits to this head these days."""
        me, since = self.queue.holder, now - SHARED_SECONDS
        holders = self.head.holders if self.head is not None else {}
        return any(seen.at > since for name, seen in holders.items() if name != me)

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
    began: float = yield Now()
    found = yield from get(desk.key)
    now: float = yield Now()
    desk.queue.bucket.time_request(now - began)
    return _see(desk, found, now)[0]


def _see(desk: Desk, found: Object | Missing, now: float) -> Seen:
    """Note what was read, unless it is older than what is known: answers may come in another order than questions."""
    seen: Seen = Head(0, 0), None
    if isinstance(found, Object):
        seen = documents.decode_head(found.body, desk.key), found.version
    if desk.seen is None or seen[0].version >= desk.seen[0].version:
        desk.seen, desk.seen_at = seen, now
    return seen


def _carry(desk: Desk, asks: list[Ask]) -> Procedure[None]:
    settlements = _hand_in(desk)
    try:
        settles = yield from _record_failures(desk, settlements)
        commands = (*settles, *(command for ask in asks for command in ask.commands))
        outcomes = yield from _land(desk, commands, asks)
    except BaseException:
        desk.settlements.extendleft(reversed(settlements))
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
        at, holder = time_text((yield Now())), desk.queue.holder
        lines = [
            FailureLine(desk.shard, offset, Failure(each.attempt, each.failure[:ATTEMPT_ERROR_CHARS_MAX], at, holder))
            for each in failed
            if each.failure is not None
            for offset in each.offsets
        ]
        name = yield NewId()
        yield from create_named(desk.queue.keys.failure(name), documents.encode_failures(lines))
    return tuple(each.make(name) for each in settlements)


def _land(desk: Desk, commands: tuple[Command, ...], asks: list[Ask]) -> Procedure[tuple[Outcome, ...]]:
    queue = desk.queue
    desk.commits += 1
    number = desk.commits
    ahead = [base for ask in asks for base in ask.ahead]
    conflicts, fresh = 0, False
    head, version = yield from _recent(desk)
    while True:
        now = round((yield Now()), 3)
        after, outcomes = apply(head, commands, now, desk.policy)
        if after == head and not fresh and any(map(_refuses, outcomes)):
            # A receipt from another process may be for a lease that is younger than the head as we last saw it.
            (head, version), fresh = (yield from _read(desk)), True
            continue
        if after == head:
            return outcomes
        left = yield from _write(
            desk, stamp(after, queue.holder, number, now, lost=desk.conflicts), version, number, ahead
        )
        if left is None:
            desk.recent = desk.recent[0] + 1, desk.recent[1] + conflicts
            desk.began_moves = desk.began_moves or any(entry not in head.moving for entry in after.moving)
            return outcomes
        conflicts += 1
        desk.conflicts += 1
        if all(ask.gives_way for ask in asks):
            raise Beaten
        if conflicts >= CONFLICTS_MAX:
            raise Contended(
                f"{desk.key}: lost {conflicts} races in a row; raise the shard count of queue {queue.name!r} "
                f"(now {queue.settings.shards}) or use fewer workers"
            )
        yield Pause(CONFLICT_PAUSE_SECONDS * conflicts * (yield Chance()))
        head, version = left


def _read(desk: Desk) -> Procedure[Seen]:
    found = yield from get(desk.key)
    return _see(desk, found, (yield Now()))


def _recent(desk: Desk) -> Procedure[Seen]:
    """The head to apply commands to: as last seen, or read again where others are likely to have changed it since."""
    now: float = yield Now()
    seen = desk.seen
    if seen is None or (now - desk.seen_at > desk.turn_seconds and desk.is_shared(now)):
        return (yield from _read(desk))
    return seen


def _refuses(outcome: Outcome) -> bool:
    return isinstance(outcome, Lost) or (isinstance(outcome, Settled) and bool(outcome.lost))


def _write(
    desk: Desk, head: Head, base_version: Version | None, number: int, ahead: list[int]
) -> Procedure[Seen | None]:
    """Replace the state of the head that `base_version` marks. If somebody else was faster, what they left.

    While the state we replace is still there, the very same bytes are sent again: whichever attempt lands, it is the
    same commit.
    """
    patience = Patience(f"committing {desk.key}")
    body = documents.encode(head)
    began: float = yield Now()
    while True:
        write = Create(desk.key, body) if base_version is None else Replace(desk.key, body, base_version)
        reply, *read = yield Together((write, *(Get(desk.log.key(base)) for base in ahead)))
        for base, found in zip(ahead, read, strict=True):
            if isinstance(found, Object):
                keep_segment(desk.queue, desk.log, base, found)
        ahead = []
        if isinstance(reply, BucketMQError):
            raise reply
        now = yield Now()
        if isinstance(reply, Written):
            if desk.seen is None or head.version > desk.seen[0].version:
                desk.seen, desk.seen_at = (head, reply.version), now
            desk.queue.bucket.time_request(now - began)
            return None
        seen = yield from _read(desk)
        holder = seen[0].holders.get(desk.queue.holder)
        if holder is not None and holder.commit == number:
            return None
        if seen[1] != base_version:
            return seen
        yield from patience.again(reply)
