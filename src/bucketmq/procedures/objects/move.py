"""Moving an object to another key, and going on with a move that somebody began.

A move creates the target, then removes the source, each with its condition. The target names the state it came from,
so repeating a move after a crash, anywhere, continues it. An object that is already at the target and came from
somewhere else is never destroyed. If the source was changed before it could be removed, the change stays where it is.

Where the store can rename, that is one request instead of two, which leaves no such mark. `move` decides that once,
and says so in its note; whatever goes on with the move goes by the note.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from bucketmq.bucket.port import Attributes, Found, Missing, Object, Refused, Removed, Unknown, Version, Written
from bucketmq.errors import BucketMQError, Contended, Invalid, NotFound
from bucketmq.events.event import ObjectEvent, plain_version
from bucketmq.log.layout import EventKeys
from bucketmq.procedures.abreast import abreast
from bucketmq.procedures.objects.batches import (
    Failed,
    Left,
    Open,
    Stored,
    Write,
    carry_out,
    check_distinct,
    in_batches,
    in_turn,
    only,
)
from bucketmq.procedures.objects.copy import create_from, source_of, with_body
from bucketmq.procedures.objects.keys import check_object_key, full_key
from bucketmq.procedures.objects.metadata import (
    AGAIN,
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
from bucketmq.procedures.objects.notes import Note, observed, read_note, report_noted, told
from bucketmq.procedures.objects.put import landed_at
from bucketmq.procedures.objects.remove import remove_state
from bucketmq.procedures.objects.report import report
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import NewId, Now, Procedure, Rename, Replace
from bucketmq.procedures.verbs import Patience, get, list_all, look

MOVES_MAX = 100
"""Objects that are moved at a time: where the store can neither rename nor copy, their bodies are in memory."""


class Move(msgspec.Struct, frozen=True):
    """One object of `move_many`: from where, to where, and under which condition."""

    key: str
    target: str
    if_version: str | None = None
    replace: bool = False
    cause: Cause = NO_CAUSE
    source: Object | Found | None = None
    """The object as it was just read, or looked at: then it is not again."""


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

    One GET, three PUTs (note, target, event) and two DELETEs. Where the store copies, a HEAD in place of the GET, and
    no bytes go through this process; where it renames, one request instead of the target and the source.

    `Contended` if the source is not (or no longer) at `if_version`; `Invalid` if a different object is at the target,
    unless `replace`; `NotFound` if there is neither a source nor a target that came from it.
    """
    wanted = Move(key, target, if_version, replace, cause)
    _check(wanted)
    return only((yield from _move_all(bucket, [wanted])))


def move_many(bucket: OpenBucket, moves: Sequence[Move]) -> Procedure[list[Stored | Failed]]:
    """Move objects and report it; what became of each, in the same order. Each as `move` does it.

    One GET, one PUT and one DELETE each, or a look in place of the GET where the store copies; where it can rename, two
    looks and a rename. For each batch of 100 two
    PUTs (note, events) and one DELETE.
    """
    for each in moves:
        _check(each)
    check_distinct([key for each in moves for key in (each.key, each.target)], "the key")

    batches = in_batches(moves, objects_max=MOVES_MAX)
    return (yield from in_turn(batches, partial(_move_all, bucket), lambda each: each.key))


def _check(wanted: Move) -> None:
    check_object_key(wanted.key)
    check_object_key(wanted.target)
    if wanted.key == wanted.target:
        raise Invalid(f"{wanted.key!r} cannot be moved to itself; name another key")


def _move_all(bucket: OpenBucket, moves: Sequence[Move]) -> Procedure[list[Stored | BucketMQError]]:
    sources = yield from abreast([_source(bucket, each) for each in moves])
    writes: list[Write | Stored | BucketMQError] = []
    for wanted, source in zip(moves, sources, strict=True):
        if not isinstance(source, Object | Found):
            writes.append(source)
            continue
        note = Note(
            verb="move",
            key=wanted.key,
            target=wanted.target,
            write=(yield from NewId()),
            version=source.version,
            renames=_renames(bucket, wanted),
            cause=wanted.cause,
        )
        writes.append(Write(note, _act(bucket, note, source, replace=wanted.replace)))
    return (yield from carry_out(bucket, writes))


def _renames(bucket: OpenBucket, wanted: Move) -> bool:
    return bucket.renames and not wanted.replace


def _source(bucket: OpenBucket, wanted: Move) -> Procedure[Object | Found | Stored]:
    """What is to be moved, with its body if that is needed; or what an earlier attempt at the same move has done."""
    if wanted.source is not None:
        return wanted.source
    full = full_key(bucket, wanted.key)
    found: Object | Found | Missing = yield from (look(full) if _renames(bucket, wanted) else source_of(bucket, full))
    if isinstance(found, Missing) or wanted.if_version not in (None, plain_version(found.version)):
        return (yield from _moved_before(bucket, wanted, found))
    return found


def _act(
    bucket: OpenBucket, note: Note, source: Object | Found, *, replace: bool
) -> Procedure[ObjectEvent | Open | Left]:
    """Do what a note says."""
    assert note.target is not None
    full, full_target = full_key(bucket, note.key), full_key(bucket, note.target)
    if note.renames:
        copied: _Copied | None = yield from _rename(full, full_target, source, note, exact=bucket.exact_versions)
    else:
        copied = yield from _copy_and_remove(bucket, source, note, replace=replace)
    if copied is None:  # what is at the target stays there; the note sees to it that it is reported
        return Left(Contended(f"{full} was changed while it was moved; a newer event reports what is there now"))
    event = yield from told(
        bucket,
        msgspec.structs.replace(note, write=copied.write),
        "moved",
        note.target,
        copied.version,
        stored_at=copied.stored_at,
        size_bytes=len(source.body) if isinstance(source, Object) else source.size_bytes,
        attributes=source.attributes,
    )
    if copied.doubtful:
        late = Note(verb="put", key=note.target, write=note.write, moved_from=note.key, cause=note.cause)
        return Open(event, late)
    return event


class _Copied(msgspec.Struct, frozen=True):
    """The target of a move that is done, and the id of the write that made it: ours, or that of another attempt."""

    version: Version
    write: str
    stored_at: float | None = None
    doubtful: bool = False
    """Whether the write of another attempt counts, and ours may still land over it."""


def _moved_before(bucket: OpenBucket, wanted: Move, found: Object | Found | Missing) -> Procedure[Stored]:
    """The source is gone or another: was it moved by an earlier attempt? Then say so once more, with the same id."""
    key, target, if_version = wanted.key, wanted.target, wanted.if_version
    there = yield from look(full_key(bucket, target))
    mark = None if if_version is None else origin_mark(key, if_version)
    if isinstance(there, Found) and mark is not None and there.attributes.metadata.get(FROM) == mark:
        write = there.attributes.metadata.get(WRITE, "")
        note = Note(verb="move", key=key, target=target, write=write, version=if_version, cause=wanted.cause)
        event = yield from told(
            bucket, note, "moved", target, there.version, stored_at=there.stored_at, attributes=there.attributes
        )
        yield from report(bucket, [event])
        return Stored(target, plain_version(there.version), event)
    if isinstance(found, Missing):
        if isinstance(there, Found) and (left := (yield from _left_note(bucket, key, target, if_version))) is not None:
            name, note = left
            moved = yield from finish_move(bucket, note, found)
            if moved is not None:
                reported = yield from report_noted(bucket, [moved], name)
                return Stored(target, plain_version(there.version), moved, reported)
        raise NotFound(f"there is no object {key!r} to move to {target!r}; it may have been moved or deleted since")
    raise Contended(f"{key!r} is not at version {if_version} any more; a newer event reports what is there now")


def _left_note(
    bucket: OpenBucket, key: str, target: str, if_version: str | None
) -> Procedure[tuple[str | None, Note] | None]:
    """The note of an attempt at the same move that was not finished, if there is one; with its name if it is of nothing
    else, so that it can be withdrawn."""
    keys = EventKeys(bucket.prefix)
    entries, _ = yield from list_all(keys.notes, pages_max=1)
    for entry in entries:
        noted = yield from read_note(entry.key)
        for note in noted.writes if noted is not None else ():
            if (note.verb, note.key, note.target) != ("move", key, target):
                continue
            if if_version is None or (note.version is not None and plain_version(note.version) == if_version):
                alone = noted is not None and len(noted.writes) == 1
                return (keys.note_name(entry.key) if alone else None), note
    return None


def _rename(full: str, full_target: str, found: Object | Found, note: Note, *, exact: bool) -> Procedure[_Copied]:
    """Have the store rename the object."""
    patience = Patience(f"renaming {full}")
    doubtful = False
    while True:
        reply: Removed | Refused | Unknown = yield from Rename(full, full_target, found.version)
        doubtful = doubtful or isinstance(reply, Unknown)
        there = yield from look(full_target)
        source: Found | Missing = Missing() if isinstance(reply, Removed) else (yield from look(full))
        if isinstance(reply, Removed) or (doubtful and isinstance(source, Missing)):
            version = there.version if isinstance(there, Found) else found.version
            return _Copied(version, _rename_id(note, version, exact=exact))
        if isinstance(source, Missing):
            raise NotFound(f"there is no object at {full} any more; it was moved or deleted at the same time")
        if source.version != found.version:
            if doubtful and isinstance(there, Found) and there.attributes == found.attributes:
                return _Copied(there.version, _rename_id(note, there.version, exact=exact))  # the source is a new one
            raise Contended(f"{full} was changed while it was moved; a newer event reports what is there now")
        if isinstance(reply, Refused) and isinstance(there, Found):
            raise Invalid(f"there is another object at {full_target}; it was not touched: choose another key")
        yield from patience.again(reply)


def _rename_id(note: Note, version: Version, *, exact: bool) -> str:
    """What stands for the write in the event of a rename: the state it left, where that belongs to it alone. A renamed
    object does not say by which attempt, and so all attempts report the same event."""
    return f"renamed-{plain_version(version)}" if exact else note.write


def _copy_and_remove(
    bucket: OpenBucket, found: Object | Found, note: Note, *, replace: bool
) -> Procedure[_Copied | None]:
    """Make the target, remove the source. None if the source was changed and what is at the target stays there."""
    assert note.target is not None
    full, full_target = full_key(bucket, note.key), full_key(bucket, note.target)
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
    made = yield from _make_target(bucket, full, full_target, found, attributes, replace=replace)
    if not made.ours:
        return _Copied(made.version, made.write, made.stored_at, made.doubtful)
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
    gone = may_go and (yield from remove_state(full_target, made.version)) == "removed"
    if gone:  # in doubt all the same, if a request had no answer: see `batches`
        raise Contended(f"{full} was changed while it was moved; a newer event reports what is there now")
    return None


class _Target(msgspec.Struct, frozen=True):
    """The target of a move, made."""

    version: Version
    write: str
    stored_at: float
    ours: bool = True
    fresh: bool = True
    """Whether we made it where nothing was."""
    doubtful: bool = False
    """Whether a request without an answer may still make it once more."""


def _make_target(
    bucket: OpenBucket, full: str, full_target: str, source: Object | Found, attributes: Attributes, *, replace: bool
) -> Procedure[_Target]:
    """Make sure the target holds the state of the source, written by us.

    The copy of another attempt at the same move is written again, so that its maker does not take it away any more. If
    the source is gone by then, that attempt is through, and its copy stays as it is.
    """
    patience = Patience(f"writing {full_target}")
    write, mark = attributes.metadata[WRITE], attributes.metadata[FROM]
    fresh, doubtful = True, False
    found: Found | Missing = Missing()  # as a rule; otherwise the write is refused, and looks
    while True:
        if isinstance(found, Found) and is_ours(found, attributes):
            return _Target(found.version, write, found.stored_at, fresh=fresh)
        if isinstance(found, Found) and found.attributes.metadata.get(FROM) == mark:
            if isinstance((yield from look(full)), Missing):
                made_by = found.attributes.metadata.get(WRITE, "")
                return _Target(found.version, made_by, found.stored_at, ours=False, doubtful=doubtful)
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
                raise Contended(f"{full} was moved or changed meanwhile; a newer event reports what is there now")
        began = yield from Now()
        if isinstance(found, Missing):
            reply = yield from create_from(bucket, full, full_target, source, attributes)
        else:
            fresh = False
            source = yield from with_body(full, source)
            reply = yield from Replace(full_target, source.body, found.version, attributes)
        if isinstance(reply, Written):
            landed = yield from landed_at(full_target, attributes, reply, began)
            return _Target(reply.version, write, landed, fresh=fresh)
        doubtful = doubtful or isinstance(reply, Unknown)
        taken = isinstance(found, Missing) and isinstance(reply, Refused)
        found = yield from look(full_target)
        if not (taken and isinstance(found, Found)):
            yield from patience.again(reply)
            found = yield from look(full_target)


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
    try:
        made = yield from get(full_target)
    except Invalid:  # too large to be read, so nobody can write it again: both stay, and other notes are recovered
        return Missing()
    if isinstance(made, Missing) or made.attributes.metadata.get(FROM) != origin_mark(note.key, version):
        return Missing()
    metadata = {**made.attributes.metadata, WRITE: note.write + AGAIN}
    attributes = msgspec.structs.replace(made.attributes, metadata=metadata)
    yield from Replace(full_target, made.body, made.version, attributes)
    there = yield from look(full_target)
    if isinstance(there, Missing) or not is_ours(there, attributes):
        return Missing()
    yield from remove_state(full_key(bucket, note.key), version)
    return there
