"""Deleting users' own objects, and reporting it; removing one state of an object and no other."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

import msgspec

from bucketmq.bucket.port import Found, Missing, Removed, Unknown, Version
from bucketmq.errors import BucketMQError, Contended
from bucketmq.events.event import ObjectEvent, plain_version
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
from bucketmq.procedures.objects.metadata import NO_CAUSE, Cause
from bucketmq.procedures.objects.notes import Note, told
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import NewId, Now, Procedure, Remove
from bucketmq.procedures.verbs import Patience, look
from bucketmq.values import Value


class Delete(msgspec.Struct, frozen=True):
    """One object of `delete_many`, and under which condition."""

    key: str
    if_version: str | None = None
    cause: Cause = NO_CAUSE


class Deleted(Value, msgspec.Struct, frozen=True):
    """An object that is gone."""

    key: str
    was_there: bool = True
    """False if there was none."""
    reported: bool = True
    """False if the event could not be reported yet; the note sees to it."""


def remove(bucket: OpenBucket, key: str, *, if_version: str | None = None, cause: Cause = NO_CAUSE) -> Procedure[bool]:
    """Delete an object and report it; False if there was none. Two PUTs, one HEAD and two DELETEs."""
    wanted = Delete(key, if_version, cause)
    check_object_key(key)
    return only((yield from _remove_all(bucket, [wanted]))).was_there


def remove_many(bucket: OpenBucket, objects: Sequence[Delete]) -> Procedure[list[Deleted | Failed]]:
    """Delete objects and report it; what became of each, in the same order. One HEAD and one DELETE each; for each
    batch of 500 two PUTs (note, events) and one DELETE."""
    check_distinct([check_object_key(each.key) for each in objects], "the key")

    return (yield from in_turn(in_batches(objects), partial(_remove_all, bucket), lambda each: each.key))


def _remove_all(bucket: OpenBucket, objects: Sequence[Delete]) -> Procedure[list[Deleted | BucketMQError]]:
    seen = yield from abreast([_look(bucket, each) for each in objects])
    writes: list[Write | Missing | BucketMQError] = []
    for wanted, found in zip(objects, seen, strict=True):
        if not isinstance(found, Found):
            writes.append(found)
            continue
        write = yield from NewId()
        note = Note(verb="delete", key=wanted.key, write=write, version=found.version, cause=wanted.cause)
        writes.append(Write(note, _act(bucket, note, found.version, only_that=wanted.if_version is not None)))
    ends = yield from carry_out(bucket, writes)
    return [_deleted(wanted.key, end) for wanted, end in zip(objects, ends, strict=True)]


def _deleted(key: str, end: Stored | Missing | BucketMQError) -> Deleted | BucketMQError:
    match end:
        case Stored():
            return Deleted(key, reported=end.reported)
        case Missing():
            return Deleted(key, was_there=False)
        case _:
            return end


def _look(bucket: OpenBucket, wanted: Delete) -> Procedure[Found | Missing]:
    full = full_key(bucket, wanted.key)
    found = yield from look(full)
    if isinstance(found, Found) and wanted.if_version not in (None, plain_version(found.version)):
        raise _not_at(full, wanted.if_version)
    return found


def _act(bucket: OpenBucket, note: Note, version: Version, *, only_that: bool) -> Procedure[ObjectEvent]:
    """Delete what a note says: whatever is there by now, or only the state that was seen.

    Each state by its version in either case: a plain delete that is on its way for long would take along what was
    written since.
    """
    full = full_key(bucket, note.key)
    began = yield from Now()
    patience = Patience(f"deleting {full}")
    while (end := (yield from remove_state(full, version))) in ("changed", "unclear"):
        if only_that and end == "changed":
            raise _not_at(full, plain_version(version))
        found = yield from look(full)
        if only_that or isinstance(found, Missing):
            break
        version = found.version
        yield from patience.again(end)
    return (yield from told(bucket, note, "deleted", note.key, version, since=began))


def _not_at(full: str, if_version: str | None) -> Contended:
    return Contended(f"{full} is not at version {if_version} any more; read it again, and decide by what is there")


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
