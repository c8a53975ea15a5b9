"""Objects of rows that are copies: they get the bytes of another object of the bucket, which goes if it is a move.

The target is looked at first, then the source, and the write is conditional on both states: so a late row never puts an
old state over the copy of a newer one. What is there of the same state already stays, whether or not its source does. A
source that is not in the row's state any more has nothing to copy: whoever changed it reported that.

How a copy and a move are carried out is `procedures.objects`; bytes go through this process only where the store does
not copy, or where an object is replaced.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from bucketmq.bucket.port import Attributes, Found, Missing
from bucketmq.errors import Contended, Invalid, NotFound
from bucketmq.events.event import plain_version
from bucketmq.pipeline.ends import ToObjects
from bucketmq.pipeline.objects import Did, Wanted, all_abreast, decide
from bucketmq.pipeline.things import COPY_OF, SOURCE_KEY, SOURCE_ORDER, SOURCE_VERSION, Thing, declared
from bucketmq.procedures.objects.batches import Failed, Stored, apart
from bucketmq.procedures.objects.copy import Copying, Decided, copy_many
from bucketmq.procedures.objects.keys import full_key
from bucketmq.procedures.objects.metadata import FROM, origin_mark, without_stamps
from bucketmq.procedures.objects.move import Move, move_many
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.verbs import Patience, look

logger = logging.getLogger("bucketmq")

_FOLLOWED = (SOURCE_KEY, SOURCE_VERSION, SOURCE_ORDER)
"""The source may follow another object; a copy of it does not."""


def copy_objects(bucket: OpenBucket, wanted: Sequence[Wanted]) -> Procedure[list[Did]]:
    """Copy or move objects, with their events, together; what became of each.

    For each a HEAD of the target, and one of the source unless the same copy is there; then what `copy_many` and
    `move_many` cost for an object that was looked at. For all together two PUTs (note, events) and a DELETE.
    """
    done: list[Did] = []
    for group in apart(wanted, lambda each: {each.thing.key, _source(each.thing)}):
        done += yield from _copy_group(bucket, group)
    return done


def _copy_group(bucket: OpenBucket, wanted: Sequence[Wanted]) -> Procedure[list[Did]]:
    done: dict[int, Did] = {}
    left = list(range(len(wanted)))
    patience = Patience(f"copying to {wanted[0].thing.key}")
    while True:
        todo: dict[int, Copying | Move] = {}
        for place, plan in zip(left, (yield from all_abreast([_plan(bucket, wanted[n]) for n in left])), strict=True):
            if isinstance(plan, Copying | Move):
                todo[place] = plan
            else:
                done[place] = plan
        left = []
        for place, outcome in (yield from _carried_out(bucket, todo)).items():
            if isinstance(outcome, Stored):
                done[place] = "written"
            elif (yield from _may_try_again(bucket, todo[place], outcome)):
                left.append(place)
            else:
                raise outcome.error
        if not left:
            return [done[place] for place in range(len(wanted))]
        yield from patience.again(f"{len(left)} of {len(todo)} were refused, as of changes in between")


def _plan(bucket: OpenBucket, wanted: Wanted) -> Procedure[Did | Copying | Move]:
    """What is to be done for a thing; or what became of it, if that is nothing."""
    target, thing, cause, _ = wanted
    key = _source(thing)
    there = yield from look(full_key(bucket, thing.key))
    if thing.copy_version is not None and not target.move and _is_there(target, thing, there, thing.copy_version):
        return "same"
    source = yield from look(full_key(bucket, key))
    if isinstance(source, Missing) or thing.copy_version not in (None, plain_version(source.version)):
        if thing.copy_version is not None and _mark(there, FROM) == origin_mark(key, thing.copy_version):
            return "same"  # moved by an earlier attempt, whose note sees to the event
        logger.warning(
            "action=copy_source_gone key=%s version=%s target=%s: not there in this state any more; nothing is copied",
            key,
            thing.copy_version,
            thing.key,
        )
        return "gone"
    version = plain_version(source.version)
    if target.move:
        other = isinstance(there, Found) and _mark(there, FROM) != origin_mark(key, version)
        if other and target.if_exists == "keep":
            return "kept"
        # A target that an earlier attempt has made is in the way of a rename, and of nothing else.
        replace = other or (isinstance(there, Found) and bucket.renames)
        return Move(key, thing.key, version, replace=replace, cause=cause, source=source)
    attributes = _attributes(target, thing, source)
    decided = decide(target, there, attributes, None)
    if decided is not None:
        return decided
    return Copying(key, thing.key, source.size_bytes, Decided(source, there, attributes, cause))


def _carried_out(bucket: OpenBucket, todo: Mapping[int, Copying | Move]) -> Procedure[dict[int, Stored | Failed]]:
    copies = {place: each for place, each in todo.items() if isinstance(each, Copying)}
    moves = {place: each for place, each in todo.items() if isinstance(each, Move)}
    copied = yield from copy_many(bucket, list(copies.values()))
    moved = yield from move_many(bucket, list(moves.values()))
    return dict(zip((*copies, *moves), (*copied, *moved), strict=True))


def _may_try_again(bucket: OpenBucket, tried: Copying | Move, outcome: Failed) -> Procedure[bool]:
    """Whether it failed because one of the objects was changed since it was looked at."""
    if outcome.kind == Invalid.kind and isinstance(tried, Move) and not tried.replace:
        there = yield from look(full_key(bucket, tried.target))  # what is in its way, unless something else is wrong
        return isinstance(there, Found) and _mark(there, FROM) != origin_mark(tried.key, tried.if_version or "")
    return outcome.kind in (Contended.kind, NotFound.kind)


def _source(thing: Thing) -> str:
    assert thing.copy_of is not None
    return thing.copy_of


def _mark(there: Found | Missing, name: str) -> str | None:
    return there.attributes.metadata.get(name) if isinstance(there, Found) else None


def _is_there(target: ToObjects, thing: Thing, there: Found | Missing, version: str) -> bool:
    """Whether the same copy is there, which can be told without its source."""
    if isinstance(there, Missing) or _mark(there, COPY_OF) != origin_mark(_source(thing), version):
        return False
    kind = thing.content_type or declared(target)
    own = _own_metadata(target, thing)
    return kind in (None, there.attributes.content_type) and own.items() <= there.attributes.metadata.items()


def _own_metadata(target: ToObjects, thing: Thing) -> dict[str, str]:
    newer = {} if target.newer_by is None or thing.newer is None else {target.newer_by.lower(): thing.newer}
    return {**thing.metadata, **newer}


def _attributes(target: ToObjects, thing: Thing, source: Found) -> Attributes:
    """What a copy is written with: what its source has, unless the target names something else."""
    metadata: dict[str, str] = {}
    if target.metadata is None and target.tags is None:
        there = without_stamps(source.attributes.metadata)
        metadata = {name: value for name, value in there.items() if name not in _FOLLOWED}
    metadata |= {**_own_metadata(target, thing), COPY_OF: origin_mark(_source(thing), source.version)}
    return Attributes(thing.content_type or declared(target) or source.attributes.content_type, metadata)
