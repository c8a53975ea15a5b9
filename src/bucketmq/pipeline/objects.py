"""Writing the objects of rows: put where there is none, left alone where nothing would change, replaced where the
target says so. Procedures, so executors and watchers do the same.

Every write is conditional on the state that was seen; the loser of a race looks again and decides again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, TypeVar

from bucketmq.bucket.port import Attributes, Found, Missing, check_key
from bucketmq.errors import BucketMQError, Contended
from bucketmq.events.event import plain_version
from bucketmq.pipeline.ends import ToObjects
from bucketmq.pipeline.things import SOURCE_KEY, SOURCE_ORDER, Origin, Thing, attributes_of
from bucketmq.procedures.abreast import abreast
from bucketmq.procedures.objects.batches import Failed, apart
from bucketmq.procedures.objects.keys import check_object_key, full_key
from bucketmq.procedures.objects.metadata import NO_CAUSE, Cause, without_stamps
from bucketmq.procedures.objects.put import Put, put_many
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.verbs import Patience, look

Did = Literal["written", "same", "kept", "gone"]
"""What became of a thing: written; there already; something else is there and stays; or a copy's source is gone."""

Result = TypeVar("Result")

SHORT_BYTES = 200
"""Every file system has room for such a name."""


class Wanted(NamedTuple):
    """A thing that is to be an object of a target."""

    target: ToObjects
    thing: Thing
    cause: Cause = NO_CAUSE
    origin: Origin | None = None


def write_objects(bucket: OpenBucket, wanted: Sequence[Wanted]) -> Procedure[list[Did]]:
    """Write things with their events, together, each unless its target says that what is there stays.

    For each that is new one PUT; where something is there already, a HEAD if that stays, and a PUT more. Where the
    target replaces what is there, and for a thing alone, a HEAD and a PUT. For all together two PUTs (note, events)
    and a DELETE.
    """
    done: list[Did] = []
    for group in apart(wanted, lambda each: {each.thing.key}):
        done += yield from _write_group(bucket, group)
    return done


def _write_group(bucket: OpenBucket, wanted: Sequence[Wanted]) -> Procedure[list[Did]]:
    done: dict[int, Did] = {}
    looked = [place for place, each in enumerate(wanted) if len(wanted) == 1 or each.target.if_exists == "replace"]
    seen: dict[int, Found | Missing] = {place: Missing() for place in range(len(wanted))}
    seen |= yield from _look_at(bucket, wanted, looked)
    patience = Patience(f"writing {wanted[0].thing.key}")
    again = False
    while seen:
        puts: dict[int, Put] = {}
        for place, found in seen.items():
            target, thing, cause, origin = wanted[place]
            attributes = attributes_of(target, thing, origin)
            decided = decide(target, found, attributes, origin)
            if decided is not None:
                done[place] = decided
                continue
            new = isinstance(found, Missing)
            version = None if isinstance(found, Missing) else plain_version(found.version)
            kind, metadata = attributes.content_type, attributes.metadata
            puts[place] = Put(thing.key, thing.body, kind, metadata, new, version, cause)
        outcomes = yield from put_many(bucket, list(puts.values()))
        refused = []
        for place, outcome in zip(puts, outcomes, strict=True):
            if not isinstance(outcome, Failed):
                done[place] = "written"
            elif outcome.kind == Contended.kind:  # something is there, or another writer was quicker: look again
                refused.append(place)
            else:
                raise outcome.error
        if refused and again:
            yield from patience.again(f"{len(refused)} of {len(puts)} were refused")
        again = True
        seen = yield from _look_at(bucket, wanted, refused)
    return [done[place] for place in range(len(wanted))]


def _look_at(
    bucket: OpenBucket, wanted: Sequence[Wanted], places: Sequence[int]
) -> Procedure[dict[int, Found | Missing]]:
    keys = [full_key(bucket, check_object_key(wanted[place].thing.key)) for place in places]
    return dict(zip(places, (yield from all_abreast([look(key) for key in keys])), strict=True))


def all_abreast(procedures: Sequence[Procedure[Result]]) -> Procedure[list[Result]]:
    """Run them abreast, and raise what one of them raised when all have ended."""
    results: list[Result] = []
    for each in (yield from abreast(procedures)):
        if isinstance(each, BucketMQError):
            raise each
        results.append(each)
    return results


def check_keys(bucket: OpenBucket, keys: Iterable[str]) -> Procedure[None]:
    """Raise `Invalid` if the store has no room for one of the keys: the bucket's prefix takes some of it, and files
    have shorter names than objects. Only a folder is asked, about long names, where it cannot miss a folder first."""
    for key in keys:
        check_key(full_key(bucket, key))
        for name in key.split("/") if bucket.local else ():
            if len(name.encode()) > SHORT_BYTES:
                yield from look(full_key(bucket, name))


def decide(target: ToObjects, found: Found | Missing, wanted: Attributes, origin: Origin | None) -> Did | None:
    """What becomes of a thing without writing it; None if it is to be written."""
    if isinstance(found, Missing):
        return None
    there = found.attributes.metadata
    if found.attributes.content_type == wanted.content_type and wanted.metadata == without_stamps(there):
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
    chosen: dict[tuple[str, str | None], tuple[Thing, Cause]] = {}
    for thing, cause in things:
        name = thing.key, thing.copy_of if target.move else None  # each of several sources has to go
        before = chosen.get(name)
        if before is None or (target.if_exists == "replace") or _supersedes(target, before[0], thing):
            chosen[name] = thing, cause
    return list(chosen.values())


def _supersedes(target: ToObjects, before: Thing, after: Thing) -> bool:
    return target.newer_by is not None and after.newer is not None and is_older(before.newer, after.newer)
