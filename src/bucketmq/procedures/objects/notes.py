"""Notes: what is about to be done to users' objects, and the event that reports it once it is done.

A write and its report are two requests, and the process may die between them. So a **note** is written first and
deleted last: `inventory/notes/<id>.json` says what was about to be done. Writes that travel together share a
`BatchNote`. Any process that finds an old note finishes what it announces (`objects.recover`). Where even that is lost
to a long sleep, a sweep finds the change by listing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Literal

import msgspec

from bucketmq.bucket.port import Attributes, Found, Missing, Version
from bucketmq.errors import BucketMQError, Corrupt
from bucketmq.events import inventory
from bucketmq.events.event import Kind, ObjectEvent, event_id, plain_version, time_text
from bucketmq.log import documents
from bucketmq.log.layout import EventKeys
from bucketmq.procedures.objects.metadata import NO_CAUSE, Cause, without_stamps
from bucketmq.procedures.objects.report import report
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import NewId, Now, Procedure
from bucketmq.procedures.verbs import create_named, delete, get

QUICK_SECONDS = 1.0
"""An answer that took longer does not tell when it was that the store did what it was asked."""

logger = logging.getLogger("bucketmq")


class Note(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """`inventory/notes/<id>.json`: something that is about to be done to users' objects."""

    verb: Literal["put", "delete", "move"]
    key: str
    write: str
    target: str | None = None
    version: str | None = None
    """Of the source of a move."""
    renames: bool = False
    """Whether the move is one request of the store's own, which leaves no mark of where the object came from."""
    moved_from: str | None = None
    """Of a put that belongs to a move: the source. What it makes is reported as that move would report it."""
    cause: Cause = NO_CAUSE
    format: int = 1


class BatchNote(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """`inventory/notes/<id>.json`, too: several writes that are about to be made together."""

    writes: tuple[Note, ...]
    since: float | None = None
    """When it was first announced, if some of the writes were seen to since."""
    format: int
    """2: a program that only knows notes of one write leaves it to others."""


def announce(bucket: OpenBucket, notes: Sequence[Note], *, again: bool = False) -> Procedure[str]:
    """Say what is about to be done; returns the name of the note. One PUT, however many writes.

    `again`: of writes that have been announced before.
    """
    name = notes[0].write if len(notes) == 1 and not again else (yield from NewId())
    yield from create_named(EventKeys(bucket.prefix).note(name), encode_notes(notes))
    return name


def encode_notes(notes: Sequence[Note], since: float | None = None) -> bytes:
    """One write is noted in the form that every release reads."""
    if len(notes) == 1 and since is None:
        return documents.encode(notes[0])
    return documents.encode(BatchNote(writes=tuple(notes), since=since, format=documents.BATCH_FORMAT))


def withdraw(bucket: OpenBucket, name: str) -> Procedure[None]:
    """All of it is done and reported, or was not done. One DELETE."""
    yield from delete(EventKeys(bucket.prefix).note(name))


class Noted(msgspec.Struct, frozen=True):
    """A note as it was found: the writes that it announces."""

    writes: tuple[Note, ...]
    version: Version
    since: float
    """When they were announced."""


def read_note(key: str) -> Procedure[Noted | None]:
    """A note, or None if it is gone or nobody can read it: that one must not stop the others."""
    found = yield from get(key)
    if isinstance(found, Missing):
        return None
    try:
        read = decode_note(found.body, key)
    except Corrupt as error:
        logger.warning("action=note_unreadable key=%s %s", key, error)
        return None
    if isinstance(read, Note):
        return Noted((read,), found.version, found.stored_at)
    return Noted(read.writes, found.version, found.stored_at if read.since is None else read.since)


def decode_note(body: bytes, key: str) -> Note | BatchNote:
    """The note of one write or of several, or `Corrupt`."""
    if documents.format_of(body, key) == documents.BATCH_FORMAT:
        return documents.decode(BatchNote, body, key)
    return documents.decode(Note, body, key)


def told(
    bucket: OpenBucket,
    note: Note,
    kind: Kind,
    key: str,
    version: Version,
    *,
    stored_at: float | None = None,
    since: float | None = None,
    size_bytes: int | None = None,
    attributes: Attributes | None = None,
) -> Procedure[ObjectEvent]:
    """The event of a write of ours. The same write has the same id, whichever process reports it.

    `since`: a deletion happened at some time from then to now. If that is long, the event says so.
    """
    now = yield from Now()
    return ObjectEvent(
        id=event_id("writer", "", key, note.verb, note.write),
        kind=kind,
        key=key,
        at=time_text(now if stored_at is None else stored_at),
        source="writer",
        size_bytes=size_bytes,
        version=plain_version(version),
        exact=bucket.exact_versions,
        content_type=attributes.content_type if attributes is not None else None,
        metadata=without_stamps(attributes.metadata) if attributes is not None else None,
        from_key=note.key if kind == "moved" else None,
        seen_at=time_text(since) if since is not None and now - since > QUICK_SECONDS else None,
        hops=note.cause.hops,
        lineage=note.cause.lineage,
    )


def observed(bucket: OpenBucket, key: str, found: Found) -> ObjectEvent:
    """The event of a state that was seen, as a sweep reports it: the same state always has the same id."""
    item = inventory.Item(key, found.version, found.stored_at, found.size_bytes)
    return inventory.there(item, exact=bucket.exact_versions, changed=True)


def report_noted(bucket: OpenBucket, events: Sequence[ObjectEvent], name: str | None) -> Procedure[bool]:
    """Report, then forget the note, unless something that it announces is still open (`name` is None). The writes
    themselves are done: if reporting fails, the note stays and sees to it."""
    try:
        yield from report(bucket, events)
        if name is not None:
            yield from withdraw(bucket, name)
    except BucketMQError as error:
        logger.warning("action=report_failed events=%d kind=%s %s", len(events), error.kind, error)
        return False
    return True
