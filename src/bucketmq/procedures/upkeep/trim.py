"""Trimming: advance the mark, then delete what lies below it.

A segment may be deleted when every subscription and every reader that holds is past it and it is older than
`keep_seconds`, or when it is older than `expire_seconds` whether it was read or not; where an archive is kept, not
before it is archived (`upkeep.archive`). The mark only grows, and moves before anything is deleted, so that a producer
that slept since it last saw the tail can tell that the name it created was dead (see `append.place`).

A subscription may begin while a trim is under way. So the heads are read again after the mark has moved, and what they
need then stays, below the mark, until a later trim. A claim that begins a subscription gets the mark after its head is
written (`claiming.claim`). One of the two comes second and sees what the other wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import msgspec
from msgspec import UNSET

from bucketmq.bucket.port import Entry, Missing, Object
from bucketmq.errors import Corrupt, NotFound
from bucketmq.log.documents import Later, Trim, decode, decode_head
from bucketmq.log.layout import QueueKeys, base_of, head_of, join
from bucketmq.log.segment import Segment
from bucketmq.procedures.bulk.orphans import maybe_remove_orphans
from bucketmq.procedures.opened import OpenQueue, ShardLog
from bucketmq.procedures.queues import open_queue
from bucketmq.procedures.requests import Now, Procedure
from bucketmq.procedures.segments.tail import TRIM_GUARD_SECONDS
from bucketmq.procedures.upkeep.archive import Archive, read_archive
from bucketmq.procedures.upkeep.readers import Reader, all_readers, forget_idle_notes
from bucketmq.procedures.verbs import delete, get, get_many, get_state, list_all, list_page, update_document
from bucketmq.queue.settings import DEAD_SUFFIX, MAIN, Settings
from bucketmq.values import Value

FAILURES_KEEP_SECONDS = 30 * 86400.0
PAGES_PER_TRIM = 20
"""One trim lists at most this many pages of a shard."""


STALE_SECONDS = TRIM_GUARD_SECONDS / 2
"""So long after the heads were read the mark is not moved by them: there may be a new subscription."""


class Trimmed(Value, msgspec.Struct, frozen=True):
    """What a trim did."""

    segments: int
    objects: int
    """Large bodies and parts of those segments, old failure records, and orphans."""


def trim_all(queue: OpenQueue) -> Procedure[Trimmed]:
    """Trim the queue, and its dead letters that were redriven or purged."""
    done = yield from trim(queue)
    try:
        dead = yield from open_queue(queue.bucket, queue.name + DEAD_SUFFIX, {}, create=False)
    except NotFound:
        return done
    of_dead = yield from trim(dead)
    return Trimmed(done.segments + of_dead.segments, done.objects + of_dead.objects)


def trim(queue: OpenQueue) -> Procedure[Trimmed]:
    """Trim every shard. A few LISTs and GETs, and one DELETE for each segment."""
    shards = queue.settings.shards  # looked at once: another caller may learn of more in between
    marks = yield from _marks(queue, shards)  # before the heads: what they need of what lies below a mark stays
    looked_at = yield from Now()
    readers = yield from all_readers(queue)
    needed = yield from _needed(queue, shards, readers)
    has_bodies = bool((yield from list_page(queue.keys.bodies, limit=1)).entries)
    has_parts = bool((yield from list_page(queue.keys.parts, limit=1)).entries)
    rules = Rules(queue.settings, needed, looked_at, (yield from read_archive(queue)), has_bodies, has_parts)
    gone, passed = Gone(), list[Passed]()
    for shard, mark in enumerate(marks):
        left, step = yield from _trim_shard(queue, queue.log(shard), mark, rules)
        gone += left
        passed += [step] if step else []
    if passed:
        needed = yield from lowest_needed(queue, shards)
        for step in passed:
            gone += yield from _delete(queue, step, msgspec.structs.replace(rules, needed=needed))
    objects = gone.objects + (yield from _old_failures(queue))
    yield from forget_idle_notes(queue, readers)
    if has_parts:
        objects += yield from maybe_remove_orphans(queue, everything=gone.doubtful > 0)
    return Trimmed(gone.segments, objects)


class Rules(msgspec.Struct, frozen=True):
    """Which segments may be deleted."""

    settings: Settings
    needed: dict[int, int]
    """For each shard the lowest offset that a subscription or reader still needs."""
    looked_at: float
    """When it was asked what they need."""
    archive: Archive
    has_bodies: bool
    has_parts: bool
    """Whether the queue has any large bodies and parts, so that segments must be read before they are deleted."""

    def allow(self, shard: int, end: int, age: float) -> bool:
        """Whether a segment that ends at `end` may be deleted."""
        settings = self.settings
        keep = max(settings.keep_seconds, TRIM_GUARD_SECONDS, settings.dedup_seconds + TRIM_GUARD_SECONDS)
        settled = end <= self.needed.get(shard, 0) and age > keep
        expired = bool(settings.expire_seconds) and age > max(settings.expire_seconds, keep)
        return (settled or expired) and self.archive.lets_go(shard, end)


def lowest_needed(queue: OpenQueue, shards: int) -> Procedure[dict[int, int]]:
    """For each shard the lowest offset that a subscription or reader still needs; no entry for a shard without any. One
    LIST and one GET for each head, and the same for readers."""
    return (yield from _needed(queue, shards, (yield from all_readers(queue))))


def _needed(queue: OpenQueue, shards: int, readers: Mapping[str, Reader]) -> Procedure[dict[int, int]]:
    """Of a shard in which a subscription has no head yet, it needs everything."""
    entries, _ = yield from list_all(queue.keys.heads)
    needed: dict[int, int] = {}
    subscriptions: dict[str, set[int]] = {MAIN: set()} if queue.settings.main else {}
    heads = yield from get_many([entry.key for entry in entries])
    for entry, found in zip(entries, heads, strict=True):
        name, shard = head_of(entry.key)
        subscriptions.setdefault(name, set()).add(shard)
        if not isinstance(found, Missing):
            base = decode_head(found.body, entry.key).needs_from
            needed[shard] = min(base, needed.get(shard, base))
    for read in subscriptions.values():
        for shard in range(shards):
            if shard not in read:
                needed[shard] = 0
    for reader in readers.values():
        for shard in range(shards if reader.holds else 0):
            needed[shard] = min(reader.offset(shard), needed.get(shard, reader.offset(shard)))
    return needed


class Old(msgspec.Struct, frozen=True):
    """A segment that is not new any more. `end`: where the next one that is listed begins."""

    entry: Entry
    end: int
    age: float

    @property
    def base(self) -> int:
        return base_of(self.entry.key)


class Passed(msgspec.Struct, frozen=True):
    """One step of the mark: it passed what lies between `start` and the mark, no earlier than `at`."""

    shard: int
    start: int
    at: float
    segments: tuple[Old, ...]


class Gone(msgspec.Struct, frozen=True):
    """What was deleted of a shard. `doubtful`: segments of parts below the mark that were left for `orphans`."""

    segments: int = 0
    objects: int = 0
    doubtful: int = 0

    def __add__(self, other: Gone) -> Gone:
        return Gone(self.segments + other.segments, self.objects + other.objects, self.doubtful + other.doubtful)


def _marks(queue: OpenQueue, shards: int) -> Procedure[list[tuple[Trim, float]]]:
    """The mark of each shard, and when it moved last. One GET for each."""
    keys = [queue.keys.trim(shard) for shard in range(shards)]
    found = yield from get_many(keys)
    return [
        (decode(Trim, each.body, key), each.stored_at) if isinstance(each, Object) else (Trim(0), 0.0)
        for key, each in zip(keys, found, strict=True)
    ]


def _trim_shard(
    queue: OpenQueue, log: ShardLog, mark: tuple[Trim, float], rules: Rules
) -> Procedure[tuple[Gone, Passed | None]]:
    """Finish an earlier trim and advance the mark; what it passed is still to be deleted."""
    trim, moved_at = mark
    low = trim.low
    entries, _ = yield from list_all(log.keys.log(log.shard), pages_max=PAGES_PER_TRIM)
    entries.sort(key=lambda entry: entry.key)
    now = yield from Now()
    # The last segment always stays: the tail is found through it.
    old = [Old(entry, base_of(following.key), now - entry.stored_at) for entry, following in pairwise(entries)]
    # Before the mark moves: afterwards, what an earlier trim left could not be told from dead names any more.
    start = low if trim.before is UNSET else trim.before
    left = tuple(each for each in old if each.base < low)
    gone = yield from _delete(queue, Passed(log.shard, start, moved_at, left), rules)
    high = low
    for each in old[len(left) :]:
        if not rules.allow(log.shard, each.end, each.age):
            break
        high = each.end
    if high > low:  # after the listing: what was created later is not in it
        high = max(low, min([high, *(yield from _aimed_at(queue, log.shard))]))
    if (yield from Now()) - rules.looked_at > STALE_SECONDS:
        return gone, None  # subscriptions may have begun meanwhile, and they read what lies below the mark
    if high > low and (yield from _advance(log, low, high)):
        passed = tuple(each for each in old if low <= each.base < high)
        return gone, Passed(log.shard, low, rules.looked_at, passed)
    return gone, None


def _aimed_at(queue: OpenQueue, shard: int) -> Procedure[list[int]]:
    """Where delayed messages, dead letters and redrives that are on their way are meant to be, or are: whoever goes on
    with a move must find its segment, or it would put the messages there again. One LIST, a GET, and one for each head
    of the other queue."""
    later, _ = yield from get_state(queue.keys.later_register, Later())
    targets = [target for group in later.groups for target in group.targets]
    dead = queue.name.endswith(DEAD_SUFFIX)
    other = QueueKeys(queue.bucket.prefix, queue.name.removesuffix(DEAD_SUFFIX) if dead else queue.name + DEAD_SUFFIX)
    entries, _ = yield from list_all(other.heads)
    for entry in entries:
        head = yield from get(entry.key)
        if isinstance(head, Object):
            moving = decode_head(head.body, entry.key).moving
            targets += [each.target for each in moving if each.target is not None]
    return [target.base for target in targets if target.shard == shard]


def _advance(log: ShardLog, low: int, mark: int) -> Procedure[bool]:
    """Move the mark from `low`. False if another trim has moved it, which then deletes what it passed."""
    ours = False

    def change(before: Trim) -> Trim:
        nonlocal ours
        ours = before.low == low
        return Trim(mark, before=low) if ours else before

    yield from update_document(Trim, log.keys.trim(log.shard), Trim(low), change)
    return ours


def _delete(queue: OpenQueue, passed: Passed, rules: Rules) -> Procedure[Gone]:
    """Delete segments below the mark that nobody needs, and what belongs to them.

    Not everything below the mark was passed by it. A writer that slept may have created a dead name, and then it, or
    another writer, put the same messages elsewhere: bodies and parts that such a segment names are named by a live one
    too. What the mark passed is older than the step that passed it; what was created on a dead name is younger. In
    doubt only the segment is deleted, and a segment of parts is left for `orphans`, which checks what else names them.
    """
    segments, objects, doubtful = 0, 0, 0
    for each in passed.segments:
        entry = each.entry
        if not rules.allow(passed.shard, each.end, each.age):
            continue
        if rules.has_bodies or rules.has_parts:
            found = yield from get(entry.key)
            if not isinstance(found, Missing):
                names, are_parts = _belongings(entry.key, found.body)
                certain = passed.start <= each.base and found.stored_at < passed.at - TRIM_GUARD_SECONDS / 2
                if are_parts and rules.has_parts and not certain:
                    doubtful += 1
                    continue
                for name in names if certain else ():
                    yield from delete(join(queue.keys.root, name))
                    objects += 1
        yield from delete(entry.key)
        queue.segments.drop(entry.key)
        segments += 1
    return Gone(segments, objects, doubtful)


def _belongings(key: str, body: bytes) -> tuple[list[str], bool]:
    """The large bodies or parts that a segment names, and whether they are parts."""
    try:
        segment = Segment(base_of(key), body, key)
        if segment.parts:
            return [part.key for part in segment.parts], True
        if b'"body_at":' in body:
            messages = segment.messages(segment.base, segment.end)
            return [message.body_at.key for message in messages if message.body_at is not None], False
    except Corrupt:
        pass
    return [], False


def _old_failures(queue: OpenQueue) -> Procedure[int]:
    entries, _ = yield from list_all(queue.keys.failures, pages_max=PAGES_PER_TRIM)
    now = yield from Now()
    old = [entry.key for entry in entries if now - entry.stored_at > FAILURES_KEEP_SECONDS]
    for key in old:
        yield from delete(key)
    return len(old)
