"""Writing one object of a row: put where there is none, left alone where nothing would change, replaced where the
target says so. A procedure, so executors and watchers do the same.

Every write is conditional on the state that was seen; the loser of a race looks again and decides again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from bucketmq.bucket.port import Attributes, Found, Missing, check_key
from bucketmq.errors import Contended
from bucketmq.events.event import plain_version
from bucketmq.pipeline.ends import ToObjects
from bucketmq.pipeline.things import SOURCE_KEY, SOURCE_ORDER, Origin, Thing, attributes_of
from bucketmq.procedures.objects.keys import check_object_key, full_key
from bucketmq.procedures.objects.metadata import NO_CAUSE, Cause
from bucketmq.procedures.objects.put import put
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.verbs import Patience, look

Did = Literal["written", "same", "kept"]
"""What became of a thing: written; there already; or something else is there and stays."""

SHORT_BYTES = 200
"""Every file system has room for such a name."""


def write_object(
    bucket: OpenBucket, target: ToObjects, thing: Thing, cause: Cause = NO_CAUSE, origin: Origin | None = None
) -> Procedure[Did]:
    """Write a thing with its event, unless the target says that what is there stays.

    A HEAD if nothing is to be done; otherwise what a put costs besides: three PUTs, a HEAD and a DELETE.
    """
    key = check_object_key(thing.key)
    wanted = attributes_of(target, thing, origin)
    patience = Patience(f"writing {key}")
    while True:
        found = yield from look(full_key(bucket, key))
        decided = _decide(target, found, wanted, origin)
        if decided is not None:
            return decided
        new = isinstance(found, Missing)
        version = None if isinstance(found, Missing) else plain_version(found.version)
        try:
            yield from put(
                bucket,
                key,
                thing.body,
                content_type=wanted.content_type,
                metadata=wanted.metadata,
                only_new=new,
                if_version=version,
                cause=cause,
            )
        except Contended as error:  # another writer was quicker: look again
            yield from patience.again(error)
        else:
            return "written"


def check_keys(bucket: OpenBucket, keys: Iterable[str]) -> Procedure[None]:
    """Raise `Invalid` if the store has no room for one of the keys: the bucket's prefix takes some of it, and files
    have shorter names than objects. Only a folder is asked, about long names, where it cannot miss a folder first."""
    for key in keys:
        check_key(full_key(bucket, key))
        for name in key.split("/") if bucket.local else ():
            if len(name.encode()) > SHORT_BYTES:
                yield from look(full_key(bucket, name))


def _decide(target: ToObjects, found: Found | Missing, wanted: Attributes, origin: Origin | None) -> Did | None:
    """What becomes of a thing without writing it; None if it is to be written."""
    if isinstance(found, Missing):
        return None
    there = found.attributes.metadata
    if found.attributes.content_type == wanted.content_type and wanted.metadata.items() <= there.items():
        return "same"
    if origin is not None and there.get(SOURCE_KEY) == origin.mark:
        order = there.get(SOURCE_ORDER, "")
        return "kept" if order.isdecimal() and int(order) > origin.order else None
    if target.if_exists == "keep":
        return "kept"
    if target.newer_by is not None:
        name = target.newer_by.lower()
        unmarked = target.if_exists == "newest" and name not in there
        return None if unmarked or is_older(there.get(name), wanted.metadata[name]) else "kept"
    return None


def is_older(there: str | None, than: str) -> bool:
    """Whether what is there is older, by what both say of themselves. What has no such value was written by another
    program: it stays.

    Whole numbers compare as numbers, times as the texts they are; one is never older than the other.
    """
    if there is None:
        return False
    numbers = [_number(text) for text in (there, than)]
    if numbers[0] is not None and numbers[1] is not None:
        return numbers[0] < numbers[1]
    return numbers == [None, None] and there < than


def _number(text: str) -> int | None:
    return int(text) if text.removeprefix("-").isdecimal() and text.isascii() and len(text) <= 20 else None


def that_count(target: ToObjects, things: Iterable[tuple[Thing, Cause]]) -> list[tuple[Thing, Cause]]:
    """Of several things for one key the one that stays in the end, so that they need not race with one another."""
    chosen: dict[str, tuple[Thing, Cause]] = {}
    for thing, cause in things:
        before = chosen.get(thing.key)
        if before is None or (target.if_exists == "replace") or _supersedes(target, before[0], thing):
            chosen[thing.key] = thing, cause
    return list(chosen.values())


def _supersedes(target: ToObjects, before: Thing, after: Thing) -> bool:
    return target.newer_by is not None and after.newer is not None and is_older(before.newer, after.newer)
