"""Google Cloud Storage: notifications pushed by Pub/Sub, and the same as Eventarc writes them.

One change may come as several messages with several ids, so ids are made of the generation. Overwriting an object is
told twice, as the new generation and as the end of the old one; the second is left out.
"""

from __future__ import annotations

from bucketmq.errors import Invalid
from bucketmq.events.event import Kind, ObjectEvent, Order, event_id
from bucketmq.events.parse.fields import (
    Reading,
    at_of,
    decode,
    from_base64,
    hops_of,
    inner,
    lineage_of,
    need,
    pairs,
    size,
    text,
)
from bucketmq.events.parse.result import IGNORED, BadItem, Item, Parsed, gather, told

KINDS: dict[str, Kind] = {
    "OBJECT_FINALIZE": "created",
    "OBJECT_DELETE": "deleted",
    "OBJECT_ARCHIVE": "deleted",
    "OBJECT_METADATA_UPDATE": "other",
}

EVENTARC_PREFIX = "google.cloud.storage.object.v1."
EVENTARC_NAMES = {
    "finalized": "OBJECT_FINALIZE",
    "deleted": "OBJECT_DELETE",
    "archived": "OBJECT_ARCHIVE",
    "metadataUpdated": "OBJECT_METADATA_UPDATE",
}


def read(value: object, reading: Reading) -> Parsed:
    """Pub/Sub's push envelope."""
    if not isinstance(value, dict) or not isinstance(value.get("message"), dict):
        raise Invalid('the body was not pushed by Pub/Sub: it must be an object with an object "message"')
    return gather([value["message"]], lambda message: _message(message, reading))


def _message(message: Item, reading: Reading) -> Parsed:
    attributes = inner(message, "attributes")
    name = need(attributes, "eventType")
    if name in ("OBJECT_DELETE", "OBJECT_ARCHIVE") and text(attributes, "overwrittenByGeneration"):
        return IGNORED
    resource = _resource(message)
    return _event(
        resource,
        reading,
        name=name,
        meaning=name,
        bucket=text(attributes, "bucketId") or text(resource, "bucket") or "",
        key=need(attributes, "objectId"),
        generation=text(attributes, "objectGeneration") or text(resource, "generation"),
        times=(text(attributes, "eventTime"), text(resource, "updated"), text(message, "publishTime")),
        overwrote=text(attributes, "overwroteGeneration") is not None,
    )


def eventarc(type_: str, time: str | None, resource: Item, reading: Reading) -> Parsed:
    """A CloudEvent of Eventarc, whose data is the object's resource."""
    return _event(
        resource,
        reading,
        name=type_,
        meaning=EVENTARC_NAMES.get(type_.removeprefix(EVENTARC_PREFIX), type_),
        bucket=text(resource, "bucket") or "",
        key=need(resource, "name"),
        generation=text(resource, "generation"),
        times=(time, text(resource, "updated")),
    )


def _event(
    resource: Item,
    reading: Reading,
    *,
    name: str,
    meaning: str,
    bucket: str,
    key: str,
    generation: str | None,
    times: tuple[str | None, ...],
    overwrote: bool = False,
) -> Parsed:
    if generation is None or not (generation.isascii() and generation.isdecimal()):
        raise BadItem("has no generation")
    kind = KINDS.get(meaning)
    metageneration = text(resource, "metageneration")
    metadata = pairs(resource.get("metadata"))
    if metadata is None and resource:
        metadata = {}  # the resource was told, and has none
    change = None if kind in ("created", "deleted") else metageneration or times[0]
    return told(
        ObjectEvent(
            id=event_id("gcs", bucket, key, meaning, generation, change),
            kind="changed" if kind == "created" and overwrote else kind or "other",
            key=key,
            at=at_of(reading, *times),
            source="gcs",
            name=name,
            bucket=bucket,
            size_bytes=size(resource, "size"),
            version=generation,
            exact=True,
            content_type=text(resource, "contentType"),
            metadata=metadata,
            order=Order("generation", f"{generation}.{metageneration}" if metageneration else generation),
            hops=hops_of(metadata),
            lineage=lineage_of(metadata),
        ),
        known=kind is not None,
    )


def _resource(message: Item) -> Item:
    """The object's resource, where the notification is configured to bring it and it can be read."""
    data = from_base64(message.get("data"))
    if not data:
        return {}
    try:
        value = decode(data)
    except Invalid:
        return {}
    return value if isinstance(value, dict) else {}
