"""Recovering: finish what writers that died had begun, by the notes they left.

A move that was half done is completed, and a write that landed is reported. What a note announces may never have
happened: then the note is dropped in the end. Or it was written over since: then what is there is news enough.

Of a batch, what has happened is reported and taken out of the note; the rest stays in it, as a note of its own would.
"""

from __future__ import annotations

import msgspec

from bucketmq.bucket.port import Found, Missing, Version
from bucketmq.errors import BucketMQError
from bucketmq.events.event import Kind, ObjectEvent
from bucketmq.log.layout import EventKeys
from bucketmq.procedures.abreast import abreast
from bucketmq.procedures.objects.keys import full_key
from bucketmq.procedures.objects.metadata import WRITE
from bucketmq.procedures.objects.move import finish_move
from bucketmq.procedures.objects.notes import Note, Noted, encode_notes, observed, read_note, told
from bucketmq.procedures.objects.report import report
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Now, Procedure, Replace
from bucketmq.procedures.verbs import delete, list_all, look
from bucketmq.values import Value

NOTE_SECONDS = 30.0
"""The writer of a note this old is gone."""

NOTE_KEEP_SECONDS = 3600.0
"""A note of something that has not happened by now: it never will."""


class Recovered(Value, msgspec.Struct, frozen=True):
    """What became of the notes that were found."""

    notes: int = 0
    reported: int = 0
    """Writes that had landed unreported."""
    dropped: int = 0
    """Notes of what never happened."""


def recover(bucket: OpenBucket) -> Procedure[Recovered]:
    """Finish what writers that are gone had begun. One LIST, and a few requests for each old note."""
    keys = EventKeys(bucket.prefix)
    entries, _ = yield from list_all(keys.notes, pages_max=20)
    now = yield from Now()
    reported = dropped = 0
    for entry in entries:
        if now - entry.stored_at < NOTE_SECONDS:
            continue
        noted = yield from read_note(entry.key)
        if noted is None:
            continue
        over = now - noted.since >= NOTE_KEEP_SECONDS
        events = yield from _all_that_happened(bucket, noted, over=over)
        happened = [event for event in events if event is not None]
        left = [note for note, event in zip(noted.writes, events, strict=True) if event is None]
        reported += yield from report(bucket, happened)
        if left and not over:
            if happened:  # refused if its writer came back, or another recovers it too
                yield from Replace(entry.key, encode_notes(left, noted.since), noted.version)
            continue
        dropped += len(left)
        yield from delete(entry.key)
    return Recovered(len(entries), reported, dropped)


def _all_that_happened(bucket: OpenBucket, noted: Noted, *, over: bool) -> Procedure[list[ObjectEvent | None]]:
    """For each write of a note its event, or None while nothing of it can be seen."""
    found = yield from abreast([_what_happened(bucket, note, noted.since, over=over) for note in noted.writes])
    for each in found:
        if isinstance(each, BucketMQError):
            raise each
    return found  # type: ignore[return-value]  # no error is among them


def _what_happened(bucket: OpenBucket, note: Note, announced_at: float, *, over: bool) -> Procedure[ObjectEvent | None]:
    """The event of what a note announces, completed if need be; None while nothing of it can be seen. `over` says that
    what has not happened by now never will."""
    full = full_key(bucket, note.key)
    found = yield from look(full)
    match note.verb:
        case "put":
            if isinstance(found, Missing):
                return None
            if found.attributes.metadata.get(WRITE) != note.write:
                # Overwritten, or never written: what is there is news enough. Or still on its way, if it is large.
                return observed(bucket, note.key, found) if over else None
            kind: Kind = "changed"
            if note.moved_from is not None:  # as the note of the move itself reports it, if that is still there
                kind, note = "moved", msgspec.structs.replace(note, verb="move", key=note.moved_from, target=note.key)
            return (
                yield from told(
                    bucket,
                    note,
                    kind,
                    note.target or note.key,
                    found.version,
                    stored_at=found.stored_at,
                    size_bytes=found.size_bytes,
                    attributes=found.attributes,
                )
            )
        case "delete":
            if isinstance(found, Found):
                return None
            return (yield from told(bucket, note, "deleted", note.key, Version(note.version or ""), since=announced_at))
        case "move":
            return (yield from finish_move(bucket, note, found))
