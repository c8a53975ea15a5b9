"""Deleting users' own objects, and reporting it; removing one state of an object and no other."""

from __future__ import annotations

from typing import Literal

from bucketmq.bucket.port import Missing, Removed, Unknown, Version
from bucketmq.errors import Contended
from bucketmq.events.event import plain_version
from bucketmq.procedures.objects.keys import check_object_key, full_key
from bucketmq.procedures.objects.metadata import NO_CAUSE, Cause
from bucketmq.procedures.objects.notes import Note, announce, report_noted, told, withdraw
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import NewId, Now, Procedure, Remove
from bucketmq.procedures.verbs import Patience, delete, look


def remove(bucket: OpenBucket, key: str, *, if_version: str | None = None, cause: Cause = NO_CAUSE) -> Procedure[bool]:
    """Delete an object and report it; False if there was none. Two PUTs, one HEAD and two DELETEs."""
    full = full_key(bucket, check_object_key(key))
    found = yield from look(full)
    if isinstance(found, Missing):
        return False
    if if_version is not None and plain_version(found.version) != if_version:
        raise Contended(f"{full} is not at version {if_version} any more; read it again, and decide by what is there")
    write = yield from NewId()
    note = Note(verb="delete", key=key, write=write, version=found.version, cause=cause)
    yield from announce(bucket, note)
    began = yield from Now()
    if if_version is None:
        yield from delete(full)
    elif (yield from remove_state(full, found.version)) == "changed":
        yield from withdraw(bucket, note)
        raise Contended(f"{full} is not at version {if_version} any more; read it again, and decide by what is there")
    event = yield from told(bucket, note, "deleted", key, found.version, since=began)
    yield from report_noted(bucket, note, event)
    return True


def remove_state(full: str, version: Version) -> Procedure[Literal["removed", "elsewhere", "changed", "unclear"]]:
    """Remove one state of an object. `elsewhere` if it is gone and it was not us; `changed` if another state is there
    and this one was not removed by us; `unclear` if a request of ours without an answer may have removed it before
    the other came."""
    patience = Patience(f"removing {full}")
    doubtful = False
    while True:
        reply = yield from Remove(full, version)
        if isinstance(reply, Removed):
            return "removed"
        doubtful = doubtful or isinstance(reply, Unknown)
        found = yield from look(full)
        if isinstance(found, Missing):
            return "removed" if doubtful else "elsewhere"
        if found.version != version:
            return "unclear" if doubtful else "changed"
        yield from patience.again(reply)
