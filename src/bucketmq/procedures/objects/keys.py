"""The keys of users' objects: which ones they may have, and how the store knows them."""

from __future__ import annotations

from bucketmq.bucket.port import check_key
from bucketmq.errors import Invalid
from bucketmq.log.layout import is_bookkeeping, join
from bucketmq.procedures.opened import OpenBucket


def check_object_key(key: str) -> str:
    """Raise `Invalid` unless a user may give an object this key."""
    if not isinstance(key, str):
        raise Invalid(f"an object's key must be text, not {key!r}")
    check_key(key)
    if is_bookkeeping(key):
        raise Invalid(f"{key!r} is among BucketMQ's own keys ({key.split('/', 1)[0]}/); use another prefix")
    return key


def full_key(bucket: OpenBucket, key: str) -> str:
    """A user's key as the store knows it."""
    return join(bucket.prefix, key)
