"""Copying users' own objects, inside the store where it can, and reporting it.

A copy is a put of its target: noted, conditional, recognised by its write's id, and recovered as one. Where the store
copies under conditions (`bucket.port`, contract 18) the bytes do not go through this process, whatever their size;
elsewhere the object is read and written. A store may find out only when it is asked that it cannot copy: it has done
nothing then, this goes on by reading, and the bucket remembers it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import msgspec

from bucketmq.bucket.port import Attributes, Found, Missing, Object, Refused, Unknown, Written
from bucketmq.errors import BucketMQError, Contended, Invalid, NotFound, Unsupported
from bucketmq.events.event import Kind, ObjectEvent, plain_version
from bucketmq.procedures.abreast import abreast
from bucketmq.procedures.objects.batches import (
    Failed,
    Stored,
    Write,
    carry_out,
    check_distinct,
    in_batches,
    in_turn,
    only,
)
from bucketmq.procedures.objects.keys import check_object_key, full_key
from bucketmq.procedures.objects.metadata import NO_CAUSE, Cause, attributes_of, is_ours
from bucketmq.procedures.objects.notes import Note, told
from bucketmq.procedures.objects.put import landed_at
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Copy, Create, NewId, Now, Procedure, Replace
from bucketmq.procedures.verbs import Patience, get, look


def copy(
    bucket: OpenBucket,
    key: str,
    target: str,
    *,
    if_version: str | None = None,
    replace: bool = False,
    cause: Cause = NO_CAUSE,
) -> Procedure[Stored]:
    """Copy an object with its content type and metadata to another key, and report it.

    Where the store copies one HEAD, three PUTs (note, copy, event) and one DELETE; elsewhere a GET in place of the
    HEAD. `Contended` if the source is not at `if_version`, or is changed meanwhile; `Invalid` if there is an object at
    the target, unless `replace`, which reads the source; `NotFound` if there is no source.
    """
    source = yield from _source(bucket, key, target, if_version)
    write = yield from _write(bucket, (key, target), source, replace=replace, cause=cause)
    return only((yield from carry_out(bucket, [write])))


class Decided(msgspec.Struct, frozen=True):
    """What a copy was decided on, and what goes beside it. If either object is in another state, it is `Contended`."""

    source: Found
    there: Found | Missing
    """The target, which this replaces if there is one."""
    attributes: Attributes
    cause: Cause = NO_CAUSE


class Copying(msgspec.Struct, frozen=True):
    """One object of `copy_many`."""

    key: str
    target: str
    size_bytes: int = 0
    """What it is known to have: where the store does not copy, so much is in memory."""
    decided: Decided | None = None
    """If the caller has looked at both objects."""

    @property
    def is_read(self) -> bool:
        """Whether the bytes come through this process even where the store copies."""
        return self.decided is not None and isinstance(self.decided.there, Found)


def copy_many(
    bucket: OpenBucket, copies: Sequence[Copying], *, cause: Cause = NO_CAUSE
) -> Procedure[list[Stored | Failed]]:
    """Copy objects to keys that are free, and report them together; what became of each, in the same order.

    Where the store copies one HEAD and one PUT each; elsewhere a GET in place of the HEAD. For each 500 objects or
    32 MiB two PUTs and a DELETE. What was `decided` is not looked at again, and may replace an object: that is read.
    """
    check_distinct([each.target for each in copies], "the target")

    def carry(batch: Sequence[Copying]) -> Procedure[list[Stored | BucketMQError]]:
        sources = yield from abreast([_source_of_one(bucket, each) for each in batch])
        writes: list[Write | BucketMQError] = []
        for each, source in zip(batch, sources, strict=True):
            if isinstance(source, BucketMQError):
                writes.append(source)
                continue
            way, decided = (each.key, each.target), each.decided
            its = cause if decided is None else decided.cause
            writes.append((yield from _write(bucket, way, source, replace=False, cause=its, decided=decided)))
        return (yield from carry_out(bucket, writes))

    # The first shows whether the store copies. If it does not, only so much may be read at a time.
    first = 1 if bucket.copies and not bucket.has_copied else 0
    rest = in_batches(copies[first:], lambda each: 0 if bucket.copies and not each.is_read else each.size_bytes)
    return (yield from in_turn(chain(in_batches(copies[:first]), rest), carry, lambda each: each.target))


def _source_of_one(bucket: OpenBucket, wanted: Copying) -> Procedure[Object | Found]:
    if wanted.decided is None:
        return (yield from _source(bucket, wanted.key, wanted.target))
    return wanted.decided.source


def _source(bucket: OpenBucket, key: str, target: str, if_version: str | None = None) -> Procedure[Object | Found]:
    full = full_key(bucket, check_object_key(key))
    check_object_key(target)
    if key == target:
        raise Invalid(f"{key!r} cannot be copied to itself; name another key")
    source: Object | Found | Missing = yield from source_of(bucket, full)
    if isinstance(source, Missing):
        raise NotFound(f"there is no object {key!r} to copy to {target!r}; it may have been moved or deleted since")
    if if_version not in (None, plain_version(source.version)):
        raise Contended(f"{key!r} is not at version {if_version} any more; read it again, and decide by what is there")
    return source


def _write(
    bucket: OpenBucket,
    way: tuple[str, str],
    source: Object | Found,
    *,
    replace: bool,
    cause: Cause,
    decided: Decided | None = None,
) -> Procedure[Write]:
    key, target = way
    write = yield from NewId()
    note = Note(verb="put", key=target, write=write, cause=cause)
    return Write(note, _act(bucket, note, full_key(bucket, key), source, replace=replace, decided=decided))


def source_of(bucket: OpenBucket, full: str) -> Procedure[Object | Found | Missing]:
    """What is to be copied: without its body, where the store does not need us for that."""
    return (yield from (look(full) if bucket.copies else get(full)))


def _act(
    bucket: OpenBucket,
    note: Note,
    full: str,
    source: Object | Found,
    *,
    replace: bool,
    decided: Decided | None,
) -> Procedure[ObjectEvent]:
    beside = source.attributes if decided is None else decided.attributes
    attributes = attributes_of(beside.content_type, beside.metadata, note.cause, bucketmq_write=note.write)
    full_target = full_key(bucket, note.key)
    patience = Patience(f"copying {full} to {full_target}")
    # Free, as a rule; otherwise the write is refused, and looks.
    found: Found | Missing = Missing() if decided is None else decided.there
    while True:
        began = yield from Now()
        if isinstance(found, Missing):
            kind: Kind = "created"
            reply = yield from create_from(bucket, full, full_target, source, attributes)
        else:
            kind = "changed"
            source = yield from with_body(full, source)
            reply = yield from Replace(full_target, source.body, found.version, attributes)
        if isinstance(reply, Written):
            version, stored_at = reply.version, (yield from landed_at(full_target, attributes, reply, began))
            break
        found = yield from look(full_target)
        if isinstance(found, Found) and is_ours(found, attributes):
            version, stored_at = found.version, found.stored_at
            break
        if decided is not None and found != decided.there:
            raise Contended(f"{full_target} was written meanwhile; look at it again, and decide by what is there")
        if isinstance(found, Found) and decided is None and not replace:
            raise Invalid(
                f"there is an object at {full_target}; it was not touched: choose another key, or say replace=True"
            )
        if isinstance(found, Missing) or kind == "changed":
            yield from patience.again(reply)
            found = (yield from look(full_target)) if decided is None else decided.there
    size = len(source.body) if isinstance(source, Object) else source.size_bytes
    return (
        yield from told(
            bucket, note, kind, note.key, version, stored_at=stored_at, size_bytes=size, attributes=attributes
        )
    )


def create_from(
    bucket: OpenBucket, full: str, full_target: str, source: Object | Found, attributes: Attributes
) -> Procedure[Written | Refused | Unknown]:
    """Create a target that holds the bytes of a source: of the body that was read, or by the store itself. `Contended`
    if the source is not in that state any more and nothing is at the target."""
    if isinstance(source, Object):
        return (yield from Create(full_target, source.body, attributes))
    reply = yield from _create_unread(bucket, full, full_target, source, attributes)
    if isinstance(reply, Refused) and isinstance((yield from look(full_target)), Missing):
        current = yield from look(full)
        if isinstance(current, Missing) or current.version != source.version:
            raise Contended(f"{full} was changed while it was copied; a newer event reports what is there now")
    return reply


def _create_unread(
    bucket: OpenBucket, full: str, full_target: str, source: Found, attributes: Attributes
) -> Procedure[Written | Refused | Unknown]:
    if bucket.copies:
        try:
            reply = yield from Copy(full, full_target, source, attributes)
        except Unsupported:  # nothing was written
            bucket.copies = False
        else:
            bucket.has_copied = True
            return reply
    found = yield from get(full)
    if isinstance(found, Missing) or found.version != source.version:
        return Refused()
    return (yield from Create(full_target, found.body, attributes))


def with_body(full: str, source: Object | Found) -> Procedure[Object]:
    """A state with its bytes, read if they were not. `Contended` if the object is in another one by now."""
    if isinstance(source, Object):
        return source
    found = yield from get(full)
    if isinstance(found, Missing) or found.version != source.version:
        raise Contended(f"{full} was changed while it was copied; a newer event reports what is there now")
    return found
