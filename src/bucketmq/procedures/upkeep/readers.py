"""Readers: they follow a queue's log by offsets and keep their progress elsewhere, as a Spark query in its checkpoint.

A reader notes its progress in a document of its own. From it `stats` knows the lag, trimming leaves what a reader that
`holds` still needs, and a lost checkpoint can be restored. It decides nothing else: it may be behind the reader, never
ahead of it.

Subscriptions keep their progress in heads and are not readers in this sense.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from bucketmq.bucket.port import Missing, Object, Written
from bucketmq.errors import NotFound, Unavailable
from bucketmq.log import documents
from bucketmq.log.layout import reader_of
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.requests import Get, Now, Procedure
from bucketmq.procedures.verbs import delete, get_document, get_there, list_all, put_over, update_document
from bucketmq.queue.settings import FORMAT, check_name

replace = msgspec.structs.replace

NOTE_TRIES = 3
"""How often a note of progress is tried. If it fails, the next one says the same and more."""

NOTES_KEEP_SECONDS = 3 * 86400.0
"""A reader that holds nothing back is forgotten after this long without progress. If it moves on, it is noted again."""


class Reader(msgspec.Struct, frozen=True):
    """`readers/<name>.json`: how far a reader has come. `version` grows by one with every change."""

    version: int = 0
    offsets: dict[int, int] = {}
    """The first offset of each shard that it may still read; 0 for a shard that is not named."""
    bases: dict[int, int] = {}
    """For shards whose offset lies inside a segment: the base of that segment, if the reader gave it."""
    holds: bool = True
    """Whether trimming leaves what it has not read."""
    at: float = 0.0
    """When it last moved, or began."""
    format: int = FORMAT

    def offset(self, shard: int) -> int:
        return self.offsets.get(shard, 0)


def begin_reader(
    queue: OpenQueue, name: str, offsets: Mapping[int, int], bases: Mapping[int, int], *, holds: bool
) -> Procedure[Reader]:
    """The reader of this name, made at these offsets if there is none. One GET, and one PUT to make it.

    From here on what it needs is held, except what a trim that began before still deletes.
    """
    now = yield from Now()
    first = Reader(1, dict(offsets), dict(bases), holds, now)
    return (yield from update_document(Reader, _key(queue, name), first, lambda before: before))


def note_progress(
    queue: OpenQueue, name: str, offsets: Mapping[int, int], bases: Mapping[int, int], *, holds: bool
) -> Procedure[bool]:
    """Note the reader's progress, which never goes back; returns whether the bucket has it.

    One GET and one PUT, three times at most, and no long waits: a reader does not stop because this fails.
    """
    key = _key(queue, name)
    for _ in range(NOTE_TRIES):
        try:
            found: Object | Missing = yield from Get(key)
        except Unavailable:
            continue
        before, version = Reader(), None
        if isinstance(found, Object):
            before, version = documents.decode(Reader, found.body, key), found.version
        after = _further(before, offsets, bases, holds=holds, now=(yield from Now()))
        if version is not None and after == before:
            return True
        if isinstance((yield from put_over(key, after, version)), Written):
            return True
    return False


def _further(
    before: Reader, offsets: Mapping[int, int], bases: Mapping[int, int], *, holds: bool, now: float
) -> Reader:
    """The reader, moved on in the shards where it is further than before."""
    moved = {shard: offset for shard, offset in offsets.items() if offset > before.offsets.get(shard, -1)}
    if not moved and holds == before.holds:
        return before
    kept = {shard: base for shard, base in before.bases.items() if shard not in moved}
    told = {shard: base for shard, base in bases.items() if shard in moved}
    return Reader(before.version + 1, {**before.offsets, **moved}, {**kept, **told}, holds, now)


def read_reader(queue: OpenQueue, name: str) -> Procedure[Reader | None]:
    """The reader of this name, if there is one. One GET."""
    found = yield from get_document(Reader, _key(queue, name))
    return found[0] if found else None


def find_reader(queue: OpenQueue, name: str) -> Procedure[Reader]:
    """The reader of this name, or `NotFound`. One GET."""
    found = yield from read_reader(queue, name)
    if found is None:
        raise NotFound(f"queue {queue.name!r} has no reader {name!r}; see which there are: bucketmq stats {queue.name}")
    return found


def all_readers(queue: OpenQueue) -> Procedure[dict[str, Reader]]:
    """Every reader by its name. One LIST, and one GET for each."""
    entries, _ = yield from list_all(queue.keys.readers)
    found = yield from get_there(entry.key for entry in entries)
    return {reader_of(key): documents.decode(Reader, each.body, key) for key, each in found.items()}


def forget_reader(queue: OpenQueue, name: str) -> Procedure[Reader]:
    """Delete the reader, so that it holds nothing back; returns what was noted of it. A GET and a DELETE.

    A query that continues under this name makes it again.
    """
    found = yield from find_reader(queue, name)
    yield from delete(_key(queue, name))
    return found


def forget_idle_notes(queue: OpenQueue, readers: Mapping[str, Reader]) -> Procedure[int]:
    """Delete readers that hold nothing back and have not moved for long: queries that ended."""
    now = yield from Now()
    idle = [name for name, each in readers.items() if not each.holds and now - each.at > NOTES_KEEP_SECONDS]
    for name in idle:
        yield from delete(_key(queue, name))
    return len(idle)


def _key(queue: OpenQueue, name: str) -> str:
    return queue.keys.reader(check_name(name, "reader"))
