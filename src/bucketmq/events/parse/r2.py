"""Cloudflare R2: the body of a message of Cloudflare Queues, which somebody's worker or puller passes on.

One, a list of them, or a batch as the pull API answers it. Keys are plain. Deletions have neither size nor hash.
"""

from __future__ import annotations

from bucketmq.errors import Invalid
from bucketmq.events.event import Kind, ObjectEvent, event_id, plain_version
from bucketmq.events.parse.fields import Reading, at_of, decode, from_base64, need, need_inner, size, text
from bucketmq.events.parse.result import BadItem, Item, Parsed, gather, told

KINDS: dict[str, Kind] = {
    "PutObject": "created",
    "CopyObject": "created",
    "CompleteMultipartUpload": "created",
    "DeleteObject": "deleted",
    "LifecycleDeletion": "deleted",
}


def read(value: object, reading: Reading) -> Parsed:
    items = _items(value)
    if items is None:
        raise Invalid('the body is not one of R2: it must be an object with "action" and "object", or a list of such')
    return gather(items, lambda item: _event(_unwrapped(item), reading))


def _items(value: object) -> list[object] | None:
    if isinstance(value, list):
        return value
    if not isinstance(value, dict):
        return None
    for holder in (value.get("result"), value):
        if isinstance(holder, dict) and isinstance(messages := holder.get("messages"), list):
            return messages
    return [value]


def _unwrapped(item: Item) -> Item:
    """An event, out of the queue's message around it, in which it may be a text or base64."""
    if "action" in item or "body" not in item:
        return item
    body = item["body"]
    if isinstance(body, str):
        written = from_base64(body)
        try:
            body = decode(body if written is None else written)
        except Invalid as error:
            raise BadItem(f"has a body that cannot be read: {error}") from None
    if not isinstance(body, dict):
        raise BadItem("has a body that is not an object")
    return body


def _event(item: Item, reading: Reading) -> Parsed:
    name = need(item, "action")
    object_ = need_inner(item, "object")
    key = need(object_, "key")
    bucket = text(item, "bucket") or ""
    kind = KINDS.get(name)
    etag, time = text(object_, "eTag"), text(item, "eventTime")
    return told(
        ObjectEvent(
            id=event_id("r2", bucket, key, name, etag, time),
            kind=kind or "other",
            key=key,
            at=at_of(reading, time),
            source="r2",
            name=name,
            bucket=bucket,
            size_bytes=size(object_, "size"),
            version=plain_version(etag) if etag else None,
        ),
        known=kind is not None,
    )
