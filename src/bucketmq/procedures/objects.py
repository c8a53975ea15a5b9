"""Users' own objects: put, read and delete them, and report what was done.

Every write is announced by a note (`procedures.notes`) and conditional on the state it was decided on. A writer
recognises its own write by the id in the object's metadata, so a lost reply is neither an error nor a second write.
Moving an object is `procedures.move_object`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from bucketmq.bucket.port import (
    Attributes,
    Found,
    Missing,
    Refused,
    Removed,
    Unknown,
    Version,
    Written,
    check_attributes,
    check_key,
)
from bucketmq.errors import Contended, Invalid, NotFound
from bucketmq.events.event import Kind, ObjectEvent, plain_version
from bucketmq.log.layout import is_bookkeeping
from bucketmq.procedures.events import full_key
from bucketmq.procedures.notes import QUICK_SECONDS, Note, announce, report_noted, told, withdraw
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Create, NewId, Now, Procedure, Remove, Replace
from bucketmq.procedures.stamps import NO_CAUSE, Cause, attributes_of, hops_of, is_ours, without_stamps
from bucketmq.procedures.verbs import Patience, delete, get, look


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


def read_object(bucket: OpenBucket, key: str) -> Procedure[Read]:
    """The object, or `NotFound`. One GET."""
    found = yield from get(full_key(bucket, check_object_key(key)))
    if isinstance(found, Missing):
        raise NotFound(f"there is no object {key!r}; it may have been moved or deleted since")
    kept = without_stamps(found.attributes.metadata)
    version = plain_version(found.version)
    hops = hops_of(found.attributes)
    return Read(key, found.body, version, found.stored_at, found.attributes.content_type, kept, hops)


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
            raise Contended(f"{full} is not at version {if_version} any more; read it again and decide anew")
        began: float = yield Now()
        if isinstance(found, Missing):
            kind: Kind = "created"
            reply: Written | Refused | Unknown = yield Create(full, body, attributes)
        else:
            kind = "changed"
            reply = yield Replace(full, body, found.version, attributes)
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
    now: float = yield Now()
    if now - began <= QUICK_SECONDS:
        return now
    found = yield from look(full)
    return found.stored_at if isinstance(found, Found) and is_ours(found, attributes) else began


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
    yield from announce(bucket, note)
    began: float = yield Now()
    if if_version is None:
        yield from delete(full)
    elif (yield from remove_state(full, found.version)) == "changed":
        yield from withdraw(bucket, note)
        raise Contended(f"{full} is not at version {if_version} any more; read it again and decide anew")
    event = yield from told(bucket, note, "deleted", key, found.version, since=began)
    yield from report_noted(bucket, note, event)
    return True


def remove_state(full: str, version: Version) -> Procedure[Literal["removed", "elsewhere", "changed", "unclear"]]:
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
