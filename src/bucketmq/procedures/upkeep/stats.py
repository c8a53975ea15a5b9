"""Stats: how a queue is doing, in a handful of requests however deep it is.

A message is, for each subscription, in one of four states:

| state | meaning |
|---|---|
| ready | may be handed out now: never handed out, or released, or its lease or back-off is over, or its delay is |
| in flight | handed out, under a lease that is not over |
| delayed | may be handed out later: a retry that backs off, or a send with a delay |
| dead | out of attempts, or buried |

For each shard: the tail (one GET when it is known), and for each subscription the head (one GET) and the time of its
oldest ready segment (one LIST of one entry). Three LISTs for what is delayed and which subscriptions and readers there
are, one GET for each reader, and one for what is recorded as lost. What the numbers count are offsets of the log: a
message for another subscription, or an event that a rule will pass over, counts as ready until the head has passed it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bucketmq.bucket.port import Entry, Missing, Object
from bucketmq.errors import Corrupt, NotFound
from bucketmq.events.rule import OWN_QUEUES, rule_of, spoken
from bucketmq.log.documents import Later, decode_head
from bucketmq.log.layout import due_of, head_of
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.queues import open_queue, reload_settings
from bucketmq.procedures.requests import Now, Procedure
from bucketmq.procedures.segments.losses import read_losses
from bucketmq.procedures.segments.tail import fresh_tail, trim_mark, true_end
from bucketmq.procedures.upkeep.readers import Reader, all_readers
from bucketmq.procedures.verbs import get, get_many, get_state, list_all, list_page
from bucketmq.queue.claiming import expire
from bucketmq.queue.head import Head
from bucketmq.queue.policy import policy_of
from bucketmq.queue.settings import DEAD_SUFFIX, MAIN, SHARDS_MAX
from bucketmq.values import Value

LATER_PAGES_MAX = 3
HOLDER_SECONDS = 600.0
CONFLICTS_TOLERABLE = 0.2
UNREAD_SECONDS = 86400.0
"""A subscription with ready messages, or a reader that holds back trimming, may be abandoned after so long without
progress."""


class ShardStats(Value, msgspec.Struct, frozen=True):
    """One subscription's view of one shard."""

    shard: int
    tail: int
    depth: int
    ready: int
    in_flight: int
    delayed: int
    dead: int
    oldest_ready_seconds: float | None
    next_due_seconds: float | None = None
    """Until the first of the delayed ones may be handed out."""


class SubscriptionStats(Value, msgspec.Struct, frozen=True):
    """One subscription over all shards."""

    name: str
    depth: int
    """Messages that it has not settled: ready, in flight, delayed and dead together."""
    ready: int
    in_flight: int
    delayed: int
    """Retries that back off. Sends with a delay are not in the log yet: only the queue counts them."""
    dead: int
    """On their way to the dead letters. Those that have arrived are counted by the queue."""
    oldest_ready_seconds: float | None
    """Since the oldest ready message was sent; None if none is ready."""
    idle_seconds: float | None
    """Since its last commit, or since it was made; None for `main` before anybody has received from it."""
    holders: int
    """Processes that committed to its heads in the last ten minutes."""
    conflict_rate: float
    """The part of these processes' head writes that were refused because another was faster."""
    advice: str
    """What to do about it, if anything."""
    shards: tuple[ShardStats, ...]
    next_due_seconds: float | None = None
    """Until the first of its delayed messages may be handed out; None if none is delayed."""
    paused: str | None = None
    """Why nothing is handed out to it; None if messages are."""
    settled: int = 0
    """Messages that it has behind it: acked, passed over, purged or dead. It only grows, so two looks give a rate."""


class ReaderShard(Value, msgspec.Struct, frozen=True):
    """One reader's place in one shard."""

    shard: int
    offset: int
    """The first offset that it may still read."""
    lag: int


class ReaderStats(Value, msgspec.Struct, frozen=True):
    """The progress of a reader that keeps it elsewhere, such as a Spark query in its checkpoint. It is noted now and
    then, so the reader may be further by now."""

    name: str
    holds: bool
    """Whether trimming leaves what it has not read."""
    lag: int
    """Messages of the log that it has not read, those that were trimmed not counted."""
    idle_seconds: float
    """Since it last noted progress, or began."""
    shards: tuple[ReaderShard, ...]


class Damage(Value, msgspec.Struct, frozen=True):
    """A head ahead of its log: the subscription counts offsets as handed out that the log does not have."""

    queue: str
    subscription: str
    shard: int
    offset: int
    """Where the head is."""
    end: int
    """Where the log ends."""

    def __str__(self) -> str:
        return (
            f"queue {self.queue}, subscription {self.subscription}, shard {self.shard}: the head is at offset "
            f"{self.offset}, but the log ends at {self.end}: what is sent until the log gets there would never be "
            "delivered; stop the senders and restore heads and log from one copy, or run bucketmq doctor --deep --mend"
        )


class QueueStats(Value, msgspec.Struct, frozen=True):
    """What `queue.stats()` answers. `depth`, `ready`, `in_flight` and `delayed` are sums over all subscriptions, so a
    message counts once for each subscription that has not settled it.

    `main` is one of them if anybody has ever received from it, or if there is no other.
    """

    queue: str
    depth: int
    """Ready, in flight and delayed retries, and what is on its way to the dead letters."""
    ready: int
    """Includes sends with a delay that are due, each send counted once."""
    in_flight: int
    delayed: int
    """Retries that back off, and sends with a delay that is not over: one send of many messages counts once."""
    delayed_is_at_least: bool
    """True when there are more delayed sends than were counted."""
    dead: int
    """Dead letters, those on their way included."""
    oldest_ready_seconds: float | None
    sent: int
    """Offsets ever used, over all shards."""
    shards: int
    subscriptions: tuple[SubscriptionStats, ...]
    readers: tuple[ReaderStats, ...] = ()
    damaged: tuple[Damage, ...] = ()
    """Heads that are ahead of their log, those of the dead letters included."""
    lost: int = 0
    """Messages that were found to be gone, though nobody settled or trimmed them."""
    advice: tuple[str, ...] = ()
    """What to do about what the numbers show, a sentence each."""
    oldest_dead_seconds: float | None = None
    """Since the oldest dead letter died; None if there is none."""


def stats(queue: OpenQueue) -> Procedure[QueueStats]:
    settings = yield from reload_settings(queue)
    tails = yield from _tails(queue)
    entries, _ = yield from list_all(queue.keys.heads)
    found, damaged = yield from _subscriptions(queue, entries, tails)
    hidden = yield from _hidden(queue, entries)
    letters, oldest_letter, damaged_letters = yield from _dead(queue)
    delayed, due, oldest_due, more = yield from _delayed(queue)
    readers = yield from _readers(queue, tails)
    lost, unknown = yield from _lost(queue)
    ages = [each.oldest_ready_seconds for each in found if each.oldest_ready_seconds is not None]
    dead = letters + sum(each.dead for each in found)
    return QueueStats(
        queue=queue.name,
        depth=sum(each.depth for each in found) + due,
        ready=sum(each.ready for each in found) + due,
        in_flight=sum(each.in_flight for each in found),
        delayed=sum(each.delayed for each in found) + delayed,
        delayed_is_at_least=more,
        dead=dead,
        oldest_ready_seconds=max(ages + oldest_due, default=None),
        sent=sum(tails),
        shards=settings.shards,
        subscriptions=found,
        readers=readers,
        damaged=damaged + damaged_letters,
        lost=lost,
        advice=(*hidden, *_queue_advice(queue, found, readers, dead), *unknown),
        oldest_dead_seconds=oldest_letter,
    )


def subscriptions(queue: OpenQueue) -> Procedure[tuple[SubscriptionStats, ...]]:
    """The subscriptions of a queue by name. One LIST; for each shard a GET, and for each subscription of it two."""
    yield from reload_settings(queue)
    tails = yield from _tails(queue)
    entries, _ = yield from list_all(queue.keys.heads)
    return (yield from _subscriptions(queue, entries, tails))[0]


def _tails(queue: OpenQueue) -> Procedure[list[int]]:
    tails = []
    for shard in range(queue.settings.shards):
        tails.append((yield from _tail(queue, shard)))
    return tails


def _tail(queue: OpenQueue, shard: int) -> Procedure[int]:
    """The tail as it is now, also of a log that a head is ahead of: elsewhere that is an error, here it is reported."""
    try:
        return (yield from fresh_tail(queue, queue.log(shard)))
    except Corrupt:
        return (yield from true_end(queue, queue.log(shard)))[0]


def _subscriptions(
    queue: OpenQueue, entries: Sequence[Entry], tails: list[int]
) -> Procedure[tuple[tuple[SubscriptionStats, ...], tuple[Damage, ...]]]:
    """Those that exist: with a head in any shard, and `main` where there is no other."""
    found: list[SubscriptionStats] = []
    damaged: list[Damage] = []
    for name in sorted({head_of(entry.key)[0] for entry in entries}):
        each, damage = yield from _subscription(queue, name, tails)
        if each.idle_seconds is not None:
            found.append(each)
            damaged += damage
    if not found and queue.settings.main:
        found.append((yield from _subscription(queue, MAIN, tails))[0])
    return tuple(found), tuple(damaged)


def _hidden(queue: OpenQueue, heads: Sequence[Entry]) -> Procedure[list[str]]:
    """Whether there are heads of shards that the settings do not know: nobody receives what lies there."""
    shards = max((head_of(entry.key)[1] + 1 for entry in heads), default=0)
    if shards <= queue.settings.shards or shards <= (yield from reload_settings(queue)).shards:
        return []
    return [
        f"{queue.keys.settings} says {queue.settings.shards} shards, but there are heads of {shards}: what lies in the "
        f"others is not handed out. Was it restored? Run bucketmq doctor --deep {queue.name}"
    ]


def _readers(queue: OpenQueue, tails: list[int]) -> Procedure[tuple[ReaderStats, ...]]:
    found = yield from all_readers(queue)
    if not found:
        return ()
    now = yield from Now()
    lows = []
    for shard in range(len(tails)):
        lows.append((yield from trim_mark(queue.log(shard))))
    return tuple(_reader(name, reader, lows, tails, now) for name, reader in sorted(found.items()))


def _reader(name: str, reader: Reader, lows: list[int], tails: list[int], now: float) -> ReaderStats:
    shards = []
    for shard, (low, tail) in enumerate(zip(lows, tails, strict=True)):
        offset = reader.offset(shard)
        shards.append(ReaderShard(shard, offset, max(0, tail - max(offset, low))))
    lag = sum(each.lag for each in shards)
    return ReaderStats(name, reader.holds, lag, max(0.0, now - reader.at), tuple(shards))


def _subscription(queue: OpenQueue, name: str, tails: list[int]) -> Procedure[tuple[SubscriptionStats, list[Damage]]]:
    keys = [queue.keys.head(name, shard) for shard in range(len(tails))]
    objects = yield from get_many(keys)
    heads = [
        decode_head(found.body, key) if isinstance(found, Object) else Head(0, 0)
        for key, found in zip(keys, objects, strict=True)
    ]
    commits = [found.stored_at for found in objects if isinstance(found, Object)]
    now = yield from Now()
    shards, damaged = [], []
    for shard, (head, tail) in enumerate(zip(heads, tails, strict=True)):
        end = tail
        if head.next > end:  # the tail was read before the head: it may have moved on since
            end = yield from _tail(queue, shard)
        if head.next > end:
            damaged.append(Damage(queue.name, name, shard, head.next, end))
        shards.append((yield from _shard(queue, shard, head, end, now)))
    ages = [each.oldest_ready_seconds for each in shards if each.oldest_ready_seconds is not None]
    holders = {holder for head in heads for holder, seen in head.holders.items() if seen.at > now - HOLDER_SECONDS}
    rate = _conflict_rate(heads, holders)
    ready = sum(each.ready for each in shards)
    idle = max(0.0, now - max(commits)) if commits else None
    return SubscriptionStats(
        name=name,
        depth=sum(each.depth for each in shards),
        ready=ready,
        in_flight=sum(each.in_flight for each in shards),
        delayed=sum(each.delayed for each in shards),
        dead=sum(each.dead for each in shards),
        oldest_ready_seconds=max(ages, default=None),
        idle_seconds=idle,
        holders=len(holders),
        conflict_rate=rate,
        advice="; ".join(
            filter(None, (_crowded(queue, rate, len(holders), len(tails)), _unread(queue, name, ready, idle)))
        ),
        shards=tuple(shards),
        paused=queue.settings.pause_of(name),
        settled=sum(each.tail - each.depth for each in shards),
        next_due_seconds=min((each for shard in shards if (each := shard.next_due_seconds) is not None), default=None),
    ), damaged


def _shard(queue: OpenQueue, shard: int, head: Head, tail: int, now: float) -> Procedure[ShardStats]:
    """The head as the next commit would find it: leases that are over count as what expiry makes of them."""
    head = expire(head, now, policy_of(queue.settings))
    again = [entry.span for entry in head.waiting if entry.after <= now]
    fresh = max(0, tail - head.next)
    ready = fresh + sum(span.count for span in again)
    bases = [span.base for span in again] + ([head.segment] if fresh else [])
    return ShardStats(
        shard=shard,
        tail=tail,
        depth=fresh + head.held_count + head.waiting_count + head.moving_count,
        ready=ready,
        in_flight=head.held_count,
        delayed=fresh + head.waiting_count - ready,
        dead=head.moving_count,
        oldest_ready_seconds=(yield from _age(queue, shard, min(bases), now)) if bases else None,
        next_due_seconds=min((entry.after - now for entry in head.waiting if entry.after > now), default=None),
    )


def _conflict_rate(heads: list[Head], holders: set[str]) -> float:
    """By the heads themselves: each holder notes how many races it lost."""
    seen = [each for head in heads for name, each in head.holders.items() if name in holders]
    lost = sum(each.lost for each in seen)
    made = sum(each.commit for each in seen)
    return lost / (made + lost) if made else 0.0


def _crowded(queue: OpenQueue, rate: float, holders: int, shards: int) -> str:
    if rate < CONFLICTS_TOLERABLE:
        return ""
    wanted = min(SHARDS_MAX, max(shards * 2, holders))
    return (
        f"{rate:.0%} of the head writes of {holders} processes were refused; "
        f"add shards: bucketmq shards {queue.name} {wanted}"
    )


def _unread(queue: OpenQueue, name: str, ready: int, idle: float | None) -> str:
    if not ready or idle is None or idle < UNREAD_SECONDS:
        return ""
    rule = rule_of(name) if queue.name in OWN_QUEUES else None
    if rule is not None:
        cure = f"deliver them: bucketmq rules run {rule}; or end the rule: bucketmq rules rm {rule}"
    elif name == MAIN:
        cure = f"run a worker, or drop them: bucketmq purge {queue.name}"
    else:
        cure = f"run its worker, or end it: bucketmq subscriptions rm {queue.name} {name}"
    return f"nobody has read it for {_days(idle)}, though {ready:,} messages are ready and are kept for it; {cure}"


def _queue_advice(
    queue: OpenQueue, found: tuple[SubscriptionStats, ...], readers: tuple[ReaderStats, ...], dead: int
) -> list[str]:
    lines = [f"{spoken(queue.name, each.name)}: {each.advice}" for each in found if each.advice]
    if queue.settings.main and found and all(each.name != MAIN for each in found):
        lines.append(
            "nobody has ever received from main, which keeps every message; if only named subscriptions read this "
            f"queue: bucketmq init {queue.name} --no-main"
        )
    lines += [
        f"reader {each.name} has not moved for {_days(each.idle_seconds)} and holds back {each.lag:,} messages; "
        f"if it ended: bucketmq spark forget {queue.name} {each.name}"
        for each in readers
        if each.holds and each.lag and each.idle_seconds > UNREAD_SECONDS
    ]
    if dead:
        lines.append(f"{dead:,} dead {'letter' if dead == 1 else 'letters'}; see them: bucketmq dead {queue.name}")
    return lines


def _days(seconds: float) -> str:
    days = round(seconds / 86400)
    return f"{days} days" if days > 1 else f"{seconds / 3600:.0f} hours"


def _age(queue: OpenQueue, shard: int, base: int, now: float) -> Procedure[float | None]:
    """The age of the segment at `base`, without reading it where listing is cheap."""
    log = queue.log(shard)
    if queue.lists_in_order:
        page = yield from list_page(log.keys.log(shard), after=log.key(base - 1) if base else "", limit=1)
        return max(0.0, now - page.entries[0].stored_at) if page.entries else None
    found = yield from get(log.key(base))
    return None if isinstance(found, Missing) else max(0.0, now - found.stored_at)


def _delayed(queue: OpenQueue) -> Procedure[tuple[int, int, list[float], bool]]:
    """Sends with a delay: how many are not due, how many are, for how long the first of these, and whether there are
    more. One that is due stays where it is until somebody receives."""
    entries, more = yield from list_all(queue.keys.laters, pages_max=LATER_PAGES_MAX)
    now = yield from Now()
    due = [entry.key for entry in entries if due_of(entry.key) <= now]
    # A sender whose reply was lost may have created its object again after it was moved: that one is deleted, not sent.
    moved = (yield from get_state(queue.keys.later_register, Later()))[0].finished if due else {}
    ages = [now - due_of(key) for key in due if key.removeprefix(queue.keys.root + "/") not in moved]
    return len(entries) - len(due), len(ages), ages and [max(ages)], more


def _lost(queue: OpenQueue) -> Procedure[tuple[int, tuple[str, ...]]]:
    """How many messages are recorded as lost, and what to say about it."""
    try:
        count = (yield from read_losses(queue.keys)).count
    except Corrupt as error:
        return 0, (f"whether messages were lost is not known: {error}",)
    many = "1 message is" if count == 1 else f"{count:,} messages are"
    return count, (f"{many} lost; which, says bucketmq doctor --deep {queue.name}",) if count else ()


def _dead(queue: OpenQueue) -> Procedure[tuple[int, float | None, tuple[Damage, ...]]]:
    """How many dead letters there are, and since when the oldest is one."""
    if queue.name.endswith(DEAD_SUFFIX):
        return 0, None, ()
    try:
        dead = yield from open_queue(queue.bucket, queue.name + DEAD_SUFFIX, {}, create=False)
    except NotFound:
        return 0, None, ()
    found, damaged = yield from _subscription(dead, MAIN, (yield from _tails(dead)))
    return found.depth, found.oldest_ready_seconds, tuple(damaged)
