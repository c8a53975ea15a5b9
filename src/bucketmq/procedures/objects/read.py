"""Reading users' own objects, without what our writes left beside them."""

from __future__ import annotations

import msgspec

from bucketmq.bucket.port import Missing
from bucketmq.errors import NotFound
from bucketmq.events.event import plain_version
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
    found = yield from get(full_key(bucket, check_object_key(key)))
    if isinstance(found, Missing):
        raise NotFound(f"there is no object {key!r}; it may have been moved or deleted since")
    kept = without_stamps(found.attributes.metadata)
    version = plain_version(found.version)
    hops = hops_of(found.attributes)
    return Read(key, found.body, version, found.stored_at, found.attributes.content_type, kept, hops)
