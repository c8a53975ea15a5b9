"""The two ends of a shard's log: the trim mark, where it begins, and the tail, the first offset that is free.

The tail is remembered by the process (`opened.ShardLog`) and found when it is not: one LIST of the heads and one GET
for each, one GET of the hint and one of the trim mark, one LIST of the log near the hint, one GET of the last segment
and one of the missing one behind it. Listing finds the true end behind segments that somebody deleted, and a hint that
is wrong is noticed because nothing that is listed ends there. Where listing costs more the longer the log is (Azure, S3
directory buckets), the segments behind the hint are walked instead.

A head beyond the true end is damage: what is sent until the log gets there would never be delivered. So a sender
compares its tail with the heads, at its first send and every `HEADS_SECONDS`, and is refused (`upkeep.mend` repairs
it).

A process that slept must not trust what it remembers: trimming may have deleted the segment at an old tail, and one
that is created under that key is not part of the log. So a tail that has not been checked for `SLEEP_SECONDS` is
compared with the trim mark, and trimming leaves segments alone for `TRIM_GUARD_SECONDS`, which is longer.
"""

from __future__ import annotations

from bucketmq.bucket.port import Missing, Object
from bucketmq.errors import Corrupt
from bucketmq.log import documents
from bucketmq.log.documents import Hint, Trim
from bucketmq.log.layout import base_of, head_of
from bucketmq.procedures.opened import OpenQueue, ShardLog
from bucketmq.procedures.requests import Now, Procedure
from bucketmq.procedures.segments.hint import maybe_hint
from bucketmq.procedures.segments.messages import read_segment
from bucketmq.procedures.verbs import get_many, get_state, list_all, list_page
from bucketmq.queue.head import Head

TRIM_GUARD_SECONDS = 120.0
"""Trimming deletes no segment younger than this."""

SLEEP_SECONDS = 30.0
"""Tail knowledge older than this when a create returns is checked against the trim mark. Less than the guard."""

HEADS_SECONDS = 60.0
"""How long a sender believes that no head is ahead of the log. Damage comes while it lives, too."""

HOPS_MAX = 4
"""More than this many segments behind: search for the tail instead of walking to it."""


HINT_WINDOWS = 900, 1_000_000
"""How far before the hint, in offsets, a listing begins. The first is one page of segments of one message each."""


def tail(queue: OpenQueue, shard_log: ShardLog) -> Procedure[int]:
    """The lowest offset not known to be taken, for a sender; `Corrupt` if a head is ahead of the log.

    Found in a few requests the first time. Free afterwards, but for one GET for each subscription a minute.
    """
    if shard_log.tail is None:
        yield from find_tail(queue, shard_log)
    elif not 0 <= (yield from Now()) - shard_log.heads_at <= HEADS_SECONDS:
        yield from _check_heads(queue, shard_log)
    return _known(shard_log)


def _check_heads(queue: OpenQueue, shard_log: ShardLog) -> Procedure[None]:
    """Refuse to send below a head. One GET for each head, and one for each segment that others have sent meanwhile."""
    now = yield from Now()
    furthest = yield from _furthest_head(shard_log)  # before the log is looked at: it only grows
    if furthest is not None and furthest[1].next > (shard_log.tail or 0):
        end = yield from fresh_tail(queue, shard_log)
        if furthest[1].next > end:
            yield from _find_tail(queue, shard_log, furthest)
    shard_log.heads_at = now


def fresh_tail(queue: OpenQueue, shard_log: ShardLog) -> Procedure[int]:
    """The tail as it is now: walked to from what is known, or searched for if it is further away."""
    if shard_log.tail is None:
        yield from find_tail(queue, shard_log)
        base = _known(shard_log)
    else:  # and perhaps slept since: what lies below the mark is not part of the log, so begin at the mark
        base = yield from lowest(shard_log, shard_log.tail, shard_log.tail_at, (yield from Now()))
    hops = 0
    while True:
        now = yield from Now()
        segment = yield from read_segment(queue, shard_log, base)
        if segment is not None:
            base, hops = segment.end, hops + 1
            if hops == HOPS_MAX:
                shard_log.learn(base, 0.0)
                yield from find_tail(queue, shard_log)
                base = _known(shard_log)
            continue
        low = yield from lowest(shard_log, base, shard_log.tail_at, now)  # it may be missing because it was trimmed
        if low == base:
            shard_log.learn(base, now)
            return base
        queue.jump(shard_log, low)
        base = low


def listed_tail(queue: OpenQueue, shard_log: ShardLog) -> Procedure[int]:
    """The tail as it is now, even behind segments that somebody deleted: for callers that read the whole log.

    As `fresh_tail`, and a search by listing before it where `fresh_tail` would walk: where listing is not cheap, and
    from a tail that is known, which may be where a gap begins.
    """
    if shard_log.tail is not None or not queue.lists_in_order:
        yield from find_tail(queue, shard_log, by_listing=True)
    return (yield from fresh_tail(queue, shard_log))


def find_tail(queue: OpenQueue, shard_log: ShardLog, *, by_listing: bool = False) -> Procedure[None]:
    """Search for the tail from the hint, the trim mark or what is known, whichever is furthest."""
    furthest, now = None, (yield from Now())
    if shard_log.tail is None:
        furthest = yield from _furthest_head(shard_log)  # before the log is listed
        shard_log.heads_at = now
    yield from _find_tail(queue, shard_log, furthest, by_listing=by_listing)


def _find_tail(
    queue: OpenQueue, shard_log: ShardLog, furthest: tuple[str, Head] | None, *, by_listing: bool = False
) -> Procedure[None]:
    start, passed = yield from true_end(queue, shard_log, by_listing=by_listing)
    while furthest is not None and furthest[1].next > start:
        if (yield from trim_mark(shard_log)) <= start:
            raise Corrupt(ahead_of_log(furthest[0], furthest[1].next, start))
        start, passed = yield from true_end(queue, shard_log, by_listing=by_listing)  # the last one listed was trimmed
    shard_log.learn(start, 0.0)  # a missing segment may have been trimmed since we listed it: the first create checks
    shard_log.since_hint = passed
    queue.doubt()  # the listing may have passed a fence unseen
    yield from maybe_hint(queue, shard_log)


def true_end(queue: OpenQueue, shard_log: ShardLog, *, by_listing: bool = False) -> Procedure[tuple[int, int]]:
    """Where the log ends, whatever heads say, and how many segments were passed to find out."""
    keys = shard_log.keys.hint(shard_log.shard), shard_log.keys.trim(shard_log.shard)
    hint, trim = yield from get_many(keys)
    hinted = _hinted(hint, keys[0])
    start = shard_log.tail or 0
    if isinstance(trim, Object):
        start = max(start, documents.decode(Trim, trim.body, keys[1]).low)
    passed = 0
    if queue.lists_in_order or queue.bucket.local or by_listing:
        start, passed = yield from _last_listed(shard_log, start, hinted)
    else:
        start = max(start, hinted)
    while (segment := (yield from read_segment(queue, shard_log, start))) is not None:
        start, passed = segment.end, passed + 1
    return start, passed


def ahead_of_log(head_key: str, at: int, end: int) -> str:
    """What to say of a head that is beyond the end of its log."""
    return (
        f"{head_key} is at offset {at}, but its log ends at {end}: what is sent until the log gets there would never "
        "be delivered. Was a part of the bucket restored or deleted? Run bucketmq doctor --deep, then --mend"
    )


def _furthest_head(shard_log: ShardLog) -> Procedure[tuple[str, Head] | None]:
    """The head of this shard that has come furthest, and its key. One GET for each subscription, and a LIST to find out
    which there are: those that begin later begin in the log."""
    if not shard_log.head_keys:
        entries, _ = yield from list_all(shard_log.keys.heads)
        shard_log.head_keys = [entry.key for entry in entries if head_of(entry.key)[1] == shard_log.shard]
    keys = shard_log.head_keys
    found = (yield from get_many(keys)) if keys else []
    heads = [(key, _head(each, key)) for key, each in zip(keys, found, strict=True)]
    return max(heads, key=lambda each: each[1].next, default=None)


def _known(shard_log: ShardLog) -> int:
    assert shard_log.tail is not None
    return shard_log.tail


def _head(found: Object | Missing, key: str) -> Head:
    """The head; one that cannot be read stops its own subscription, not the senders."""
    try:
        return Head(0, 0) if isinstance(found, Missing) else documents.decode_head(found.body, key)
    except Corrupt:
        return Head(0, 0)


def _hinted(hint: Object | Missing, key: str) -> int:
    """What the hint says; 0 for one that is missing or cannot be read: it decides nothing."""
    try:
        return 0 if isinstance(hint, Missing) else documents.decode(Hint, hint.body, key).base
    except Corrupt:
        return 0


def _last_listed(shard_log: ShardLog, start: int, hinted: int) -> Procedure[tuple[int, int]]:
    """The base of the last segment at or after `start`, by listing, and how many were listed.

    The listing begins shortly before the hint: the segment that ends there, or the lack of one, proves it right or
    wrong. Segments of many messages need a second look from further back.
    """
    for window in HINT_WINDOWS:
        if hinted - window > start:
            found = yield from _list_from(shard_log, hinted - window)
            if found is not None:
                return found
    return (yield from _list_from(shard_log, start)) or (start, 0)


def _list_from(shard_log: ShardLog, start: int) -> Procedure[tuple[int, int] | None]:
    after = shard_log.key(start - 1) if start else ""
    last, passed = None, 0
    while True:
        page = yield from list_page(shard_log.keys.log(shard_log.shard), after=after)
        if page.entries:
            after = max(entry.key for entry in page.entries)
            last, passed = base_of(after), passed + len(page.entries)
        if not page.more:
            return None if last is None else (last, passed)


def trim_mark(shard_log: ShardLog) -> Procedure[int]:
    """The lowest offset that still exists. One GET."""
    return (yield from get_state(shard_log.keys.trim(shard_log.shard), Trim(0)))[0].low


def lowest(shard_log: ShardLog, base: int, known_at: float, now: float) -> Procedure[int]:
    """The lowest offset at or above `base` that trimming has not passed.

    One GET if we slept since `known_at`, when `base` was free, else none: what was created there since is too young to
    be trimmed. That the mark was below `base` a moment ago says nothing: what is there may be old, and go any moment.
    """
    if now - known_at <= SLEEP_SECONDS:
        return base
    return max(base, (yield from trim_mark(shard_log)))
