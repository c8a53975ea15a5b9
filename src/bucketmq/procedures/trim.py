"""Trimming: advance the mark, then delete what lies below it.

A segment may go when every subscription is past it and it is older than `keep_seconds`, or when it is older than
`expire_seconds` whether read or not. The mark only grows, and moves before anything is deleted, so that a producer that
slept since it last saw the tail can tell that the name it created was dead (see `append.place`).
"""

from __future__ import annotations

from itertools import pairwise

import msgspec

from bucketmq.bucket.port import Entry, Missing
from bucketmq.errors import Corrupt, NotFound
from bucketmq.log.documents import Trim, decode_head
from bucketmq.log.layout import base_of, head_of, join
from bucketmq.log.segment import Segment
from bucketmq.procedures.append import TRIM_GUARD_SECONDS, trim_mark
from bucketmq.procedures.opened import OpenQueue, ShardLog
from bucketmq.procedures.queues import open_queue
from bucketmq.procedures.requests import Now, Procedure
from bucketmq.procedures.verbs import delete, get, list_all, list_page, update_document
from bucketmq.queue.settings import DEAD_SUFFIX, MAIN

FAILURES_KEEP_SECONDS = 30 * 86400.0
PAGES_PER_TRIM = 20
"""One trim looks at no more than this many pages of a shard's listing."""


class Trimmed(msgspec.Struct, frozen=True):
    """What a trim did."""

    segments: int
    objects: int
    """Large bodies, parts and old failure records that went with them."""


def trim_all(queue: OpenQueue) -> Procedure[Trimmed]:
    """Trim the queue and its dead letters, those that were sent again or purged."""
    done = yield from trim(queue)
    try:
        dead = yield from open_queue(queue.bucket, queue.name + DEAD_SUFFIX, {}, create=False)
    except NotFound:
        return done
    of_dead = yield from trim(dead)
    return Trimmed(done.segments + of_dead.segments, done.objects + of_dead.objects)


def trim(queue: OpenQueue) -> Procedure[Trimmed]:
    """Trim every shard. A few LISTs and GETs, and one DELETE for each segment that goes."""
    shards = queue.settings.shards  # looked at once: another caller may learn of more in between
    needed = yield from _needed(queue, shards)
    segments, objects = 0, 0
    has_bodies = bool((yield from list_page(queue.keys.bodies, limit=1)).entries)
    has_parts = bool((yield from list_page(queue.keys.parts, limit=1)).entries)
    for shard in range(shards):
        log = queue.log(shard)
        gone = yield from _trim_shard(queue, log, needed.get(shard, 0))
        for entry in gone:
            if has_bodies or has_parts:
                objects += yield from _delete_belongings(queue, entry.key)
            yield from delete(entry.key)
            queue.segments.drop(entry.key)
        segments += len(gone)
    objects += yield from _old_failures(queue)
    return Trimmed(segments, objects)


def _needed(queue: OpenQueue, shards: int) -> Procedure[dict[int, int]]:
    """For each shard the lowest base that some subscription still reads. A shard it has not read yet counts whole."""
    entries, _ = yield from list_all(queue.keys.heads)
    needed: dict[int, int] = {}
    subscriptions: dict[str, set[int]] = {MAIN: set()} if queue.settings.main else {}
    for entry in entries:
        name, shard = head_of(entry.key)
        subscriptions.setdefault(name, set()).add(shard)
        found = yield from get(entry.key)
        if not isinstance(found, Missing):
            base = decode_head(found.body, entry.key).needs_from
            needed[shard] = min(base, needed.get(shard, base))
    for read in subscriptions.values():
        for shard in range(shards):
            if shard not in read:
                needed[shard] = 0
    return needed


def _trim_shard(queue: OpenQueue, log: ShardLog, needed: int) -> Procedure[list[Entry]]:
    """Advance the mark of a shard; returns the segments below it."""
    settings = queue.settings
    low = yield from trim_mark(log)
    entries, _ = yield from list_all(log.keys.log(log.shard), pages_max=PAGES_PER_TRIM)
    entries.sort(key=lambda entry: entry.key)
    now = yield Now()
    keep = max(settings.keep_seconds, TRIM_GUARD_SECONDS, settings.dedup_seconds + TRIM_GUARD_SECONDS)
    expire = max(settings.expire_seconds, keep) if settings.expire_seconds else None
    mark = low
    # The last segment always stays: the tail is found through it.
    for entry, following in pairwise(entries):
        age = now - entry.stored_at
        settled = base_of(following.key) <= needed and age > keep
        if base_of(entry.key) >= low and not settled and not (expire is not None and age > expire):
            break
        mark = max(mark, base_of(following.key))
    if mark > low:
        document = yield from update_document(
            Trim, log.keys.trim(log.shard), Trim(mark), lambda before: before if before.low >= mark else Trim(mark)
        )
        mark = document.low
    return [entry for entry in entries if base_of(entry.key) < mark and now - entry.stored_at > TRIM_GUARD_SECONDS]


def _delete_belongings(queue: OpenQueue, key: str) -> Procedure[int]:
    """Delete the large bodies and parts that a segment names."""
    found = yield from get(key)
    if isinstance(found, Missing):
        return 0
    try:
        segment = Segment(base_of(key), found.body)
        names = [part.key for part in segment.parts]
        if not segment.parts and b'"body_at":' in found.body:
            messages = segment.messages(segment.base, segment.end)
            names = [message.body_at.key for message in messages if message.body_at is not None]
    except Corrupt:
        return 0
    for name in names:
        yield from delete(join(queue.keys.root, name))
    return len(names)


def _old_failures(queue: OpenQueue) -> Procedure[int]:
    entries, _ = yield from list_all(queue.keys.failures, pages_max=PAGES_PER_TRIM)
    now = yield Now()
    old = [entry.key for entry in entries if now - entry.stored_at > FAILURES_KEEP_SECONDS]
    for key in old:
        yield from delete(key)
    return len(old)
