"""Reading users' own objects, without what our writes left beside them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bucketmq.bucket.port import Missing, Object
from bucketmq.errors import BucketMQError, NotFound
from bucketmq.events.event import plain_version
from bucketmq.procedures.abreast import abreast
from bucketmq.procedures.objects.batches import Failed, failed, in_batches
from bucketmq.procedures.objects.keys import check_object_key, full_key
from bucketmq.procedures.objects.metadata import hops_of, without_stamps
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.verbs import get
from bucketmq.values import Value


class Read(Value, msgspec.Struct, frozen=True):
    """An object as read: the body and what goes with it."""

    key: str
    body: bytes
    version: str
    stored_at: float
    content_type: str
    metadata: dict[str, str]
    hops: int = 0
    """In how many hops of a chain of events it was written, as its writer stamped it."""


def read_object(bucket: OpenBucket, key: str) -> Procedure[Read]:
    """The object, or `NotFound`. One GET."""
    return as_read(key, (yield from fetch(bucket, key)))


def read_many(bucket: OpenBucket, keys: Sequence[str]) -> Procedure[list[Read | Failed]]:
    """The objects, in the order of their keys; `Failed` for one that is not there or cannot be read. One GET each."""
    for key in keys:
        check_object_key(key)
    outcomes: list[Read | Failed] = []
    for batch in in_batches(keys):
        found = yield from abreast([fetch(bucket, key) for key in batch])
        outcomes += [
            failed(key, each) if isinstance(each, BucketMQError) else as_read(key, each)
            for key, each in zip(batch, found, strict=True)
        ]
    return outcomes


def fetch(bucket: OpenBucket, key: str) -> Procedure[Object]:
    """The object as the store has it, or `NotFound`. One GET."""
    found = yield from get(full_key(bucket, check_object_key(key)))
    if isinstance(found, Missing):
        raise NotFound(f"there is no object {key!r}; it may have been moved or deleted since")
    return found


def as_read(key: str, found: Object) -> Read:
    """An object as users see it."""
    kept = without_stamps(found.attributes.metadata)
    version = plain_version(found.version)
    hops = hops_of(found.attributes)
    return Read(key, found.body, version, found.stored_at, found.attributes.content_type, kept, hops)
