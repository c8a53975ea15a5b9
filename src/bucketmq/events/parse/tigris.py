"""Tigris: `{"events": [...]}`. Keys are plain; there is no id, no order and no version but the content's hash."""

from __future__ import annotations

from bucketmq.errors import Invalid
from bucketmq.events.event import Kind, ObjectEvent, event_id, plain_version
from bucketmq.events.parse.fields import Reading, at_of, need, need_inner, own_event, size, text
from bucketmq.events.parse.result import Item, Parsed, gather, told

KINDS: dict[str, Kind] = {
    "OBJECT_CREATED_PUT": "created",
    "OBJECT_CREATED_MULTIPART": "created",
    "OBJECT_CREATED_COPY": "created",
    "OBJECT_DELETED": "deleted",
    "OBJECT_TRANSITIONED": "other",
    "OBJECT_RENAME": "moved",
}


def read(value: object, reading: Reading) -> Parsed:
    items = value.get("events") if isinstance(value, dict) else None
    if not isinstance(items, list):
        raise Invalid('the body is not one of Tigris: it must be an object with a list "events"')
    return gather(items, lambda item: _event(item, reading))


def _event(item: Item, reading: Reading) -> Parsed:
    if reading.own and (event := own_event(item.get("bucketmq"))) is not None:
        return told(event)
    name = need(item, "eventName")
    object_ = need_inner(item, "object")
    key = need(object_, "key")
    bucket = text(item, "bucket") or ""
    kind = KINDS.get(name)
    etag = text(object_, "eTag")
    time = text(item, "eventTime")
    return told(
        ObjectEvent(
            id=event_id("tigris", bucket, key, name, etag, time),
            kind=kind or "other",
            key=key,
            at=at_of(reading, time),
            source="tigris",
            name=name,
            bucket=bucket,
            size_bytes=size(object_, "size"),
            version=plain_version(etag) if etag else None,
        ),
        known=kind is not None,
    )
