"""Writing users' own objects, and reporting it.

Every write is announced by a note (`procedures.objects.notes`) and conditional on the state it was decided on. A writer
recognises its own write by the id in the object's metadata, so a lost reply is neither an error nor a second write.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from bucketmq.bucket.port import Attributes, Found, Missing, Version, Written, check_attributes
from bucketmq.errors import Contended
from bucketmq.events.event import Kind, ObjectEvent, plain_version
from bucketmq.procedures.objects.keys import check_object_key, full_key
from bucketmq.procedures.objects.metadata import NO_CAUSE, Cause, attributes_of, is_ours
from bucketmq.procedures.objects.notes import QUICK_SECONDS, Note, announce, report_noted, told, withdraw
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Create, NewId, Now, Procedure, Replace
from bucketmq.procedures.verbs import Patience, look
from bucketmq.values import Value


class Stored(Value, msgspec.Struct, frozen=True):
    """A write that was made: the state it left and the event that tells of it."""

    key: str
    version: str
    event: ObjectEvent
    reported: bool = True
    """False if the event could not be reported yet; the note sees to it."""


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
    write = yield from NewId()
    note = Note(verb="put", key=key, write=write, cause=cause)
    attributes = attributes_of(content_type, metadata, cause, bucketmq_write=write)
    check_attributes(attributes)
    yield from announce(bucket, note)
    try:
        kind, version, stored_at = yield from _write(full, body, attributes, only_new=only_new, if_version=if_version)
    except Contended:
        yield from withdraw(bucket, note)
        raise
    event = yield from told(
        bucket, note, kind, key, version, stored_at=stored_at, size_bytes=len(body), attributes=attributes
    )
    reported = yield from report_noted(bucket, note, event)
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
            raise Contended(
                f"{full} is not at version {if_version} any more; read it again, and decide by what is there"
            )
        began = yield from Now()
        if isinstance(found, Missing):
            kind: Kind = "created"
            reply = yield from Create(full, body, attributes)
        else:
            kind = "changed"
            reply = yield from Replace(full, body, found.version, attributes)
        if isinstance(reply, Written):
            return kind, reply.version, (yield from landed_at(full, attributes, reply, began))
        first = False
        after = yield from look(full)
        if isinstance(after, Found) and is_ours(after, attributes):
            return kind, after.version, after.stored_at
        yield from patience.again(reply)


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
