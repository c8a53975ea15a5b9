"""Readers: who follows a queue's log by offsets and keeps the progress elsewhere, as a Spark query in its checkpoint.

A reader tells the queue how far it has come, in a document of its own. So `stats` can tell its lag, trimming leaves
what it still needs if it `holds`, and a checkpoint that was lost can be made again. The document decides nothing else:
what a reader reads next is its own business, and the document may be behind, never ahead.

Subscriptions keep their progress in heads and are no readers in this sense.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from bucketmq.bucket.port import Missing, Object, Written
from bucketmq.errors import NotFound, Unavailable
from bucketmq.log import documents
from bucketmq.log.layout import reader_of
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.requests import Create, Get, Now, Procedure, Replace
from bucketmq.procedures.verbs import delete, get_document, get_many, list_all, update_document
from bucketmq.queue.settings import FORMAT, check_name

replace = msgspec.structs.replace

NOTE_TRIES = 3
"""A note of progress is tried so often. If it fails the next one says the same and more."""

NOTES_KEEP_SECONDS = 3 * 86400.0
"""A reader that holds nothing back is forgotten when it has not moved for so long. If it does, it is noted again."""


class Reader(msgspec.Struct, frozen=True):
    """`readers/<name>.json`: how far a reader has come. `version` grows by one with every change."""

    version: int = 0
    offsets: dict[int, int] = {}
    """The first offset of each shard that it may still read. A shard that is not named counts from its beginning."""
    bases: dict[int, int] = {}
    """For shards whose offset lies inside a segment: the base of that segment, if the reader told."""
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
    """The reader of this name; made at these offsets if there is none. One GET, and one PUT to make it.

    From here on what it needs is held. What a trim that was under way takes is not brought back.
    """
    now: float = yield Now()
    first = Reader(1, dict(offsets), dict(bases), holds, now)
    return (yield from update_document(Reader, _key(queue, name), first, lambda before: before))


def note_progress(
    queue: OpenQueue, name: str, offsets: Mapping[int, int], bases: Mapping[int, int], *, holds: bool
) -> Procedure[bool]:
    """Tell how far the reader has come; never less than was told before. Whether that is known to the bucket now.

    One GET and one PUT, three times at most, and no long waits: a reader does not stop because this does not work.
    """
    key = _key(queue, name)
    for _ in range(NOTE_TRIES):
        try:
            found: Object | Missing = yield Get(key)
        except Unavailable:
            continue
        there = isinstance(found, Object)
        before = documents.decode(Reader, found.body, key) if isinstance(found, Object) else Reader()
        after = _further(before, offsets, bases, holds=holds, now=(yield Now()))
        if there and after == before:
            return True
        body = documents.encode(after)
        reply = yield (Replace(key, body, found.version) if isinstance(found, Object) else Create(key, body))
        if isinstance(reply, Written):
            return True
    return False


def _further(
    before: Reader, offsets: Mapping[int, int], bases: Mapping[int, int], *, holds: bool, now: float
) -> Reader:
    """The reader moved on in those shards where it has come further."""
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
        raise NotFound(f"queue {queue.name!r} has no reader {name!r}; look: bucketmq stats {queue.name}")
    return found


def all_readers(queue: OpenQueue) -> Procedure[dict[str, Reader]]:
    """Every reader by its name. One LIST, and one GET for each."""
    entries, _ = yield from list_all(queue.keys.readers)
    if not entries:
        return {}
    keys = [entry.key for entry in entries]
    found: dict[str, Reader] = {}
    for key, reply in zip(keys, (yield from get_many(keys)), strict=True):
        if isinstance(reply, Object):
            found[reader_of(key)] = documents.decode(Reader, reply.body, key)
    return found


def forget_reader(queue: OpenQueue, name: str) -> Procedure[Reader]:
    """Delete the reader, which holds nothing back any more; returns how far it had come. A GET and a DELETE.

    A query that goes on under this name makes it again.
    """
    found = yield from find_reader(queue, name)
    yield from delete(_key(queue, name))
    return found


def forget_idle_notes(queue: OpenQueue, readers: Mapping[str, Reader]) -> Procedure[int]:
    """Delete readers that hold nothing back and have not moved for long: queries that were not continued."""
    now: float = yield Now()
    idle = [name for name, each in readers.items() if not each.holds and now - each.at > NOTES_KEEP_SECONDS]
    for name in idle:
        yield from delete(_key(queue, name))
    return len(idle)


def _key(queue: OpenQueue, name: str) -> str:
    return queue.keys.reader(check_name(name, "reader"))
