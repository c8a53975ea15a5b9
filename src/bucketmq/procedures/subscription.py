"""A subscription: an independent reader of a queue. Where it begins, and receiving from all its shards with a wait."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping

import msgspec

from bucketmq.bucket.port import Missing, Written
from bucketmq.errors import BucketMQError, Corrupt, Invalid
from bucketmq.log import documents
from bucketmq.log.layout import base_of
from bucketmq.procedures.append import fresh_tail, read_segment, trim_mark
from bucketmq.procedures.commit import Beaten, Desk
from bucketmq.procedures.later import stage
from bucketmq.procedures.moves import finish_moves
from bucketmq.procedures.opened import OpenQueue, ShardLog
from bucketmq.procedures.queues import refresh_settings
from bucketmq.procedures.receive import Claimless, Lot, claim, flush
from bucketmq.procedures.requests import Chance, Create, Latch, Now, Procedure, Wait
from bucketmq.procedures.shards import open_shards, raise_shards
from bucketmq.procedures.turns import later_turn, rest
from bucketmq.procedures.verbs import Patience, get, list_page
from bucketmq.queue.commands import Full
from bucketmq.queue.head import Head
from bucketmq.queue.settings import check_name

log = logging.getLogger("bucketmq")

POLL_FIRST_SECONDS = 0.02
POLL_FIRST_SECONDS_LOCAL = 0.002
POLL_MAX_SECONDS = 5.0
POLL_MAX_SECONDS_LOCAL = 0.1
"""An idle receiver asks at most this seldom; see docs on cost."""

STAY_LOTS = 16
STAY_REST_TURNS = 4.0
"""After this many lots in a row from one shard a receiver looks at the next one."""

AT_ONCE_MAX = 8
SPARE_SECONDS = 1.0
"""No more is claimed at once than the caller is likely to ask for within this time."""

CLEAN_CLAIMS = 16
ADVICE_COMMITS = 50
ADVICE_CONFLICTS = 0.3

Start = str | float | Mapping[int, int]
"""earliest, latest, a time in seconds since 1970, or an offset for each shard."""


class OpenSubscription:
    """One subscription of one queue, open in one process."""

    def __init__(self, queue: OpenQueue, name: str) -> None:
        self.queue = queue
        self.name = check_name(name, "subscription")
        self.desks: dict[int, Desk] = {}
        self.shard = -1
        self.stayed = 0
        self.spare: deque[Lot] = deque()
        """Claimed and not handed to a caller yet: where workers collide, one claim serves several receives."""
        self.claims_at_once = 1
        self.clean_claims = 0
        self.pause = 0.0
        """How long the next wait is: it grows while nothing comes, over many receives."""
        self.received_at = 0.0
        """When a caller was last given something."""
        self.left: Desk | None = None
        """The desk of a shard whose turn was just given up."""
        self.stop = Latch()
        """Open to end waits early."""

    def desk(self, shard: int) -> Desk:
        found = self.desks.get(shard)
        if found is None:
            name = (self.name, shard)
            found = self.desks.setdefault(shard, self.queue.shared(name, lambda: Desk(self.queue, self.name, shard)))
        return found


class Nobody(msgspec.Struct, frozen=True):
    """Nothing was received, and why: `full`, too much is in flight already; `contended`, others are taking what is
    there; neither, there was nothing."""

    full: bool = False
    contended: bool = False


class Contested(msgspec.Struct, frozen=True):
    """Others are at this shard; look again at `due`."""

    due: float | None


def receive(sub: OpenSubscription, limit: int, *, wait_seconds: float, lease_seconds: float) -> Procedure[Lot | Nobody]:
    """Claim up to `limit` messages from one of the shards; wait for some if there are none.

    Per lot one PUT and, in steady state, one GET. While idle one GET for each shard, at first every 20 ms, then less
    and less often.
    """
    if limit < 1:
        raise Invalid(f"receive at least 1 message, not {limit}")
    now: float = yield Now()
    deadline, patient = now + wait_seconds, wait_seconds > 0
    soonest, most = _poll_seconds(sub.queue)
    since = now - sub.received_at
    if (spare := _spare(sub, now)) is not None:
        sub.received_at = now
        return spare
    at_once = _at_once(sub, since, lease_seconds) if patient else 1
    while True:
        found = yield from _try_shards(sub, limit * at_once, lease_seconds, patient=patient)
        if isinstance(found, Lot):
            first, *others = found.split(limit) if found.count > limit else [found]
            sub.spare.extend(others)
            sub.pause = 0.0
            sub.received_at = yield Now()
            return first
        now = yield Now()
        left = deadline - now
        if left <= 0 or sub.stop.is_open:
            return found[0]
        chance = yield Chance()
        due = found[1] - now if found[1] is not None else most
        pause = max(sub.pause, soonest)
        yield Wait(sub.stop, max(soonest / 4, min(pause * (0.75 + chance / 2), left, max(due, 0.0))))
        sub.pause = min(pause * 2, most)


def _at_once(sub: OpenSubscription, since: float, lease_seconds: float) -> int:
    """How many receives one claim shall serve, when the last receive was `since` seconds ago."""
    likely = min(SPARE_SECONDS, lease_seconds / 4) / max(since, 0.001)
    return max(1, min(sub.claims_at_once, int(likely)))


def _poll_seconds(queue: OpenQueue) -> tuple[float, float]:
    if queue.bucket.local:
        return POLL_FIRST_SECONDS_LOCAL, POLL_MAX_SECONDS_LOCAL
    return POLL_FIRST_SECONDS, POLL_MAX_SECONDS


def _spare(sub: OpenSubscription, now: float) -> Lot | None:
    """What an earlier claim left over, unless half of its lease has passed: then it is given back."""
    for lot in _take_spare(sub):
        if not lot.lost and lot.until - now > lot.lease_seconds / 2:
            return lot
        lot.release_all()
    return None


def give_back(sub: OpenSubscription) -> None:
    """Release what was claimed and not handed to a caller; the next commit says so."""
    for lot in _take_spare(sub):
        lot.release_all()


def _take_spare(sub: OpenSubscription) -> Iterator[Lot]:
    """Lots off the left while there are any; other threads may be taking too."""
    while True:
        try:
            yield sub.spare.popleft()
        except IndexError:
            return


def _try_shards(
    sub: OpenSubscription, limit: int, lease_seconds: float, *, patient: bool
) -> Procedure[Lot | tuple[Nobody, float | None]]:
    yield from refresh_settings(sub.queue)
    yield from stage(sub.queue)
    if sub.left is not None:
        # What was settled since travels now, before somebody else takes the turn we gave up.
        left, sub.left = sub.left, None
        yield from flush(left)
    full, contended, due, trouble = False, False, None, None
    for shard in (yield from _order(sub)):
        desk = sub.desk(shard)
        try:
            found = yield from _try_shard(sub, desk, limit, lease_seconds, patient=patient)
        except Corrupt as error:
            trouble = error  # the other shards need not suffer
            desk.doubts_trim = True
            continue
        if isinstance(found, Lot):
            return found
        full = full or isinstance(found, Full)
        contended = contended or isinstance(found, Contested)
        if found.due is not None:
            due = found.due if due is None else min(due, found.due)
    if trouble is not None:
        raise trouble
    return Nobody(full, contended), due


def _try_shard(
    sub: OpenSubscription, desk: Desk, limit: int, lease_seconds: float, *, patient: bool
) -> Procedure[Lot | Claimless | Contested]:
    if patient and (later := (yield from later_turn(desk))) is not None:
        sub.claims_at_once = min(sub.claims_at_once * 2, AT_ONCE_MAX)
        return Contested(later)
    conflicts = desk.conflicts
    try:
        found = yield from claim(desk, limit, lease_seconds, gives_way=patient)
    except Beaten:
        _learn_from(sub, collided=True)
        rest(desk, (yield Now()), 0.5 + (yield Chance()))
        return Contested(desk.rest_until)
    try:
        yield from look_after(desk)
    except BucketMQError as error:  # must not cost us what was claimed; the head keeps what is left to do
        desk.doubts_trim = desk.doubts_trim or isinstance(error, Corrupt)
        log.warning("action=look_after_failed head=%s kind=%s %s", desk.key, error.kind, error)
    if isinstance(found, Lot):
        desk.claimed_at = yield Now()
        _learn_from(sub, collided=desk.conflicts > conflicts)
        sub.stayed = sub.stayed + 1 if sub.shard == desk.shard else 1
        sub.shard = desk.shard
        if sub.stayed >= STAY_LOTS:
            sub.shard, sub.stayed = desk.shard + 1, 0
            rest(desk, desk.claimed_at, STAY_REST_TURNS)
            sub.left = desk if desk.is_shared(desk.claimed_at) else None
    return found


def _learn_from(sub: OpenSubscription, *, collided: bool) -> None:
    """Claim more at once after a collision, less again after many claims without one."""
    sub.clean_claims = 0 if collided else sub.clean_claims + 1
    if collided:
        sub.claims_at_once = min(sub.claims_at_once * 2, AT_ONCE_MAX)
    elif sub.clean_claims >= CLEAN_CLAIMS:
        sub.claims_at_once, sub.clean_claims = max(1, sub.claims_at_once // 2), 0


def _order(sub: OpenSubscription) -> Procedure[list[int]]:
    """The shards to try: the one that worked last first, then round. Where a race was lost, the next one is first."""
    for shard in range(sub.queue.settings.shards):
        sub.desk(shard)
    shards = yield from open_shards(sub.queue, sub.desks)
    if sub.shard < 0:
        sub.shard = int((yield Chance()) * len(shards))
    first = sub.shard % len(shards)
    return shards[first:] + shards[:first]


def look_after(desk: Desk) -> Procedure[None]:
    """What a claim may have left to do: moves to the dead letters, and more shards if workers collide too often."""
    if desk.head is not None and desk.head.moving:
        own, desk.began_moves = desk.began_moves, False
        yield from finish_moves(desk, own=own)
    settings = desk.queue.settings
    commits, conflicts = desk.recent
    if commits < ADVICE_COMMITS:
        return
    desk.recent = 0, 0
    if settings.shards < settings.shards_max and conflicts > ADVICE_CONFLICTS * commits:
        yield from raise_shards(desk.queue, min(settings.shards * 2, settings.shards_max))


def flush_all(sub: OpenSubscription) -> Procedure[None]:
    """Commit all settlements of this subscription that wait, and finish what they began. One PUT for each shard."""
    for desk in list(sub.desks.values()):
        yield from flush(desk)
        yield from look_after(desk)


def begin(queue: OpenQueue, name: str, start: Start) -> Procedure[None]:
    """Make the subscription if there is none, beginning at `start`. Shards that come later begin at their beginning."""
    check_name(name, "subscription")
    for shard in range(queue.settings.shards):
        key = queue.keys.head(name, shard)
        if isinstance((yield from get(key)), Missing):
            next_, segment = yield from _position(queue, queue.log(shard), start)
            yield from _create_head(key, Head(next_, segment))


def _create_head(key: str, head: Head) -> Procedure[None]:
    """Whoever is first decides where the subscription begins."""
    patience = Patience(f"beginning {key}")
    while True:
        reply = yield Create(key, documents.encode(head))
        if isinstance(reply, Written) or not isinstance((yield from get(key)), Missing):
            return
        yield from patience.again(reply)


def _position(queue: OpenQueue, log: ShardLog, start: Start) -> Procedure[tuple[int, int]]:
    if start == "earliest":
        low = yield from trim_mark(log)
        return low, low
    if start == "latest":
        tail = yield from fresh_tail(queue, log)
        return tail, tail
    if isinstance(start, str):
        raise Invalid(f"start must be 'earliest', 'latest', a time or offsets by shard, not {start!r}")
    if isinstance(start, Mapping):
        return (yield from position_of_offset(queue, log, start.get(log.shard, 0)))
    return (yield from position_of_time(queue, log, float(start)))


def position_of_offset(queue: OpenQueue, log: ShardLog, offset: int) -> Procedure[tuple[int, int]]:
    """The nearest existing offset at or after `offset`, and the base of its segment. Some LISTs."""
    low = yield from trim_mark(log)
    tail = yield from fresh_tail(queue, log)
    wanted = min(max(offset, low), tail)
    if wanted in (low, tail):
        return wanted, wanted
    base = yield from _last_base(log, lambda entry_base, _: entry_base <= wanted)
    return wanted, base if base is not None else wanted


def position_of_time(queue: OpenQueue, log: ShardLog, at: float) -> Procedure[tuple[int, int]]:
    """The first segment stored at or after a time on the store's clock. Some LISTs."""
    tail = yield from fresh_tail(queue, log)
    low = yield from trim_mark(log)
    before = yield from _last_base(log, lambda _, stored_at: stored_at < at)
    if before is None:
        return low, low
    segment = yield from read_segment(queue, log, before)
    base = max(low, segment.end if segment else tail)
    return base, base


def _last_base(log: ShardLog, before: Callable[[int, float], bool]) -> Procedure[int | None]:
    """The highest base among the listed segments for which `before(base, stored_at)` holds."""
    last: int | None = None
    after = ""
    while True:
        page = yield from list_page(log.keys.log(log.shard), after=after)
        for entry in page.entries:
            base = base_of(entry.key)
            if before(base, entry.stored_at) and (last is None or base > last):
                last = base
        if not page.more:
            return last
        after = max(entry.key for entry in page.entries)
