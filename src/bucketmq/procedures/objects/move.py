"""Moving an object to another key, and going on with a move that somebody began.

A move creates the target, then removes the source, each with its condition. The target names the state it came from,
so repeating a move after a crash, anywhere, continues it. An object that is already at the target and came from
somewhere else is never destroyed. If the source was changed before it could be removed, the change stays where it is.

Where the store can rename, that is one request instead of two, which leaves no such mark. `move` decides that once,
and says so in its note; whatever goes on with the move goes by the note.
"""

from __future__ import annotations

import msgspec

from bucketmq.bucket.port import (
    Attributes,
    Found,
    Missing,
    Object,
    Refused,
    Removed,
    Unknown,
    Version,
    Written,
)
from bucketmq.errors import Contended, Invalid, NotFound
from bucketmq.events.event import ObjectEvent, plain_version
from bucketmq.log.layout import EventKeys
from bucketmq.procedures.objects.keys import check_object_key, full_key
from bucketmq.procedures.objects.metadata import (
    FROM,
    HOPS,
    LINEAGE,
    NO_CAUSE,
    WRITE,
    Cause,
    attributes_of,
    is_ours,
    origin_mark,
)
from bucketmq.procedures.objects.notes import Note, announce, observed, read_note, report_noted, told, withdraw
from bucketmq.procedures.objects.put import Stored, landed_at
from bucketmq.procedures.objects.remove import remove_state
from bucketmq.procedures.objects.report import report
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Create, NewId, Now, Procedure, Rename, Replace
from bucketmq.procedures.verbs import Patience, get, list_all, look


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
    note = Note(
        verb="move",
        key=key,
        target=target,
        write=(yield from NewId()),
        version=found.version,
        renames=bucket.renames and not replace,
        cause=cause,
    )
    yield from announce(bucket, note)
    try:
        if note.renames:
            copied: _Copied | None = yield from _rename(full, full_target, found, note, exact=bucket.exact_versions)
        else:
            copied = yield from _copy_and_remove(full, full_target, found, note, replace=replace)
    except (Invalid, Contended, NotFound):
        yield from withdraw(bucket, note)
        raise
    if copied is None:  # what is at the target stays there; the note sees to it that it is reported
        raise Contended(f"{full} was changed while it was moved; a newer event tells of what is there now")
    event = yield from told(
        bucket,
        msgspec.structs.replace(note, write=copied.write),
        "moved",
        target,
        copied.version,
        stored_at=copied.stored_at,
        size_bytes=len(found.body),
        attributes=found.attributes,
    )
    reported = yield from report_noted(bucket, note, event)
    return Stored(target, plain_version(copied.version), event, reported)


class _Copied(msgspec.Struct, frozen=True):
    """The target of a move that is done, and the id of the write that made it: ours, or that of another attempt."""

    version: Version
    write: str
    stored_at: float | None = None


def _moved_before(
    bucket: OpenBucket, key: str, target: str, if_version: str | None, found: Object | Missing, *, cause: Cause
) -> Procedure[Stored]:
    """The source is gone or another: was it moved by an earlier attempt? Then say so once more, with the same id."""
    there = yield from look(full_key(bucket, target))
    mark = None if if_version is None else origin_mark(key, if_version)
    if isinstance(there, Found) and mark is not None and there.attributes.metadata.get(FROM) == mark:
        write = there.attributes.metadata.get(WRITE, "")
        note = Note(verb="move", key=key, target=target, write=write, version=if_version, cause=cause)
        event = yield from told(
            bucket, note, "moved", target, there.version, stored_at=there.stored_at, attributes=there.attributes
        )
        yield from report(bucket, [event])
        return Stored(target, plain_version(there.version), event)
    if isinstance(found, Missing):
        if isinstance(there, Found) and (left := (yield from _left_note(bucket, key, target, if_version))) is not None:
            moved = yield from finish_move(bucket, left, found)
            if moved is not None:
                reported = yield from report_noted(bucket, left, moved)
                return Stored(target, plain_version(there.version), moved, reported)
        raise NotFound(f"there is no object {key!r} to move to {target!r}; it may have been moved or deleted since")
    raise Contended(f"{key!r} is not at version {if_version} any more; a newer event tells of what is there now")


def _left_note(bucket: OpenBucket, key: str, target: str, if_version: str | None) -> Procedure[Note | None]:
    """The note of an attempt at the same move that was not finished, if there is one."""
    entries, _ = yield from list_all(EventKeys(bucket.prefix).notes, pages_max=1)
    for entry in entries:
        note = yield from read_note(entry.key)
        if note is None or (note.verb, note.key, note.target) != ("move", key, target):
            continue
        if if_version is None or (note.version is not None and plain_version(note.version) == if_version):
            return note
    return None


def _rename(full: str, full_target: str, found: Object, note: Note, *, exact: bool) -> Procedure[_Copied]:
    """Have the store rename the object."""
    patience = Patience(f"renaming {full}")
    doubtful = False
    while True:
        reply: Removed | Refused | Unknown = yield from Rename(full, full_target, found.version)
        doubtful = doubtful or isinstance(reply, Unknown)
        source = yield from look(full)
        there = yield from look(full_target)
        if isinstance(reply, Removed) or (doubtful and isinstance(source, Missing)):
            version = there.version if isinstance(there, Found) else found.version
            return _Copied(version, _rename_id(note, version, exact=exact))
        if isinstance(source, Missing):
            raise NotFound(f"there is no object at {full} any more; it was moved or deleted at the same time")
        if source.version != found.version:
            if doubtful and isinstance(there, Found) and there.attributes == found.attributes:
                return _Copied(there.version, _rename_id(note, there.version, exact=exact))  # the source is a new one
            raise Contended(f"{full} was changed while it was moved; a newer event tells of what is there now")
        if isinstance(reply, Refused) and isinstance(there, Found):
            raise Invalid(f"there is another object at {full_target}; it was not touched: choose another key")
        yield from patience.again(reply)


def _rename_id(note: Note, version: Version, *, exact: bool) -> str:
    """What stands for the write in the event of a rename: the state it left, where that belongs to it alone. A renamed
    object does not say by which attempt, and so all attempts report the same event."""
    return f"renamed-{plain_version(version)}" if exact else note.write


def _copy_and_remove(
    full: str, full_target: str, found: Object, note: Note, *, replace: bool
) -> Procedure[_Copied | None]:
    """Make the target, remove the source. None if the source was changed and what is at the target stays there."""
    mark = origin_mark(note.key, found.version)
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
    removed = yield from remove_state(full, found.version)
    if removed == "removed":
        return _Copied(made.version, note.write, made.stored_at)
    there = yield from look(full_target)
    if removed == "elsewhere":
        if isinstance(there, Found) and there.attributes.metadata.get(FROM) == mark:
            return _Copied(there.version, there.attributes.metadata.get(WRITE, note.write), there.stored_at)
        return _Copied(made.version, note.write, made.stored_at)
    # The source was changed. What we wrote is of a state that nobody has any more; it goes, but only if it cannot be
    # the only copy: if we made it where nothing was, and no other attempt at the same move has written it again.
    may_go = removed == "changed" and made.fresh and isinstance(there, Found) and is_ours(there, attributes)
    if may_go and (yield from remove_state(full_target, made.version)) == "removed":
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

    The copy of another attempt at the same move is written again, so that its maker does not take it away any more. If
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
        began = yield from Now()
        if isinstance(found, Missing):
            reply = yield from Create(full_target, source.body, attributes)
        else:
            fresh = False
            reply = yield from Replace(full_target, source.body, found.version, attributes)
        if isinstance(reply, Written):
            landed = yield from landed_at(full_target, attributes, reply, began)
            return _Target(reply.version, write, landed, fresh=fresh)
        yield from patience.again(reply)


def finish_move(bucket: OpenBucket, note: Note, source: Found | Missing) -> Procedure[ObjectEvent | None]:
    """The event of the move that a note announces, completed if its target is made; None if nobody can tell whether it
    was made, or somebody else is at it."""
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
    if isinstance(there, Found) and (came or note.renames):
        renamed = _rename_id(note, there.version, exact=bucket.exact_versions)
        write = there.attributes.metadata.get(WRITE, note.write) if came else renamed
        return (
            yield from told(
                bucket,
                msgspec.structs.replace(note, write=write),
                "moved",
                target,
                there.version,
                stored_at=there.stored_at,
                attributes=there.attributes,
            )
        )
    # The source is gone, and the target is another's: moved and taken from there, or never moved and deleted. Nobody
    # can tell, so no move is reported; what is at the target is news enough.
    return observed(bucket, target, there) if isinstance(there, Found) else None


def _complete(bucket: OpenBucket, note: Note, version: Version, target: str) -> Procedure[Found | Missing]:
    """Remove the source of a move whose target is made, and look at the target; missing if it was changed meanwhile.

    The target is written again first, so that its maker does not take it away any more; under the same id by every
    recovery, so that all of them report the same event.
    """
    full_target = full_key(bucket, target)
    made = yield from get(full_target)
    if isinstance(made, Missing) or made.attributes.metadata.get(FROM) != origin_mark(note.key, version):
        return Missing()
    metadata = {**made.attributes.metadata, WRITE: f"{note.write}-again"}
    attributes = msgspec.structs.replace(made.attributes, metadata=metadata)
    yield from Replace(full_target, made.body, made.version, attributes)
    there = yield from look(full_target)
    if isinstance(there, Missing) or not is_ours(there, attributes):
        return Missing()
    yield from remove_state(full_key(bucket, note.key), version)
    return there
