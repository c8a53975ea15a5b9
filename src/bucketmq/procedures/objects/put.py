"""Writing users' own objects, and reporting it.

Every write is announced by a note (`procedures.objects.notes`) and conditional on the state it was decided on. A writer
recognises its own write by the id in the object's metadata, so a lost reply is neither an error nor a second write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from bucketmq.bucket.port import Attributes, Found, Missing, Refused, Version, Written, check_attributes
from bucketmq.errors import BucketMQError, Contended, Invalid
from bucketmq.events.event import Kind, ObjectEvent, plain_version
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
from bucketmq.procedures.objects.notes import QUICK_SECONDS, Note, told
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Create, NewId, Now, Procedure, Replace
from bucketmq.procedures.verbs import Patience, look


class Put(msgspec.Struct, frozen=True):
    """One object of `put_many`: what to write where, and under which condition."""

    key: str
    body: object
    """Bytes, text, or anything else as JSON."""
    content_type: str | None = None
    metadata: Mapping[str, str] | None = None
    only_new: bool = False
    if_version: str | None = None
    cause: Cause = NO_CAUSE


class _Putting(msgspec.Struct, frozen=True):
    """An object that is to be written: what is wanted, its bytes, and what goes beside them."""

    wanted: Put
    body: bytes
    attributes: Attributes
    note: Note


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
    wanted = Put(key, body, content_type, metadata, only_new, if_version, cause)
    putting = yield from _putting(wanted)
    return only((yield from carry_out(bucket, [_write(bucket, putting, as_new=False)])))


def put_many(bucket: OpenBucket, objects: Sequence[Put]) -> Procedure[list[Stored | Failed]]:
    """Write objects and report them; what became of each, in the same order. Bodies are bytes.

    One PUT for an object that is new; one HEAD and one more PUT where there is one already. For each batch of 500
    objects or 32 MiB two PUTs (note, events) and one DELETE.
    """
    check_distinct([each.key for each in objects], "the key")
    putting: list[_Putting] = []
    for each in objects:
        putting.append((yield from _putting(each)))

    def carry(batch: Sequence[_Putting]) -> Procedure[list[Stored | BucketMQError]]:
        return carry_out(bucket, [_write(bucket, each, as_new=True) for each in batch])

    return (yield from in_turn(in_batches(putting, lambda each: len(each.body)), carry, lambda each: each.note.key))


def _putting(wanted: Put) -> Procedure[_Putting]:
    check_object_key(wanted.key)
    if not isinstance(wanted.body, bytes):
        raise Invalid(f"the body of {wanted.key!r} must be bytes here, not {type(wanted.body).__name__}")
    write = yield from NewId()
    note = Note(verb="put", key=wanted.key, write=write, cause=wanted.cause)
    attributes = attributes_of(wanted.content_type, wanted.metadata, wanted.cause, bucketmq_write=write)
    check_attributes(attributes)
    return _Putting(wanted, wanted.body, attributes, note)


def _write(bucket: OpenBucket, putting: _Putting, *, as_new: bool) -> Write:
    return Write(putting.note, _act(bucket, putting, as_new=as_new))


def _act(bucket: OpenBucket, putting: _Putting, *, as_new: bool) -> Procedure[ObjectEvent]:
    note, size, attributes = putting.note, len(putting.body), putting.attributes
    kind, version, at = yield from _place(full_key(bucket, note.key), putting, as_new=as_new)
    event = told(bucket, note, kind, note.key, version, stored_at=at, size_bytes=size, attributes=attributes)
    return (yield from event)


def _place(full: str, putting: _Putting, *, as_new: bool) -> Procedure[tuple[Kind, Version, float]]:
    """Write over whatever is there, or not, under the caller's condition. Our own write is known by its id.

    `as_new` writes first and looks when that is refused: one request instead of two where nothing is there.
    """
    patience = Patience(f"writing {full}")
    attributes, if_version = putting.attributes, putting.wanted.if_version
    as_new = as_new and if_version is None
    found: Found | Missing = Missing() if as_new else (yield from look(full))
    while True:
        if isinstance(found, Found) and putting.wanted.only_new:
            raise Contended(f"there is an object at {full} already; choose another key or write over it")
        if if_version is not None and (isinstance(found, Missing) or plain_version(found.version) != if_version):
            raise Contended(
                f"{full} is not at version {if_version} any more; read it again, and decide by what is there"
            )
        began = yield from Now()
        if isinstance(found, Missing):
            kind: Kind = "created"
            reply = yield from Create(full, putting.body, attributes)
        else:
            kind = "changed"
            reply = yield from Replace(full, putting.body, found.version, attributes)
        if isinstance(reply, Written):
            return kind, reply.version, (yield from landed_at(full, attributes, reply, began))
        found = yield from look(full)
        if isinstance(found, Found) and is_ours(found, attributes):
            return kind, found.version, found.stored_at
        if as_new and isinstance(found, Found) and isinstance(reply, Refused):
            as_new = False  # it is simply not new
            continue
        yield from patience.again(reply)
        found = yield from look(full)
        if isinstance(found, Found) and is_ours(found, attributes):
            return kind, found.version, found.stored_at


def landed_at(full: str, attributes: Attributes, written: Written, began: float) -> Procedure[float]:
    """When a write of ours landed. Where the store's answer does not tell: about now, unless the answer took long; then
    the object is asked, and if it is another's by now, it was after we began."""
    if written.stored_at is not None:
        return written.stored_at
    now = yield from Now()
    if now - began <= QUICK_SECONDS:
        return now
    found = yield from look(full)
    return found.stored_at if isinstance(found, Found) and is_ours(found, attributes) else began
