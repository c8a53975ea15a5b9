"""Users' own objects: put, delete and move them, and report what was done.

A write and its report are two requests, and the process may die between them. So a **note** is written first and
deleted last: `inventory/notes/<id>.json` says what was about to be done. Whoever finds a note that is older than
`NOTE_SECONDS` finishes what it announces: completes a move, reports a write that landed (`recover`). Where even the
note is lost to a long sleep, the sweep finds the change by listing.

Every write is conditional on the state it was decided on. A writer recognises its own write by the id in the object's
metadata, so a lost reply is neither an error nor a second write.

**Move** creates the target, then removes the source, each with its condition. The target names the state it came from,
so repeating a move after a crash, anywhere, continues it. An object that is already at the target and came from
somewhere else is never destroyed. If the source was changed before it could be removed, the change stays where it is.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from typing import Literal

import msgspec

from bucketmq.bucket.port import (
    METADATA_BYTES_MAX,
    Attributes,
    Found,
    Missing,
    Object,
    Refused,
    Removed,
    Unknown,
    Version,
    Written,
    check_attributes,
    check_key,
)
from bucketmq.errors import BucketMQError, Contended, Corrupt, Invalid, NotFound
from bucketmq.events import inventory
from bucketmq.events.event import LINEAGE_MAX, Kind, ObjectEvent, event_id, plain_version, time_text
from bucketmq.log import documents
from bucketmq.log.layout import EventKeys, is_bookkeeping
from bucketmq.procedures.events import full_key, report
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Create, NewId, Now, Procedure, Remove, Rename, Replace
from bucketmq.procedures.verbs import Patience, create_named, delete, get, list_all, look

NOTE_SECONDS = 30.0
"""A note this old belongs to nobody who is still at it."""

QUICK_SECONDS = 1.0
"""An answer that took longer does not tell when it was that the store did what it was asked."""

NOTE_KEEP_SECONDS = 3600.0
"""A note of something that has not happened by now: it never will."""

WRITE = "bucketmq-write"
FROM = "bucketmq-from"
HOPS = "bucketmq-hops"
LINEAGE = "bucketmq-lineage"
OWN_METADATA = frozenset({WRITE, FROM, HOPS, LINEAGE})

log = logging.getLogger("bucketmq")


class Cause(msgspec.Struct, frozen=True):
    """The event in whose handling something is written: it makes the chain of hops that the loop guard counts."""

    hops: int = 0
    """Of the write itself: one more than of the event."""
    lineage: tuple[str, ...] = ()


NO_CAUSE = Cause()


def cause_of(event: ObjectEvent) -> Cause:
    return Cause(event.hops + 1, (*event.lineage, event.id)[-LINEAGE_MAX:])


class Note(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """`inventory/notes/<id>.json`: something that is about to be done to users' objects."""

    verb: Literal["put", "delete", "move"]
    key: str
    write: str
    target: str | None = None
    version: str | None = None
    """Of the source of a move."""
    cause: Cause = NO_CAUSE
    format: int = 1


class Stored(msgspec.Struct, frozen=True):
    """A write that was made: the state it left and the event that tells of it."""

    key: str
    version: str
    event: ObjectEvent
    reported: bool = True
    """False if the event could not be reported yet; the note sees to it."""


class Read(msgspec.Struct, frozen=True):
    """An object as read: the body and what goes with it."""

    key: str
    body: bytes
    version: str
    stored_at: float
    content_type: str
    metadata: dict[str, str]
    hops: int = 0
    """In how many hops of a chain of events it was written, as its writer stamped it."""


def check_object_key(key: str) -> str:
    """Raise `Invalid` unless a user may give an object this key."""
    if not isinstance(key, str):
        raise Invalid(f"an object's key must be text, not {key!r}")
    check_key(key)
    if is_bookkeeping(key):
        raise Invalid(f"{key!r} is among BucketMQ's own keys ({key.split('/', 1)[0]}/); use another prefix")
    return key


def attributes_of(content_type: str | None, metadata: Mapping[str, str] | None, cause: Cause, **own: str) -> Attributes:
    """What goes beside the bytes of a write of ours."""
    kept = {name.lower(): value for name, value in (metadata or {}).items() if name.lower() not in OWN_METADATA}
    kept.update({name.replace("_", "-"): value for name, value in own.items()})
    if cause.hops:
        kept[HOPS] = str(cause.hops)
        kept[LINEAGE] = _fitting(cause.lineage, METADATA_BYTES_MAX - _size(kept) - len(LINEAGE))
    return Attributes(content_type or "application/octet-stream", kept)


def _size(metadata: Mapping[str, str]) -> int:
    return sum(len(name) + len(value) for name, value in metadata.items())


def _fitting(lineage: tuple[str, ...], bytes_max: int) -> str:
    """As many of the nearest ancestors as there is room for: the hops are counted apart."""
    while lineage and len(",".join(lineage)) > bytes_max:
        lineage = lineage[1:]
    return ",".join(lineage)


def read_object(bucket: OpenBucket, key: str) -> Procedure[Read]:
    """The object, or `NotFound`. One GET."""
    found = yield from get(full_key(bucket, check_object_key(key)))
    if isinstance(found, Missing):
        raise NotFound(f"there is no object {key!r}; it may have been moved or deleted since")
    kept = {name: value for name, value in found.attributes.metadata.items() if name not in OWN_METADATA}
    version = plain_version(found.version)
    hops = hops_of(found.attributes)
    return Read(key, found.body, version, found.stored_at, found.attributes.content_type, kept, hops)


def hops_of(attributes: Attributes) -> int:
    """In which hop of a chain of events an object was written, as its writer stamped it; 0 if it did not."""
    text = attributes.metadata.get(HOPS, "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0


def put(
    bucket: OpenBucket,
    key: str,
    body: bytes,
    *,
    content_type: str | None = None,
    metadata: Mapping[str, str] | None = None,
    only_new: bool = False,
    if_version: str | None = None,
    cause: Cause = NO_CAUSE,
) -> Procedure[Stored]:
    """Write an object and report it. Three PUTs (note, object, event), one HEAD and one DELETE.

    With `only_new` an object that is there is `Contended`; with `if_version` any other state than that one is.
    """
    full = full_key(bucket, check_object_key(key))
    write: str = yield NewId()
    note = Note(verb="put", key=key, write=write, cause=cause)
    attributes = attributes_of(content_type, metadata, cause, bucketmq_write=write)
    check_attributes(attributes)
    yield from _announce(bucket, note)
    try:
        kind, version, stored_at = yield from _write(full, body, attributes, only_new=only_new, if_version=if_version)
    except Contended:
        yield from _withdraw(bucket, note)
        raise
    event = yield from _told(
        bucket, note, kind, key, version, stored_at=stored_at, size_bytes=len(body), attributes=attributes
    )
    reported = yield from _report(bucket, note, event)
    return Stored(key, plain_version(version), event, reported)


def _write(
    full: str, body: bytes, attributes: Attributes, *, only_new: bool, if_version: str | None
) -> Procedure[tuple[Kind, Version, float]]:
    """Write over whatever is there, or not, under the caller's condition. Our own write is known by its id."""
    patience = Patience(f"writing {full}")
    first = True
    while True:
        found = yield from look(full)
        if isinstance(found, Found) and not first and is_ours(found, attributes):
            return "changed", found.version, found.stored_at
        if isinstance(found, Found) and only_new:
            raise Contended(f"there is an object at {full} already; choose another key or write over it")
        if if_version is not None and (isinstance(found, Missing) or plain_version(found.version) != if_version):
            raise Contended(f"{full} is not at version {if_version} any more; read it again and decide anew")
        began: float = yield Now()
        if isinstance(found, Missing):
            kind: Kind = "created"
            reply: Written | Refused | Unknown = yield Create(full, body, attributes)
        else:
            kind = "changed"
            reply = yield Replace(full, body, found.version, attributes)
        if isinstance(reply, Written):
            return kind, reply.version, (yield from _stored_at(full, attributes, reply, began))
        first = False
        after = yield from look(full)
        if isinstance(after, Found) and is_ours(after, attributes):
            return kind, after.version, after.stored_at
        yield from patience.again(reply)


def _stored_at(full: str, attributes: Attributes, written: Written, began: float) -> Procedure[float]:
    """When a write of ours landed. Where the store's answer does not tell: about now, unless the answer took long; then
    the object is asked, and if it is another's by now, it was after we began."""
    if written.stored_at is not None:
        return written.stored_at
    now: float = yield Now()
    if now - began <= QUICK_SECONDS:
        return now
    found = yield from look(full)
    return found.stored_at if isinstance(found, Found) and is_ours(found, attributes) else began


def is_ours(found: Found | Object, attributes: Attributes) -> bool:
    """Whether the state was written with these attributes: their write id says so."""
    return found.attributes.metadata.get(WRITE) == attributes.metadata[WRITE]


def remove(bucket: OpenBucket, key: str, *, if_version: str | None = None, cause: Cause = NO_CAUSE) -> Procedure[bool]:
    """Delete an object and report it; False if there was none. Two PUTs, one HEAD and two DELETEs."""
    full = full_key(bucket, check_object_key(key))
    found = yield from look(full)
    if isinstance(found, Missing):
        return False
    if if_version is not None and plain_version(found.version) != if_version:
        raise Contended(f"{full} is not at version {if_version} any more; read it again and decide anew")
    write: str = yield NewId()
    note = Note(verb="delete", key=key, write=write, version=found.version, cause=cause)
    yield from _announce(bucket, note)
    began: float = yield Now()
    if if_version is None:
        yield from delete(full)
    elif (yield from _remove_state(full, found.version)) == "changed":
        yield from _withdraw(bucket, note)
        raise Contended(f"{full} is not at version {if_version} any more; read it again and decide anew")
    event = yield from _told(bucket, note, "deleted", key, found.version, since=began)
    yield from _report(bucket, note, event)
    return True


def _remove_state(full: str, version: Version) -> Procedure[Literal["removed", "elsewhere", "changed", "unclear"]]:
    """Remove one state of an object. `elsewhere` if it is gone and it was not us; `changed` if another state is there
    and it was not us who removed this one; `unclear` if a request of ours without an answer may have removed it before
    the other came."""
    patience = Patience(f"removing {full}")
    doubtful = False
    while True:
        reply: Removed | Refused | Unknown = yield Remove(full, version)
        if isinstance(reply, Removed):
            return "removed"
        doubtful = doubtful or isinstance(reply, Unknown)
        found = yield from look(full)
        if isinstance(found, Missing):
            return "removed" if doubtful else "elsewhere"
        if found.version != version:
            return "unclear" if doubtful else "changed"
        yield from patience.again(reply)


def move(
    bucket: OpenBucket,
    key: str,
    target: str,
    *,
    if_version: str | None = None,
    replace: bool = False,
    cause: Cause = NO_CAUSE,
) -> Procedure[Stored]:
    """Move an object to another key and report one `moved` event. May be repeated after a crash at any point.

    One GET, three PUTs (note, target, event) and two DELETEs; where the store can rename, one request instead of the
    target and the source. `Contended` if the source is not (or no longer) at `if_version`; `Invalid` if a different
    object is at the target, unless `replace`; `NotFound` if there is neither a source nor a target that came from it.
    """
    full, full_target = full_key(bucket, check_object_key(key)), full_key(bucket, check_object_key(target))
    if key == target:
        raise Invalid(f"{key!r} cannot be moved to itself; name another key")
    found = yield from get(full)
    if isinstance(found, Missing) or (if_version is not None and plain_version(found.version) != if_version):
        return (yield from _moved_before(bucket, key, target, if_version, found, cause=cause))
    write: str = yield NewId()
    note = Note(verb="move", key=key, target=target, write=write, version=found.version, cause=cause)
    yield from _announce(bucket, note)
    mark = origin_mark(key, found.version)
    try:
        if bucket.renames and not replace:
            version = yield from _rename(full, full_target, found)
            copied: _Copied | None = _Copied(version, _rename_id(bucket, note, version))
        else:
            copied = yield from _copy_and_remove(full, full_target, found, note, mark, replace=replace)
    except (Invalid, Contended, NotFound):
        yield from _withdraw(bucket, note)
        raise
    if copied is None:  # what is at the target stays there; the note sees to it that it is told of
        raise Contended(f"{full} was changed while it was moved; a newer event tells of what is there now")
    event = yield from _told(
        bucket,
        msgspec.structs.replace(note, write=copied.write),
        "moved",
        target,
        copied.version,
        stored_at=copied.stored_at,
        size_bytes=len(found.body),
        attributes=found.attributes,
    )
    reported = yield from _report(bucket, note, event)
    return Stored(target, plain_version(copied.version), event, reported)


class _Copied(msgspec.Struct, frozen=True):
    """The target of a move that is done, and the id of the write that made it: ours, or that of another attempt."""

    version: Version
    write: str
    stored_at: float | None = None


def origin_mark(key: str, version: str) -> str:
    """How a target names the state it was moved from."""
    return hashlib.sha256(f"{key}\0{plain_version(version)}".encode()).hexdigest()[:32]


def _moved_before(
    bucket: OpenBucket, key: str, target: str, if_version: str | None, found: Object | Missing, *, cause: Cause
) -> Procedure[Stored]:
    """The source is gone or another: was it moved by an earlier attempt? Then say so once more, with the same id."""
    there = yield from look(full_key(bucket, target))
    mark = None if if_version is None else origin_mark(key, if_version)
    if isinstance(there, Found) and mark is not None and there.attributes.metadata.get(FROM) == mark:
        write = there.attributes.metadata.get(WRITE, "")
        note = Note(verb="move", key=key, target=target, write=write, version=if_version, cause=cause)
        event = yield from _told(
            bucket, note, "moved", target, there.version, stored_at=there.stored_at, attributes=there.attributes
        )
        yield from report(bucket, [event])
        return Stored(target, plain_version(there.version), event)
    if isinstance(found, Missing):
        if isinstance(there, Found) and (left := (yield from _left_note(bucket, key, target, if_version))) is not None:
            moved = yield from _finish_move(bucket, left, found)
            if moved is not None:
                reported = yield from _report(bucket, left, moved)
                return Stored(target, plain_version(there.version), moved, reported)
        raise NotFound(f"there is no object {key!r} to move to {target!r}; it may have been moved or deleted since")
    raise Contended(f"{key!r} is not at version {if_version} any more; a newer event tells of what is there now")


def _left_note(bucket: OpenBucket, key: str, target: str, if_version: str | None) -> Procedure[Note | None]:
    """The note of an attempt at the same move that was not finished, if there is one."""
    entries, _ = yield from list_all(EventKeys(bucket.prefix).notes, pages_max=1)
    for entry in entries:
        note = yield from _read_note(entry.key)
        if note is None or (note.verb, note.key, note.target) != ("move", key, target):
            continue
        if if_version is None or (note.version is not None and plain_version(note.version) == if_version):
            return note
    return None


def _rename(full: str, full_target: str, found: Object) -> Procedure[Version]:
    patience = Patience(f"renaming {full}")
    doubtful = False
    while True:
        reply: Removed | Refused | Unknown = yield Rename(full, full_target, found.version)
        doubtful = doubtful or isinstance(reply, Unknown)
        source = yield from look(full)
        there = yield from look(full_target)
        if isinstance(reply, Removed) or (doubtful and isinstance(source, Missing)):
            return there.version if isinstance(there, Found) else found.version
        if isinstance(source, Missing):
            raise NotFound(f"there is no object at {full} any more; it was moved or deleted at the same time")
        if source.version != found.version:
            if doubtful and isinstance(there, Found) and there.attributes == found.attributes:
                return there.version  # it was moved, and somebody wrote the source anew
            raise Contended(f"{full} was changed while it was moved; a newer event tells of what is there now")
        if isinstance(reply, Refused) and isinstance(there, Found):
            raise Invalid(f"there is another object at {full_target}; it was not touched: choose another key")
        yield from patience.again(reply)


def _rename_id(bucket: OpenBucket, note: Note, version: Version) -> str:
    """What stands for the write in the event of a rename: the state it left, where that belongs to it alone. What a
    store renamed does not tell by which attempt, and so all attempts tell the same event."""
    return f"renamed-{plain_version(version)}" if bucket.exact_versions else note.write


def _copy_and_remove(
    full: str, full_target: str, found: Object, note: Note, mark: str, *, replace: bool
) -> Procedure[_Copied | None]:
    """Make the target, remove the source. None if the source was changed and what is at the target stays there."""
    metadata = {**found.attributes.metadata}
    attributes = attributes_of(
        found.attributes.content_type, metadata, note.cause, bucketmq_write=note.write, bucketmq_from=mark
    )
    if not note.cause.hops and HOPS in metadata:  # a move by hand keeps the chain it found
        attributes = msgspec.structs.replace(
            attributes,
            metadata={**attributes.metadata, HOPS: metadata[HOPS], LINEAGE: metadata.get(LINEAGE, "")},
        )
    made = yield from _make_target(full, full_target, found, attributes, replace=replace)
    if not made.ours:
        return _Copied(made.version, made.write, made.stored_at)
    removed = yield from _remove_state(full, found.version)
    if removed == "removed":
        return _Copied(made.version, note.write, made.stored_at)
    there = yield from look(full_target)
    if removed == "elsewhere":
        if isinstance(there, Found) and there.attributes.metadata.get(FROM) == mark:
            return _Copied(there.version, there.attributes.metadata.get(WRITE, note.write), there.stored_at)
        return _Copied(made.version, note.write, made.stored_at)
    # The source was changed. What we wrote is of a state that nobody has any more; it goes, but only if it cannot be
    # the only copy: if we made it where nothing was, and nobody who goes on with the same move has written it anew.
    may_go = removed == "changed" and made.fresh and isinstance(there, Found) and is_ours(there, attributes)
    if may_go and (yield from _remove_state(full_target, made.version)) == "removed":
        raise Contended(f"{full} was changed while it was moved; a newer event tells of what is there now")
    return None


class _Target(msgspec.Struct, frozen=True):
    """The target of a move, made."""

    version: Version
    write: str
    stored_at: float
    ours: bool = True
    fresh: bool = True
    """Whether we made it where nothing was."""


def _make_target(
    full: str, full_target: str, source: Object, attributes: Attributes, *, replace: bool
) -> Procedure[_Target]:
    """Make sure the target holds the state of the source, written by us.

    The copy of another attempt at the same move is written anew, so that its maker does not take it away any more. If
    the source is gone by then, that attempt is through, and its copy stays as it is.
    """
    patience = Patience(f"writing {full_target}")
    write, mark = attributes.metadata[WRITE], attributes.metadata[FROM]
    fresh = True
    while True:
        found = yield from look(full_target)
        if isinstance(found, Found) and is_ours(found, attributes):
            return _Target(found.version, write, found.stored_at, fresh=fresh)
        if isinstance(found, Found) and found.attributes.metadata.get(FROM) == mark:
            if isinstance((yield from look(full)), Missing):
                made_by = found.attributes.metadata.get(WRITE, "")
                return _Target(found.version, made_by, found.stored_at, ours=False)
        elif isinstance(found, Found) and not replace:
            raise Invalid(
                f"there is another object at {full_target}, which does not come from this one; it was not touched: "
                "choose another key, or say replace=True"
            )
        elif isinstance(found, Found):
            # Looked at after the target: if another attempt moved the source by now, what is at the target may be what
            # came after it, and must not be replaced by what went before.
            current = yield from look(full)
            if isinstance(current, Missing) or current.version != source.version:
                raise Contended(f"{full} was moved or changed meanwhile; a newer event tells of what is there now")
        began: float = yield Now()
        if isinstance(found, Missing):
            reply: Written | Refused | Unknown = yield Create(full_target, source.body, attributes)
        else:
            fresh = False
            reply = yield Replace(full_target, source.body, found.version, attributes)
        if isinstance(reply, Written):
            landed = yield from _stored_at(full_target, attributes, reply, began)
            return _Target(reply.version, write, landed, fresh=fresh)
        yield from patience.again(reply)


def _told(
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
    """The event of a write of ours. Whoever tells of the same write gives it the same id.

    `since`: a deletion happened at some time from then to now. If that is long, the event says so.
    """
    now: float = yield Now()
    kept = None
    if attributes is not None:
        kept = {name: value for name, value in attributes.metadata.items() if name not in OWN_METADATA}
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
        metadata=kept,
        from_key=note.key if kind == "moved" else None,
        seen_at=time_text(since) if since is not None and now - since > QUICK_SECONDS else None,
        hops=note.cause.hops,
        lineage=note.cause.lineage,
    )


def _announce(bucket: OpenBucket, note: Note) -> Procedure[None]:
    yield from create_named(EventKeys(bucket.prefix).note(note.write), documents.encode(note))


def _withdraw(bucket: OpenBucket, note: Note) -> Procedure[None]:
    yield from delete(EventKeys(bucket.prefix).note(note.write))


def _report(bucket: OpenBucket, note: Note, event: ObjectEvent) -> Procedure[bool]:
    """Report, then forget the note. The write itself is done: if reporting fails, the note stays and sees to it."""
    try:
        yield from report(bucket, [event])
        yield from _withdraw(bucket, note)
    except BucketMQError as error:
        log.warning("action=report_failed key=%s kind=%s %s", event.key, error.kind, error)
        return False
    return True


class Recovered(msgspec.Struct, frozen=True):
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
    now: float = yield Now()
    reported = dropped = 0
    for entry in entries:
        age = now - entry.stored_at
        if age < NOTE_SECONDS:
            continue
        note = yield from _read_note(entry.key)
        if note is None:
            continue
        event = yield from _what_happened(bucket, note, entry.stored_at, over=age >= NOTE_KEEP_SECONDS)
        if event is None and age < NOTE_KEEP_SECONDS:
            continue
        reported += (yield from report(bucket, [event])) if event is not None else 0
        dropped += event is None
        yield from delete(entry.key)
    return Recovered(len(entries), reported, dropped)


def _read_note(key: str) -> Procedure[Note | None]:
    """A note, or None if it is gone or nobody can read it: that one must not stop the others."""
    found = yield from get(key)
    if isinstance(found, Missing):
        return None
    try:
        return documents.decode(Note, found.body, key)
    except Corrupt as error:
        log.warning("action=note_unreadable key=%s %s", key, error)
        return None


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
                return _observed(bucket, note.key, found) if over else None
            return (
                yield from _told(
                    bucket,
                    note,
                    "changed",
                    note.key,
                    found.version,
                    stored_at=found.stored_at,
                    size_bytes=found.size_bytes,
                    attributes=found.attributes,
                )
            )
        case "delete":
            if isinstance(found, Found):
                return None
            return (
                yield from _told(bucket, note, "deleted", note.key, Version(note.version or ""), since=announced_at)
            )
        case "move":
            return (yield from _finish_move(bucket, note, found))


def _finish_move(bucket: OpenBucket, note: Note, source: Found | Missing) -> Procedure[ObjectEvent | None]:
    assert note.target is not None and note.version is not None
    target, version = note.target, Version(note.version)
    there = yield from look(full_key(bucket, target))
    came = isinstance(there, Found) and there.attributes.metadata.get(FROM) == origin_mark(note.key, version)
    if isinstance(source, Found) and not came:
        return None
    if isinstance(source, Found) and source.version == version:
        there = yield from _complete(bucket, note, version, target)
        if isinstance(there, Missing):
            return None  # somebody is at it; the note stays
    if isinstance(there, Found) and came:
        note = msgspec.structs.replace(note, write=there.attributes.metadata.get(WRITE, note.write))
        return (
            yield from _told(
                bucket, note, "moved", target, there.version, stored_at=there.stored_at, attributes=there.attributes
            )
        )
    if isinstance(there, Found) and bucket.renames:
        note = msgspec.structs.replace(note, write=_rename_id(bucket, note, there.version))
        return (
            yield from _told(
                bucket, note, "moved", target, there.version, stored_at=there.stored_at, attributes=there.attributes
            )
        )
    # The source is gone, and the target is another's: moved and taken from there, or never moved and deleted. Nobody
    # can tell, so no move is told of; what is at the target is news enough.
    return _observed(bucket, target, there) if isinstance(there, Found) else None


def _complete(bucket: OpenBucket, note: Note, version: Version, target: str) -> Procedure[Found | Missing]:
    """Remove the source of a move whose target is made, and look at the target; missing if it was changed meanwhile.

    The target is written anew first, so that its maker does not take it away any more; by all who recover it under the
    same id, so that they tell the same event.
    """
    full_target = full_key(bucket, target)
    made = yield from get(full_target)
    if isinstance(made, Missing) or made.attributes.metadata.get(FROM) != origin_mark(note.key, version):
        return Missing()
    metadata = {**made.attributes.metadata, WRITE: f"{note.write}-again"}
    attributes = msgspec.structs.replace(made.attributes, metadata=metadata)
    yield Replace(full_target, made.body, made.version, attributes)
    there = yield from look(full_target)
    if isinstance(there, Missing) or not is_ours(there, attributes):
        return Missing()
    yield from _remove_state(full_key(bucket, note.key), version)
    return there


def _observed(bucket: OpenBucket, key: str, found: Found) -> ObjectEvent:
    """The event of a state that was seen, as the sweep tells it: whoever tells of the same state gives the same id."""
    item = inventory.Item(key, found.version, found.stored_at, found.size_bytes)
    return inventory.there(item, exact=bucket.exact_versions, changed=True)
