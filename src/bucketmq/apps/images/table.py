"""Keeping the table `images`: whenever facts of an image change, its row is rebuilt from all of its facts.

Facts of one image come from four pipelines, in any order and from any process, so several keepers may be at the same
row. The steps:

1. read the facts of the image, and look which version it is in
2. commit the row; delete it if there are no facts any more
3. look at the facts again: if one changed since, begin again

So no clock decides. A keeper that committed an older row over a newer one finds in step 3 that facts have changed, and
rebuilds it; one that dies before that has not settled its event, and is told again. A change behind step 3 has an
event of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bucketmq import aio
from bucketmq.apps.images.facts import Facts
from bucketmq.apps.images.places import FACTS, FACTS_FILTER, STAGES, TABLE, facts_key, image_of
from bucketmq.apps.images.rows import as_table, decoded, row_of
from bucketmq.bucket.port import KEY_BYTES_MAX, Missing, Object
from bucketmq.errors import BucketMQError, NotFound, Unavailable
from bucketmq.events.event import plain_version
from bucketmq.procedures.objects.keys import full_key
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Look, Procedure, Together
from bucketmq.procedures.tables.commit import commit
from bucketmq.procedures.tables.opened import open_table
from bucketmq.procedures.tables.read import Wanted, read
from bucketmq.procedures.verbs import Patience, get_many, list_all, look
from bucketmq.tables.changes import Change, Delete, Upsert
from bucketmq.tables.head import Shape

NAME = "images-table"
"""Of the agent, and of its rule."""
BATCH = 100
"""Changes that are handled with one commit."""
SHAPE = Shape(key="key")

_Read = tuple[dict[str, Any] | None, tuple[str, ...]]
"""The row of an image, None if there are no facts of it, and the versions of the facts that it was made of."""


def keep_rows(bucket: OpenBucket, images: Sequence[str]) -> Procedure[None]:
    """Make the rows of images what their facts say.

    For each image four GETs, a HEAD and four HEADs; for all of them two GETs and two PUTs, or none if nothing changed.
    """
    left = sorted(set(images))
    patience = Patience("keeping rows of the table images, whose facts keep changing")
    while left:
        read = {}
        for key in left:
            read[key] = yield from _read(bucket, key)
        rows = [row for row, _ in read.values() if row is not None]
        gone = [key for key, (row, _) in read.items() if row is None]
        changes: list[Change] = [*([Upsert(as_table(rows))] if rows else []), *([Delete(gone)] if gone else [])]
        yield from commit(open_table(bucket, TABLE, SHAPE), changes)
        again = []
        for key, (_, versions) in read.items():
            if (yield from _versions(bucket, key)) != versions:
                again.append(key)
        left = again
        if left:
            yield from patience.again(Unavailable("facts changed while their row was written"))


def _read(bucket: OpenBucket, key: str) -> Procedure[_Read]:
    places = _places(bucket, key)
    stored = yield from get_many(list(places.values()))
    facts: dict[str, Facts] = {}
    for stage, each in zip(places, stored, strict=True):
        said = decoded(stage, each.body) if isinstance(each, Object) else None
        if said is not None:
            facts[stage] = said
    versions = tuple("" if isinstance(each, Missing) else each.version for each in stored)
    if not facts:
        return None, versions
    there = yield from look(full_key(bucket, key))
    return row_of(key, None if isinstance(there, Missing) else plain_version(there.version), facts), versions


def _places(bucket: OpenBucket, key: str) -> dict[str, str]:
    """Where facts of an image may lie, by stage: those of a long key may not fit, and are dead letters."""
    places = {stage: full_key(bucket, facts_key(key, stage)) for stage in STAGES}
    return {stage: place for stage, place in places.items() if len(place.encode()) <= KEY_BYTES_MAX}


def _versions(bucket: OpenBucket, key: str) -> Procedure[tuple[str, ...]]:
    keys = list(_places(bucket, key).values())
    found = []
    for each, reply in zip(keys, (yield from Together(tuple(Look(key) for key in keys))), strict=True):
        there = (yield from look(each)) if isinstance(reply, BucketMQError) else reply
        found.append("" if isinstance(there, Missing) else there.version)
    return tuple(found)


def read_row(bucket: OpenBucket, key: str) -> Procedure[dict[str, Any] | None]:
    """The row that the facts of an image make now, whatever the table has. Four GETs and a HEAD."""
    row, _ = yield from _read(bucket, key)
    return row


def rebuild_rows(bucket: OpenBucket) -> Procedure[int]:
    """Rebuild all rows: of every image that has facts, and of those that are in the table. How many images.

    A LIST for 1,000 facts, and what `keep_rows` takes.
    """
    images: set[str] = set()
    for stage in STAGES:
        entries, _ = yield from list_all(full_key(bucket, f"{FACTS}{stage}/"))
        keys = (facts_key_of(bucket, entry.key) for entry in entries)
        images |= {image for key in keys if (image := image_of(key)) is not None}
    opened = open_table(bucket, TABLE, SHAPE)
    try:
        images |= set((yield from read(opened, Wanted(columns=("key",)))).column("key").to_pylist())
    except NotFound:
        pass
    found = sorted(images)
    for start in range(0, len(found), BATCH):
        yield from keep_rows(bucket, found[start : start + BATCH])
    return len(found)


def facts_key_of(bucket: OpenBucket, key: str) -> str:
    """A key of the store as users name it."""
    return key.removeprefix(full_key(bucket, ""))


def register(bucket: aio.Bucket, _: object = None) -> None:
    """The agent's watcher."""

    @bucket.watch(FACTS_FILTER, name=NAME, start="beginning", batch=BATCH)
    async def keep(changes: Sequence[Any]) -> None:
        await bucket.run(keep_rows(await bucket.run(bucket.api.open()), images_of(changes)))


def images_of(changes: Sequence[Any]) -> list[str]:
    return [image for each in changes if (image := image_of(each.key)) is not None]
