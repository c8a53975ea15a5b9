"""Azure Blob Storage by Event Grid, in Event Grid's own schema and in that of CloudEvents.

The subject names container and blob and is not percent-encoded; URLs in `data` are. Event Grid sends an event again
under the same id. Answering the handshakes is not done here.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from bucketmq.events.event import Kind, ObjectEvent, Order, event_id, plain_version
from bucketmq.events.parse.fields import Reading, at_of, inner, items_of, need, percent_decoded, size, text
from bucketmq.events.parse.result import IGNORED, BadItem, Confirm, Item, Parsed, gather, told

KINDS: dict[str, Kind] = {
    "Microsoft.Storage.BlobCreated": "created",
    "Microsoft.Storage.BlobDeleted": "deleted",
    "Microsoft.Storage.BlobRenamed": "moved",
    "Microsoft.Storage.BlobTierChanged": "other",
    "Microsoft.Storage.AsyncOperationInitiated": "other",
    "Microsoft.Storage.DirectoryCreated": "other",
    "Microsoft.Storage.DirectoryDeleted": "other",
    "Microsoft.Storage.DirectoryRenamed": "other",
}

ABOUT_NO_BLOB = frozenset(
    {
        "Microsoft.EventGrid.SubscriptionDeletedEvent",
        "Microsoft.Storage.BlobInventoryPolicyCompleted",
        "Microsoft.Storage.LifecyclePolicyCompleted",
        "Microsoft.Storage.StorageTaskAssignmentQueued",
        "Microsoft.Storage.StorageTaskAssignmentCompleted",
        "Microsoft.Storage.StorageTaskQueued",
        "Microsoft.Storage.StorageTaskCompleted",
    }
)

VALIDATION = "Microsoft.EventGrid.SubscriptionValidationEvent"

OPENS_A_FILE = frozenset({"createfile", "sftpcreate"})
"""Calls that make an empty blob for bytes that follow; when those are in, it is told again."""

_CONTAINERS, _BLOBS = "/blobServices/default/containers/", "/blobs/"


def read(value: object, reading: Reading) -> Parsed:
    """A list of events in either schema, or a single one."""
    items = items_of(value, "the body is not from Event Grid: it must be a list of events")
    return gather(items, lambda item: event(item, reading))


def event(item: Item, reading: Reading) -> Parsed:
    """One event in either schema."""
    name = text(item, "eventType") or need(item, "type")
    data = inner(item, "data")
    if name == VALIDATION:
        return _validation(item, data)
    if name in ABOUT_NO_BLOB:
        return IGNORED
    if name == "Microsoft.Storage.BlobCreated" and _is_placeholder(data):
        return IGNORED
    bucket, key = _place(item, data)
    kind = KINDS.get(name)
    etag, sequencer = text(data, "eTag"), text(data, "sequencer")
    time = text(item, "eventTime") or text(item, "time")
    mark = text(item, "id") or sequencer or time
    source_url = text(data, "sourceUrl")
    return told(
        ObjectEvent(
            id=event_id("azure", bucket, key, name, mark),
            kind=kind or "other",
            key=key,
            at=at_of(reading, time),
            source="azure",
            name=name,
            bucket=bucket,
            size_bytes=size(data, "contentLength"),
            version=plain_version(etag) if etag else None,
            exact=etag is not None,
            content_type=text(data, "contentType"),
            order=Order("text", sequencer) if sequencer else None,
            from_key=_in_url(source_url)[1] if kind == "moved" and source_url else None,
        ),
        known=kind is not None,
    )


def _validation(item: Item, data: Item) -> Parsed:
    topic = text(item, "topic") or text(item, "source")
    return Parsed(
        confirm=Confirm(by="eventgrid", code=need(data, "validationCode"), url=text(data, "validationUrl"), topic=topic)
    )


def _is_placeholder(data: Item) -> bool:
    return size(data, "contentLength") == 0 and (text(data, "api") or "").lower() in OPENS_A_FILE


def _place(item: Item, data: Item) -> tuple[str, str]:
    """Container and key."""
    subject = text(item, "subject") or ""
    container, found, key = subject.removeprefix(_CONTAINERS).partition(_BLOBS)
    if subject.startswith(_CONTAINERS) and found and container and key:
        return container, key
    url = text(data, "destinationUrl") or text(data, "url")
    if url is None:
        raise BadItem("names no blob")
    return _in_url(url)


def _in_url(url: str) -> tuple[str, str]:
    """Container and key in `https://account.blob.core.windows.net/container/a%20b.txt`."""
    try:
        path = urlsplit(url).path
    except ValueError:
        raise BadItem(f"has a URL that cannot be read: {url[:100]!r}") from None
    container, _, key = percent_decoded(path.lstrip("/"), "URL").partition("/")
    if not container or not key:
        raise BadItem(f"has a URL that names no blob: {url[:100]!r}")
    return container, key
