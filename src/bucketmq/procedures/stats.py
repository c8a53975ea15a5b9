"""Stats: how a queue is doing, in a handful of requests however deep it is.

For each shard: the tail (one GET when it is known), and for each subscription the head (one GET) and the time of its
oldest unsettled segment (one LIST of one entry). Three LISTs for what is delayed and which subscriptions and readers
there are, and one GET for each reader.
"""

from __future__ import annotations

import msgspec

from bucketmq.bucket.port import Missing
from bucketmq.errors import NotFound
from bucketmq.log.documents import decode_head
from bucketmq.log.layout import due_of, head_of
from bucketmq.procedures.append import fresh_tail, trim_mark
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.queues import open_queue, reload_settings
from bucketmq.procedures.readers import Reader, all_readers
from bucketmq.procedures.requests import Now, Procedure
from bucketmq.procedures.verbs import get, get_many, list_all, list_page
from bucketmq.queue.head import Head
from bucketmq.queue.settings import DEAD_SUFFIX, MAIN

LATER_PAGES_MAX = 3
HOLDER_SECONDS = 600.0
CONFLICTS_TOLERABLE = 0.2


class ShardStats(msgspec.Struct, frozen=True):
    """One subscription's view of one shard."""

    shard: int
    tail: int
    depth: int
    in_flight: int
    waiting: int
    oldest_age_seconds: float | None


class SubscriptionStats(msgspec.Struct, frozen=True):
    """One subscription over all shards."""

    name: str
    depth: int
    """Messages sent and not settled, those in flight and waiting for a retry included."""
    in_flight: int
    waiting: int
    oldest_age_seconds: float | None
    holders: int
    """Processes that committed to its heads in the last ten minutes."""
    conflict_rate: float
    """The part of these processes' head writes that were refused because another was faster."""
    advice: str
    """What to do about it, if anything."""
    shards: tuple[ShardStats, ...]


class ReaderShard(msgspec.Struct, frozen=True):
    """One reader's place in one shard."""

    shard: int
    offset: int
    """The first offset that it may still read."""
    lag: int


class ReaderStats(msgspec.Struct, frozen=True):
    """How far a reader is that keeps its progress elsewhere, such as a Spark query. It tells so now and then, so it may
    be further by now."""

    name: str
    holds: bool
    """Whether trimming leaves what it has not read."""
    lag: int
    """Messages of the log that it has not read, those that were trimmed not counted."""
    idle_seconds: float
    """Since it last told of progress, or began."""
    shards: tuple[ReaderShard, ...]


class QueueStats(msgspec.Struct, frozen=True):
    """What `queue.stats()` answers. The plain numbers are those of the subscription `main`."""

    queue: str
    depth: int
    in_flight: int
    waiting: int
    delayed: int
    delayed_is_at_least: bool
    """True when there are more delayed objects than were counted."""
    dead: int
    oldest_age_seconds: float | None
    sent: int
    """Offsets ever used, over all shards."""
    shards: int
    subscriptions: tuple[SubscriptionStats, ...]
    readers: tuple[ReaderStats, ...] = ()


def stats(queue: OpenQueue) -> Procedure[QueueStats]:
    settings = yield from reload_settings(queue)
    shards = range(settings.shards)
    tails = []
    for shard in shards:
        tails.append((yield from fresh_tail(queue, queue.log(shard))))
    names = yield from _subscriptions(queue)
    subscriptions = []
    for name in names:
        subscriptions.append((yield from _subscription(queue, name, tails)))
    main = next(each for each in subscriptions if each.name == MAIN)
    delayed, more = yield from _delayed(queue)
    return QueueStats(
        queue=queue.name,
        depth=main.depth,
        in_flight=main.in_flight,
        waiting=main.waiting,
        delayed=delayed,
        delayed_is_at_least=more,
        dead=(yield from _dead(queue)),
        oldest_age_seconds=main.oldest_age_seconds,
        sent=sum(tails),
        shards=settings.shards,
        subscriptions=tuple(subscriptions),
        readers=tuple((yield from _readers(queue, tails))),
    )


def _subscriptions(queue: OpenQueue) -> Procedure[list[str]]:
    entries, _ = yield from list_all(queue.keys.heads)
    return sorted({head_of(entry.key)[0] for entry in entries} | {MAIN})


def _readers(queue: OpenQueue, tails: list[int]) -> Procedure[list[ReaderStats]]:
    found = yield from all_readers(queue)
    if not found:
        return []
    now: float = yield Now()
    lows = []
    for shard in range(len(tails)):
        lows.append((yield from trim_mark(queue.log(shard))))
    return [_reader(name, reader, lows, tails, now) for name, reader in sorted(found.items())]


def _reader(name: str, reader: Reader, lows: list[int], tails: list[int], now: float) -> ReaderStats:
    shards = []
    for shard, (low, tail) in enumerate(zip(lows, tails, strict=True)):
        offset = reader.offset(shard)
        shards.append(ReaderShard(shard, offset, max(0, tail - max(offset, low))))
    lag = sum(each.lag for each in shards)
    return ReaderStats(name, reader.holds, lag, max(0.0, now - reader.at), tuple(shards))


def _subscription(queue: OpenQueue, name: str, tails: list[int]) -> Procedure[SubscriptionStats]:
    keys = [queue.keys.head(name, shard) for shard in range(len(tails))]
    heads = []
    for key, found in zip(keys, (yield from get_many(keys)), strict=True):
        heads.append(Head(0, 0) if isinstance(found, Missing) else decode_head(found.body, key))
    now = yield Now()
    shards = []
    for shard, (head, tail) in enumerate(zip(heads, tails, strict=True)):
        listed = head.held_count + head.waiting_count + head.moving_count
        depth = max(0, tail - head.next) + listed
        age = (yield from _age(queue, shard, head.needs_from, now)) if depth else None
        shards.append(ShardStats(shard, tail, depth, head.held_count, head.waiting_count, age))
    ages = [each.oldest_age_seconds for each in shards if each.oldest_age_seconds is not None]
    holders = {holder for head in heads for holder, seen in head.holders.items() if seen.at > now - HOLDER_SECONDS}
    rate = _conflict_rate(heads, holders)
    return SubscriptionStats(
        name=name,
        depth=sum(each.depth for each in shards),
        in_flight=sum(each.in_flight for each in shards),
        waiting=sum(each.waiting for each in shards),
        oldest_age_seconds=max(ages, default=None),
        holders=len(holders),
        conflict_rate=rate,
        advice=_advice(rate, len(holders), len(tails)),
        shards=tuple(shards),
    )


def _conflict_rate(heads: list[Head], holders: set[str]) -> float:
    """Told by the heads themselves: each holder notes how many races it lost."""
    seen = [each for head in heads for name, each in head.holders.items() if name in holders]
    lost = sum(each.lost for each in seen)
    made = sum(each.commit for each in seen)
    return lost / (made + lost) if made else 0.0


def _advice(rate: float, holders: int, shards: int) -> str:
    if rate < CONFLICTS_TOLERABLE:
        return ""
    wanted = max(shards * 2, holders)
    return f"{rate:.0%} of the head writes of {holders} processes were refused: raise the shard count to {wanted}"


def _age(queue: OpenQueue, shard: int, base: int, now: float) -> Procedure[float | None]:
    """The age of the oldest unsettled segment, without reading it where listing is cheap."""
    log = queue.log(shard)
    if queue.lists_in_order:
        page = yield from list_page(log.keys.log(shard), after=log.key(base - 1) if base else "", limit=1)
        return max(0.0, now - page.entries[0].stored_at) if page.entries else None
    found = yield from get(log.key(base))
    return None if isinstance(found, Missing) else max(0.0, now - found.stored_at)


def _delayed(queue: OpenQueue) -> Procedure[tuple[int, bool]]:
    """Delayed objects that are not due yet. One send of many messages with a delay is one object."""
    entries, more = yield from list_all(queue.keys.laters, pages_max=LATER_PAGES_MAX)
    now = yield Now()
    return sum(1 for entry in entries if due_of(entry.key) > now - 60), more


def _dead(queue: OpenQueue) -> Procedure[int]:
    if queue.name.endswith(DEAD_SUFFIX):
        return 0
    try:
        dead = yield from open_queue(queue.bucket, queue.name + DEAD_SUFFIX, {}, create=False)
    except NotFound:
        return 0
    tails = []
    for shard in range(dead.settings.shards):
        tails.append((yield from fresh_tail(dead, dead.log(shard))))
    return (yield from _subscription(dead, MAIN, tails)).depth
