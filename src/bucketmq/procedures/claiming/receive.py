"""A subscription: an independent reader of a queue. Where it begins, and receiving from all its shards with a wait."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping

import msgspec

from bucketmq.bucket.port import Missing
from bucketmq.errors import BucketMQError, Corrupt, Invalid
from bucketmq.log import documents
from bucketmq.log.layout import base_of
from bucketmq.procedures.claiming.claim import Claimless, Lot, claim, flush, something_due
from bucketmq.procedures.heads.contention import TACTICS, Contention, Tactics
from bucketmq.procedures.heads.desk import Beaten, Desk
from bucketmq.procedures.heads.turns import later_turn
from bucketmq.procedures.opened import OpenQueue, ShardLog
from bucketmq.procedures.queues import refresh_settings
from bucketmq.procedures.requests import Chance, Latch, Now, Procedure, Wait
from bucketmq.procedures.segments.messages import read_segment
from bucketmq.procedures.segments.tail import fresh_tail, trim_mark
from bucketmq.procedures.sending.dead_letters import finish_moves
from bucketmq.procedures.sending.delayed import stage
from bucketmq.procedures.sending.shards import open_shards, raise_shards
from bucketmq.procedures.verbs import create_named, get, list_page
from bucketmq.queue.commands import Full
from bucketmq.queue.head import Head
from bucketmq.queue.settings import check_name

logger = logging.getLogger("bucketmq")

POLL_FIRST_SECONDS = 0.02
POLL_FIRST_SECONDS_LOCAL = 0.002
POLL_MAX_SECONDS = 5.0
POLL_MAX_SECONDS_LOCAL = 0.1
"""An idle receiver asks at most this seldom; see docs on cost."""

Start = str | float | Mapping[int, int]
"""earliest, latest, a time in seconds since 1970, or an offset for each shard."""


class OpenSubscription:
    """One subscription of one queue, open in one process. See `open_subscription`."""

    def __init__(self, queue: OpenQueue, name: str, tactics: Tactics = TACTICS) -> None:
        self.queue = queue
        self.name = check_name(name, "subscription")
        self.desks: dict[int, Desk] = {}
        self.contention = Contention(tactics)
        self.pause = 0.0
        """How long the next wait is: it grows while nothing comes, over many receives."""
        self.received_at = 0.0
        """When a caller was last given something."""

    @property
    def is_paused(self) -> bool:
        """By the settings as this process knows them."""
        return self.queue.settings.pause_of(self.name) is not None

    def desk(self, shard: int) -> Desk:
        found = self.desks.get(shard)
        if found is None:
            found = self.desks.setdefault(shard, Desk(self.queue, self.name, shard, self.contention))
        return found


def open_subscription(queue: OpenQueue, name: str) -> OpenSubscription:
    """The one subscription of this name that all callers of this process share."""
    return queue.shared(("subscription", name), lambda: OpenSubscription(queue, name))


class Nobody(msgspec.Struct, frozen=True):
    """Nothing was received, and why: `full`, too much is in flight already; `contended`, others are taking what is
    there; `paused`, nothing is handed out now; none of these, there was nothing."""

    full: bool = False
    contended: bool = False
    paused: bool = False


class Contested(msgspec.Struct, frozen=True):
    """Others are at this shard; look again at `due`."""

    due: float | None


def receive(
    sub: OpenSubscription,
    limit: int,
    *,
    wait_seconds: float,
    lease_seconds: float,
    fill: bool = False,
    stop: Latch | None = None,
) -> Procedure[list[Lot] | Nobody]:
    """Claim up to `limit` messages; wait for some if there are none, until `stop` opens. One lot, from the first shard
    that has some; with `fill` one from each of the next ones too, while there is room.

    While it is paused nothing is claimed, and the settings are read again every `SETTINGS_SECONDS`.

    Per lot one PUT and, in steady state, one GET. While idle one GET for each shard, at first every 20 ms, then less
    and less often. To fill a batch, an empty shard is asked no more often than that.
    """
    if not isinstance(limit, int) or limit < 1:
        raise Invalid(f"limit must be a whole number of at least 1 message, not {limit!r:.80}")
    stop = stop if stop is not None else Latch()
    now = yield from Now()
    deadline, patient = now + wait_seconds, wait_seconds > 0
    soonest, most = _poll_seconds(sub.queue)
    since = now - sub.received_at
    if sub.is_paused:
        for desk in list(sub.desks.values()):
            give_back(desk)
    elif (spare := _spare(sub, limit, lease_seconds, now)) is not None:
        sub.received_at = now
        return [spare]
    at_once = sub.contention.serves(since, lease_seconds) if patient else 1
    while True:
        found = yield from _try_shards(sub, _Wanted(limit, at_once, lease_seconds, patient, fill))
        if isinstance(found, list):
            sub.pause = 0.0
            sub.received_at = yield from Now()
            return found
        before, now = now, (yield from Now())
        deadline += min(0.0, now - before)  # a clock that is set back does not make the wait longer
        left = deadline - now
        if left <= 0 or stop.is_open:
            return found[0]
        chance = yield from Chance()
        due = found[1] - now if found[1] is not None else most
        pause = max(sub.pause, soonest)
        yield from Wait(stop, max(soonest / 4, min(pause * (0.75 + chance / 2), left, max(due, 0.0))))
        sub.pause = min(pause * 2, most)


class _Wanted(msgspec.Struct, frozen=True):
    """What a caller of `receive` wants."""

    limit: int
    at_once: int
    """How many such receives one claim shall serve."""
    lease_seconds: float
    patient: bool
    fill: bool


def _poll_seconds(queue: OpenQueue) -> tuple[float, float]:
    if queue.bucket.local:
        return POLL_FIRST_SECONDS_LOCAL, POLL_MAX_SECONDS_LOCAL
    return POLL_FIRST_SECONDS, POLL_MAX_SECONDS


def _spare(sub: OpenSubscription, limit: int, lease_seconds: float, now: float) -> Lot | None:
    """What an earlier claim left over, unless half of its lease has passed: then it is given back."""
    for desk in list(sub.desks.values()):
        for lot in _take_spare(desk):
            if not lot.lost and lot.lease_seconds == lease_seconds and lot.until - now > lease_seconds / 2:
                return _first_of(lot, limit, now)
            lot.release_all()
    return None


def _first_of(lot: Lot, limit: int, now: float) -> Lot:
    """The lot, or its first `limit` messages if there are more; the rest is spare."""
    if lot.count <= limit:
        return lot
    first, *others = lot.split(limit)
    lot.desk.spare.extendleft(reversed(others))
    lot.desk.spare_at = now
    lot.desk.have_looked_after()
    return first


def give_back(desk: Desk) -> None:
    """Release what was claimed and not handed to a caller; the next commit says so."""
    for lot in _take_spare(desk):
        lot.release_all()


def _take_spare(desk: Desk) -> Iterator[Lot]:
    """Lots off the left while there are any; other threads may be taking too."""
    while True:
        try:
            lot = desk.spare.popleft()
        except IndexError:
            return
        assert isinstance(lot, Lot)
        yield lot


def _try_shards(sub: OpenSubscription, wanted: _Wanted) -> Procedure[list[Lot] | tuple[Nobody, float | None]]:
    yield from refresh_settings(sub.queue)
    if sub.is_paused:
        return Nobody(paused=True), None
    yield from stage(sub.queue)
    full, contended, due, trouble = False, False, None, None
    lots: list[Lot] = []
    for shard in (yield from _order(sub)):
        desk, room = sub.desk(shard), wanted.limit - sum(lot.count for lot in lots)
        if lots and not (yield from _may_fill(desk)):
            continue
        try:
            found = yield from _try_shard(sub, desk, room if lots else wanted.limit * wanted.at_once, wanted)
        except Corrupt as error:
            trouble = error  # the other shards need not suffer
            desk.doubts_trim = True
            continue
        except BucketMQError as error:
            if not lots:
                raise
            logger.warning("action=fill_failed head=%s kind=%s %s", desk.key, error.kind, error)
            return lots  # what was claimed is not lost with what was not
        if lots:
            yield from _learn_to_fill(desk, found)
        if isinstance(found, Lot):
            lots.append(_first_of(found, room, (yield from Now())))
            if not wanted.fill or found.count >= room:
                return lots
            continue
        full = full or isinstance(found, Full)
        contended = contended or isinstance(found, Contested)
        if found.due is not None:
            due = found.due if due is None else min(due, found.due)
    if lots:
        return lots
    if trouble is not None:
        raise trouble
    return Nobody(full, contended), due


def _may_fill(desk: Desk) -> Procedure[bool]:
    """Whether a shard is worth a look to fill a batch: we know of something there, or it is time to look
    again. Otherwise every receive on a queue with little in it would ask all shards."""
    now = yield from Now()
    head, tail = desk.head, desk.log.tail
    if head is not None and (something_due(head, now) or (tail is not None and tail > head.next)):
        return True
    return now >= desk.fill_at


def _learn_to_fill(desk: Desk, found: Lot | Claimless | Contested) -> Procedure[None]:
    """Look less and less often where nothing is found, as an idle receiver does."""
    soonest, most = _poll_seconds(desk.queue)
    desk.fill_pause = 0.0 if isinstance(found, Lot) else min(max(desk.fill_pause * 2, soonest), most)
    desk.fill_at = (yield from Now()) + desk.fill_pause


def _try_shard(
    sub: OpenSubscription, desk: Desk, limit: int, wanted: _Wanted
) -> Procedure[Lot | Claimless | Contested]:
    if wanted.patient and (later := (yield from later_turn(desk))) is not None:
        sub.contention.widen()
        return Contested(later)
    shard, tactics = desk.contention, desk.contention.tactics
    try:
        found = yield from claim(desk, limit, wanted.lease_seconds, gives_way=wanted.patient and tactics.gives_way)
    except Beaten:
        sub.contention.widen()
        shard.rest((yield from Now()), tactics.lost_rest_turns * (0.5 + (yield from Chance())))
        return Contested(shard.rest_until)
    try:
        yield from look_after(desk)
    except BucketMQError as error:  # must not cost us what was claimed; the head keeps what is left to do
        desk.doubts_trim = desk.doubts_trim or isinstance(error, Corrupt)
        logger.warning("action=look_after_failed head=%s kind=%s %s", desk.key, error.kind, error)
    if isinstance(found, Lot):
        now = shard.claimed_at = yield from Now()
        if sub.contention.served(desk.shard):
            shard.rest(now, tactics.stay_rest_turns)
    return found


def _order(sub: OpenSubscription) -> Procedure[list[int]]:
    """The shards to try: the one that served the last receive first, then round."""
    for shard in range(sub.queue.settings.shards):
        sub.desk(shard)
    shards = yield from open_shards(sub.queue, sub.desks)
    contention = sub.contention
    if contention.shard < 0 or not contention.tactics.stays:
        contention.shard = int((yield from Chance()) * len(shards))
    first = contention.shard % len(shards)
    return shards[first:] + shards[:first]


def look_after(desk: Desk) -> Procedure[None]:
    """What a claim may have left to do: moves to the dead letters, and more shards if workers collide too often."""
    if desk.head is not None and desk.head.moving:
        own, desk.began_moves = desk.began_moves, False
        yield from finish_moves(desk, own=own)
    settings, tactics = desk.queue.settings, desk.contention.tactics
    commits, conflicts = desk.contention.recent
    if commits < tactics.advice_commits:
        return
    desk.contention.recent = 0, 0
    if settings.shards < settings.shards_max and conflicts > tactics.advice_conflicts * commits:
        yield from raise_shards(desk.queue, min(settings.shards * 2, settings.shards_max))


def flush_all(sub: OpenSubscription) -> Procedure[None]:
    """Commit all settlements of this subscription that wait, and finish what they began. One PUT for each shard."""
    for desk in list(sub.desks.values()):
        yield from hand_in(desk)


def hand_in(desk: Desk) -> Procedure[None]:
    """Commit the settlements of one shard that wait, and finish what they began. One PUT."""
    yield from flush(desk)
    yield from look_after(desk)


def begin(queue: OpenQueue, name: str, start: Start) -> Procedure[dict[int, int]]:
    """Make the subscription if there is none, beginning at `start`; whoever is first decides. Shards that come later
    begin at their beginning. Returns the offsets at which the shards begin whose heads were made."""
    check_name(name, "subscription")
    begins: dict[int, int] = {}
    for shard in range(queue.settings.shards):
        key = queue.keys.head(name, shard)
        if isinstance((yield from get(key)), Missing):
            begins[shard], segment = yield from _position(queue, queue.log(shard), start)
            yield from create_named(key, documents.encode(Head(begins[shard], segment)))
    return begins


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
