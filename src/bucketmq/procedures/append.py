"""Append: putting segments at the end of a shard's log, once each.

The end is found by trying. A segment is created under the key of the offset we believe to be next. If that is refused
or its outcome is unknown, reading the key back tells which of three things is so: the segment there is ours, it is
somebody else's (whose line count gives the next offset), or there is none and the create is tried again.

In steady state an append is one PUT. A cold start adds at most: one GET of the hint and one of the trim mark, one LIST
after them, one GET of the last segment and one of the missing one behind it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from bucketmq.bucket.port import Missing, Object, Version, Written
from bucketmq.errors import BucketMQError
from bucketmq.log import documents
from bucketmq.log.documents import Hint, Trim
from bucketmq.log.layout import base_of
from bucketmq.log.segment import Parts, Segment
from bucketmq.procedures.lane import share
from bucketmq.procedures.opened import OpenQueue, Parcel, ShardLog
from bucketmq.procedures.requests import Create, Get, Now, Procedure, Replace
from bucketmq.procedures.verbs import Patience, delete, get, get_document, get_many, list_page
from bucketmq.queue.message import Message

TRIM_GUARD_SECONDS = 120.0
"""Trimming deletes no segment younger than this."""

SLEEP_SECONDS = 30.0
"""Tail knowledge older than this when a create returns is checked against the trim mark. Less than the guard."""

HOPS_MAX = 4
"""Who is more segments behind than this finds the tail anew instead of hopping on."""

HINT_EVERY = 64
HINT_EVERY_WALKED = 32
"""Where listing is not cheap the tail is walked from the hint, so the hint must be nearer."""


class Landed(msgspec.Struct, frozen=True):
    """Our segment is at the base it was meant for."""


class Taken(msgspec.Struct, frozen=True):
    """Somebody else's segment is there; the next base is `end`."""

    end: int


class Fenced(Exception):
    """The shard count of an ordered queue was raised: find the messages' shards anew. Never leaves `procedures`."""


Mine = Callable[[Segment], bool]


def begins_with(first_id: str) -> Mine:
    """Recognises a segment by the id of its first message, or of its parts."""

    def mine(segment: Segment) -> bool:
        first = segment.first_line()
        return isinstance(first, Message | Parts) and first.id == first_id

    return mine


def marked(move: str) -> Mine:
    """Recognises a segment by the number of the move that put it there."""

    def mine(segment: Segment) -> bool:
        first = segment.first_line()
        return isinstance(first, Message) and first.move == move

    return mine


def place(
    queue: OpenQueue, log: ShardLog, base: int, body: bytes, mine: Mine, *, known_at: float
) -> Procedure[Landed | Taken]:
    """Create the segment at `base`, or find out who has it. One PUT; one GET more when refused or unknown.

    `known_at` is when it was last certain that `base` was free.
    """
    key = log.key(base)
    patience = Patience(f"appending at {key}")
    while True:
        asked_at: float = yield Now()
        reply = yield Create(key, body)
        if isinstance(reply, Written):
            stored_at = reply.stored_at
            break
        found = yield from get(key)
        if isinstance(found, Object):
            segment = Segment(base, found.body)
            if mine(segment):
                stored_at = found.stored_at
                break
            notice_fence(queue, segment)
            return (yield from _taken(log, segment, known_at))
        yield from patience.again(reply)
    landed_at = asked_at if stored_at is None else stored_at
    low = yield from _lowest(log, base, known_at, (yield Now()) if stored_at is None else stored_at)
    if low > base and not (stored_at is None and (yield from _landed_awake(key, known_at))):
        yield from delete(
            key
        )  # or trimming would delete it later, with the large bodies that we are about to send again
        log.learn(low, 0.0)
        return Taken(low)
    log.learn(base + Segment(base, body).count, landed_at)
    return Landed()


def _taken(log: ShardLog, segment: Segment, known_at: float) -> Procedure[Taken]:
    """Somebody else's segment: go on behind it, or at the mark if it is a dead name that another sleeper re-created."""
    low = yield from _lowest(log, segment.base, known_at, (yield Now()))
    end = low if low > segment.base else segment.end
    log.learn(end, 0.0)
    return Taken(end)


def _lowest(log: ShardLog, base: int, known_at: float, now: float) -> Procedure[int]:
    """The lowest offset at or above `base` that trimming has not passed.

    One GET if we slept since `known_at`, when `base` was free, else none: what was created there since is too young to
    be trimmed. That the mark was below `base` a moment ago says nothing: what is there may be old, and go any moment.
    """
    if now - known_at <= SLEEP_SECONDS:
        return base
    return max(base, (yield from trim_mark(log)))


def _landed_awake(key: str, known_at: float) -> Procedure[bool]:
    """Whether the segment landed before we slept and trimming passed it after: asked where a write tells no time."""
    found = yield from get(key)
    return isinstance(found, Object) and found.stored_at - known_at <= SLEEP_SECONDS


def trim_mark(log: ShardLog) -> Procedure[int]:
    found = yield from get_document(Trim, log.keys.trim(log.shard))
    return found[0].low if found else 0


def tail(queue: OpenQueue, log: ShardLog) -> Procedure[int]:
    """The lowest offset not known to be taken; found in a few requests the first time, free afterwards."""
    if log.tail is None:
        yield from _find_tail(queue, log)
    assert log.tail is not None
    return log.tail


def fresh_tail(queue: OpenQueue, log: ShardLog) -> Procedure[int]:
    """The tail as it is now: a few segments on from what is known, and if that is not enough, found anew."""
    known = log.tail is not None
    base = yield from tail(queue, log)
    if known:  # and perhaps slept since: on a dead name lies nothing that is part of the log, so begin at the mark
        base = yield from _lowest(log, base, log.tail_at, (yield Now()))
    hops = 0
    while True:
        now: float = yield Now()
        segment = yield from read_segment(queue, log, base)
        if segment is not None:
            base, hops = segment.end, hops + 1
            if hops == HOPS_MAX:
                log.learn(base, 0.0)
                yield from _find_tail(queue, log)
                base = yield from tail(queue, log)
            continue
        low = yield from _lowest(log, base, log.tail_at, now)  # it may be missing because it was trimmed
        if low == base:
            log.learn(base, now)
            return base
        log.learn(low, 0.0)
        base = low


def listed_tail(queue: OpenQueue, log: ShardLog) -> Procedure[int]:
    """The tail as it is now, behind segments that somebody deleted, too: for those who go through the whole log.

    Where listing is not cheap the tail is walked to, and a walk that begins anew ends at the first hole. Some LISTs
    there; else as `fresh_tail`, which lists itself when it begins anew.
    """
    if not queue.lists_in_order:
        yield from _find_tail(queue, log, by_listing=True)
    return (yield from fresh_tail(queue, log))


def _find_tail(queue: OpenQueue, log: ShardLog, *, by_listing: bool = False) -> Procedure[None]:
    keys = log.keys.hint(log.shard), log.keys.trim(log.shard)
    hint, trim = yield from get_many(keys)
    start = log.tail or 0
    if isinstance(hint, Object):
        start = max(start, documents.decode(Hint, hint.body, keys[0]).base)
    if isinstance(trim, Object):
        start = max(start, documents.decode(Trim, trim.body, keys[1]).low)
    passed = 0
    if queue.lists_in_order or by_listing:
        start, passed = yield from _last_listed(log, start)
    while (segment := (yield from read_segment(queue, log, start))) is not None:
        start, passed = segment.end, passed + 1
    log.learn(start, 0.0)  # a missing segment may have been trimmed since we listed it: the first create must check
    log.since_hint = passed
    queue.doubt()  # the listing may have passed a fence unseen
    yield from maybe_hint(queue, log)


def _last_listed(log: ShardLog, start: int) -> Procedure[tuple[int, int]]:
    """The base of the last segment at or after `start`, by listing, and how many there were."""
    after = log.key(start - 1) if start else ""
    passed = 0
    while True:
        page = yield from list_page(log.keys.log(log.shard), after=after)
        if page.entries:
            after = page.entries[-1].key
            start = base_of(after)
            passed += len(page.entries)
        if not page.more:
            return start, passed


def maybe_hint(queue: OpenQueue, log: ShardLog) -> Procedure[None]:
    """Write the hint when it has fallen behind. It decides nothing, so a lost or refused write does not matter."""
    every = HINT_EVERY if queue.lists_in_order else HINT_EVERY_WALKED
    if log.since_hint < every or log.tail is None:
        return
    log.since_hint = 0
    try:
        log.hint_version = yield from _write_hint(log, log.keys.hint(log.shard), log.tail)
    except BucketMQError:
        log.hint_version = None


def _write_hint(log: ShardLog, key: str, tail: int) -> Procedure[Version | None]:
    """One PUT, and a GET before it unless the last one to write the hint was this process."""
    body, version = documents.encode(Hint(tail)), log.hint_version
    if version is None:
        found = yield Get(key)
        if isinstance(found, Object):
            version = found.version
            if documents.decode(Hint, found.body, key).base >= tail:
                return None
    reply = yield (Create(key, body) if version is None else Replace(key, body, version))
    return reply.version if isinstance(reply, Written) else None


def read_segment(queue: OpenQueue, log: ShardLog, base: int) -> Procedure[Segment | None]:
    """The segment at `base`, from the cache or by one GET; None where there is none."""
    key = log.key(base)
    segment = queue.segments.find(key)
    if segment is None:
        found = yield from get(key)
        if isinstance(found, Missing):
            return None
        segment = keep_segment(queue, log, base, found)
    return segment


def keep_segment(queue: OpenQueue, log: ShardLog, base: int, found: Object) -> Segment:
    segment = Segment(base, found.body)
    notice_fence(queue, segment)
    return queue.segments.keep(log.key(base), segment)


def notice_fence(queue: OpenQueue, segment: Segment) -> None:
    """Whoever passes a fence must know the settings that came with it before sending on."""
    if segment.special and not segment.parts:
        first = segment.first_line()
        if isinstance(first, Message) and first.fence is not None and first.fence > queue.settings.shards:
            queue.doubt()


def is_outdated(queue: OpenQueue, shards: int) -> bool:
    """Whether messages of an ordered queue that were placed by a count of `shards` must find their shards anew.

    To be asked after the tail is known: whoever passed a fence to learn it knows the new count, or that there is one.
    """
    return queue.settings.ordered and (queue.stale or queue.settings.shards != shards)


def append(queue: OpenQueue, log: ShardLog, body: bytes, mine: Mine, shards: int) -> Procedure[int]:
    """Put one segment at the end of the log; returns its base. `shards` is the count by which the log was chosen."""
    refused = 0
    while True:
        base = yield from tail(queue, log)
        if is_outdated(queue, shards):
            raise Fenced
        match (yield from place(queue, log, base, body, mine, known_at=log.tail_at)):
            case Landed():
                yield from maybe_hint(queue, log)
                return base
            case Taken():
                refused += 1
                if refused % HOPS_MAX == 0:  # far behind: others sent a lot since we last did
                    yield from _find_tail(queue, log)


def post(queue: OpenQueue, log: ShardLog, parcel: Parcel) -> Procedure[int]:
    """Append the parcel together with whatever else this process is sending to the shard; returns its base."""

    def carry(parcels: list[Parcel]) -> Procedure[None]:
        shards = parcels[0].shards
        if queue.settings.ordered and any(each.shards != shards for each in parcels):
            raise Fenced
        queue.turn += 1  # a step round the shards for each write, so that single sends gather instead of spreading
        body = b"".join(each.lines for each in parcels)
        base = yield from append(queue, log, body, begins_with(parcels[0].first_id), shards)
        for each in parcels:
            each.base = base
            base += each.count

    yield from share(log.lane, parcel, carry)
    return parcel.base
