"""CloudEvents 1.0 over HTTP: one in the body, a batch in the body, or spread over `ce-` headers.

Our own (`bucketmq.object.<kind>`) are taken as they are. What is somebody else's known form inside (S3's records,
Event Grid, Eventarc) is read as that. All others are about the key that their subject names.
"""

from __future__ import annotations

from collections.abc import Mapping

from bucketmq.errors import Invalid
from bucketmq.events.event import Kind, ObjectEvent, event_id
from bucketmq.events.parse import azure, gcs, records
from bucketmq.events.parse.fields import (
    Reading,
    at_of,
    decode,
    from_base64,
    items_of,
    need,
    own_event,
    percent_decoded,
    text,
)
from bucketmq.events.parse.result import BadItem, Item, Parsed, gather, told

OWN_PREFIX = "bucketmq.object."
AMAZON_PREFIX = "com.amazonaws."

WORDS: dict[str, Kind] = {
    "created": "created",
    "create": "created",
    "finalized": "created",
    "put": "created",
    "post": "created",
    "copy": "created",
    "completemultipartupload": "created",
    "uploaded": "created",
    "added": "created",
    "updated": "changed",
    "changed": "changed",
    "modified": "changed",
    "deleted": "deleted",
    "delete": "deleted",
    "removed": "deleted",
}
"""What the last word of a foreign type means."""


def is_binary(headers: Mapping[str, str]) -> bool:
    """Whether the attributes are in the headers."""
    return "ce-specversion" in headers and not _media_type(headers).startswith("application/cloudevents")


def is_structured(headers: Mapping[str, str]) -> bool:
    """Whether the content type says that the attributes are in the body."""
    return _media_type(headers).startswith("application/cloudevents")


def read_binary(headers: Mapping[str, str], body: bytes, reading: Reading) -> Parsed:
    return gather([dict(headers)], lambda item: _event(_from_headers(item, body), reading))


def read(value: object, reading: Reading) -> Parsed:
    """One, or a list of them."""
    wanted = "it must be an object with specversion, id, source and type, or a list"
    return gather(items_of(value, f"the body is not a CloudEvent: {wanted}"), lambda item: _event(item, reading))


def _media_type(headers: Mapping[str, str]) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _from_headers(headers: Item, body: bytes) -> Item:
    item: Item = {
        name.removeprefix("ce-"): percent_decoded(value, name)
        for name, value in headers.items()
        if name.startswith("ce-") and isinstance(value, str)
    }
    try:
        item["data"] = decode(body)
    except Invalid:
        item.pop("data", None)  # data of any type may follow; only JSON says something to us
    return item


def _event(item: Item, reading: Reading) -> Parsed:
    need(item, "specversion")
    type_, source, id_ = need(item, "type"), need(item, "source"), need(item, "id")
    time, data = text(item, "time"), _data(item)
    if type_.startswith(OWN_PREFIX):
        return _own(item, type_, data)
    if type_.startswith("Microsoft."):
        return azure.event({**item, "data": data}, reading)
    if type_.startswith(gcs.EVENTARC_PREFIX) and isinstance(data, dict):
        return gcs.eventarc(type_, time, data, reading)
    if isinstance(data, dict) and isinstance(data.get("Records"), list):
        return records.read(data, reading)
    if type_.startswith(AMAZON_PREFIX) and isinstance(data, dict) and isinstance(data.get("s3"), dict):
        return records.record({"eventTime": time, "eventName": _amazon_name(type_), **data}, reading)
    key = need(item, "subject")
    kind = WORDS.get(_last_word(type_))
    return told(
        ObjectEvent(
            id=event_id("cloudevents", "", key, source, id_),
            kind=kind or "other",
            key=key,
            at=at_of(reading, time),
            source="cloudevents",
            name=type_,
        ),
        known=kind is not None,
    )


def _own(item: Item, type_: str, data: object) -> Parsed:
    event = own_event(data)
    if event is None:
        raise BadItem("is named as one of ours but its data is not an event")
    if (event.id, event.key, event.kind) != (item["id"], item.get("subject"), type_.removeprefix(OWN_PREFIX)):
        raise BadItem("is named as one of ours but its id, subject or type is not that of its data")
    return told(event)


def _data(item: Item) -> object:
    written = from_base64(item.get("data_base64"))
    if written is None:
        return item.get("data")
    try:
        return decode(written)
    except Invalid:
        return None


def _amazon_name(type_: str) -> str:
    """`ObjectCreated:Put` in `com.amazonaws.s3.ObjectCreated:Put`, also without the `s3.`."""
    return type_.removeprefix(AMAZON_PREFIX).removeprefix("s3.")


def _last_word(type_: str) -> str:
    return type_.replace(":", ".").replace("/", ".").rsplit(".", 1)[-1].lower()
