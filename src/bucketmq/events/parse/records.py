"""S3's records, `{"Records": [...]}`, as AWS, MinIO and Ceph send them. `eventSource` says which of them it was.

AWS and MinIO write keys form-encoded, Ceph writes them as they are. What only some of them tell (metadata, tags,
content type) is read where it is found.
"""

from __future__ import annotations

from typing import Literal

from bucketmq.errors import Invalid
from bucketmq.events.event import Kind, ObjectEvent, Order, event_id, plain_version, seconds_of
from bucketmq.events.parse.fields import (
    Reading,
    at_of,
    form_decoded,
    hops_of,
    inner,
    lineage_of,
    need,
    need_inner,
    own_event,
    pairs,
    size,
    text,
)
from bucketmq.events.parse.result import IGNORED, Item, Parsed, gather, told

Store = Literal["s3", "minio", "ceph"]

STORES: dict[str, Store] = {"aws:s3": "s3", "minio:s3": "minio", "ceph:s3": "ceph"}

PLAIN_KEYS: frozenset[Store] = frozenset({"ceph"})
"""Senders that write keys as they are."""

FAMILIES: dict[str, Kind] = {
    "ObjectCreated": "created",
    "ObjectRemoved": "deleted",
    "LifecycleExpiration": "deleted",
    "LifecycleTransition": "other",
    "IntelligentTiering": "other",
    "ObjectRestore": "other",
    "ObjectTagging": "other",
    "ObjectAcl": "other",
    "ObjectAnnotation": "other",
    "ReducedRedundancyLostObject": "other",
    "Replication": "other",
    "ObjectAccessed": "other",
    "ObjectTransition": "other",
    "Scanner": "other",
    "ILM": "other",
    "ObjectLifecycle": "other",
    "ObjectSynced": "other",
}
"""By the first word of a name."""

NAMES: dict[str, Kind] = {
    "Replication:Create": "created",
    "Replication:Delete": "deleted",
    "ObjectSynced:Create": "created",
    "ObjectSynced:Delete": "deleted",
    "ObjectSynced:DeletionMarkerCreated": "deleted",
    "ObjectLifecycle:Expiration:Current": "deleted",
}
"""Names that mean something else than their family: all Ceph's."""

TEST_EVENT = "s3:TestEvent"
USER_METADATA = "x-amz-meta-"


def read(value: object, reading: Reading) -> Parsed:
    if isinstance(value, dict):
        if value.get("Event") == TEST_EVENT:
            return IGNORED
        items = value.get("Records")
        if isinstance(items, list):
            return gather(items, lambda item: record(item, reading))
    raise Invalid('the body has no S3 records: it must be an object with a list "Records"')


def record(item: Item, reading: Reading) -> Parsed:
    """One of the records."""
    if reading.own and (event := own_event(item.get("bucketmq"))) is not None:
        return told(event)
    name = need(item, "eventName")
    plain_name = name.removeprefix("s3:")
    if plain_name == "TestEvent" or plain_name.startswith(("BucketCreated", "BucketRemoved")):
        return IGNORED
    s3 = need_inner(item, "s3")
    object_ = need_inner(s3, "object")
    store = STORES.get(text(item, "eventSource") or "") or _said(reading)
    key = need(object_, "key")
    key = key if store in PLAIN_KEYS else form_decoded(key)
    bucket = text(inner(s3, "bucket"), "name") or ""
    kind = NAMES.get(plain_name) or FAMILIES.get(plain_name.split(":", 1)[0])
    etag, version_id = text(object_, "eTag"), text(object_, "versionId")
    time, sequencer = text(item, "eventTime"), text(object_, "sequencer")
    at = at_of(reading, time)
    metadata, content_type = _metadata(object_)
    return told(
        ObjectEvent(
            id=event_id(store, bucket, key, plain_name, version_id, etag, sequencer or time),
            kind=kind or "other",
            key=key,
            at=at,
            source=store,
            name=name,
            bucket=bucket,
            size_bytes=size(object_, "size"),
            version=plain_version(etag) if etag else None,
            version_id=version_id,
            exact=version_id is not None and version_id != "null",
            content_type=text(object_, "contentType") or content_type,
            metadata=metadata,
            tags=_named_values(object_.get("tags")),
            order=_order(store, sequencer, at),
            hops=hops_of(metadata),
            lineage=lineage_of(metadata),
        ),
        known=kind is not None,
    )


def _said(reading: Reading) -> Store:
    return "minio" if reading.source == "minio" else "ceph" if reading.source == "ceph" else "s3"


def _order(store: Store, sequencer: str | None, at: str) -> Order | None:
    if sequencer is None:
        return None
    if store != "ceph":
        return Order("sequencer", sequencer)
    # Ceph writes the bytes of seconds and nanoseconds as they lie in memory: the least significant first.
    try:
        seconds, nanoseconds = bytes.fromhex(sequencer[:8])[::-1], bytes.fromhex(sequencer[8:])[::-1]
    except ValueError:
        return None
    plausible = len(sequencer) == 16 and abs(int.from_bytes(seconds, "big") - seconds_of(at)) < 86400
    return Order("sequencer", (seconds + nanoseconds).hex()) if plausible else None


def _metadata(object_: Item) -> tuple[dict[str, str] | None, str | None]:
    """What the writer attached, without the headers' prefix, and the content type that stores list beside it."""
    listed = pairs(object_.get("userMetadata"))
    if listed is None:
        listed = _named_values(object_.get("metadata"))
        listed = None if listed is None else {name.lower(): value for name, value in listed.items()}
    if listed is None:
        return None, None
    attached = {
        name.removeprefix(USER_METADATA): value for name, value in listed.items() if name.startswith(USER_METADATA)
    }
    return attached, listed.get("content-type")


def _named_values(value: object) -> dict[str, str] | None:
    """Ceph's way to write a map: `[{"key": ..., "val": ...}]`."""
    if not isinstance(value, list):
        return None
    found: dict[str, str] = {}
    for each in value:
        if isinstance(each, dict) and isinstance(name := each.get("key"), str):
            told_value = each.get("val", each.get("value", ""))
            if name and isinstance(told_value, str):
                found[name] = told_value
    return found
