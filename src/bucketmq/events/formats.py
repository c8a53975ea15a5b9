"""Events as others read them: the three bodies a webhook can have, and what its answer says of single events.

`procedures.rules.webhook` encodes a batch here, posts it, and asks `failures` about the answer. Each event also travels
whole, as `bucketmq`, because no foreign format has a place for everything. Reading such bodies belongs to
`events.parse`; signatures to `events.signing`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, assert_never
from urllib.parse import quote, quote_plus

import msgspec

from bucketmq.events.event import Kind, ObjectEvent, event_type
from bucketmq.events.rule import Format

JSON = "application/json"
CLOUDEVENT = "application/cloudevents+json"
CLOUDEVENTS_BATCH = "application/cloudevents-batch+json"

ERROR_CHARS_MAX = 500
"""How much of what an endpoint says about one event is kept."""

UNREADABLE = "the answer began to name failed events and could not be read to its end, so all of them count as failed"

_S3_NAMES: dict[Kind, str] = {
    "created": "ObjectCreated:Put",
    "changed": "ObjectCreated:Put",
    "deleted": "ObjectRemoved:Delete",
    "moved": "ObjectCreated:Copy",  # S3 has no word for it; that the object appeared at this key is true
    "other": "LifecycleTransition",
}
_S3_NAMES_OF_TIGRIS = {
    "OBJECT_CREATED_COPY": "ObjectCreated:Copy",
    "OBJECT_CREATED_MULTIPART": "ObjectCreated:CompleteMultipartUpload",
}
_S3_SOURCES = frozenset({"s3", "minio", "ceph"})
_S3_NAME = re.compile(r"(?:s3:)?([A-Z][A-Za-z]{2,40}(?::[A-Za-z]{1,40}){0,2})\Z")


def encode(format: Format, events: Sequence[ObjectEvent]) -> tuple[bytes, str]:
    """The body of a request that reports these events, and its content type."""
    match format:
        case "tigris":
            return msgspec.json.encode({"events": [_tigris(each) for each in events]}), JSON
        case "s3":
            return msgspec.json.encode({"Records": [_s3(each) for each in events]}), JSON
        case "cloudevents" if len(events) == 1:
            return msgspec.json.encode(_cloudevent(events[0])), CLOUDEVENT
        case "cloudevents":
            return msgspec.json.encode([_cloudevent(each) for each in events]), CLOUDEVENTS_BATCH
        case _:
            assert_never(format)


def _tigris(event: ObjectEvent) -> dict[str, Any]:
    """Tigris always tells size and eTag as a number and a text, so what is not known is 0 and empty here."""
    return {
        "eventVersion": "1",
        "eventSource": "tigris",
        "eventName": event_type(event),
        "eventTime": _milliseconds(event.at),
        "bucket": event.bucket,
        "object": {"key": event.key, "size": event.size_bytes or 0, "eTag": event.version or ""},
        "id": event.id,
        "bucketmq": event,
    }


def _s3(event: ObjectEvent) -> dict[str, Any]:
    """A record as AWS writes it. Whoever was told by request id tells repeats apart by the event's id."""
    told: dict[str, Any] = {"key": quote_plus(event.key, safe="/")}
    if event.size_bytes is not None:
        told["size"] = event.size_bytes
    if event.version is not None:
        told["eTag"] = event.version
    if event.version_id is not None:
        told["versionId"] = event.version_id
    if event.order is not None and event.order.by == "sequencer":
        told["sequencer"] = event.order.mark
    return {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": "",
        "eventTime": _milliseconds(event.at),
        "eventName": _s3_name(event),
        "userIdentity": {"principalId": ""},
        "requestParameters": {"sourceIPAddress": ""},
        "responseElements": {"x-amz-request-id": event.id, "x-amz-id-2": ""},
        "s3": {
            "s3SchemaVersion": "1.0",
            "configurationId": "bucketmq",
            "bucket": {
                "name": event.bucket,
                "ownerIdentity": {"principalId": ""},
                "arn": f"arn:aws:s3:::{event.bucket}",
            },
            "object": told,
        },
        "bucketmq": event,
    }


def _s3_name(event: ObjectEvent) -> str:
    if event.source in _S3_SOURCES and (found := _S3_NAME.match(event.name)):
        return found[1]
    if event.source == "tigris" and event.name in _S3_NAMES_OF_TIGRIS:
        return _S3_NAMES_OF_TIGRIS[event.name]
    return _S3_NAMES[event.kind]


def _cloudevent(event: ObjectEvent) -> dict[str, Any]:
    return {
        "specversion": "1.0",
        "id": event.id,
        "source": "bucketmq:" + quote(event.bucket),
        "type": f"bucketmq.object.{event.kind}",
        "subject": event.key,
        "time": event.at,
        "datacontenttype": JSON,
        "data": event,
    }


def _milliseconds(at: str) -> str:
    """An event's time as Tigris and AWS write it. A time nobody can read is passed on as it came."""
    try:
        time = datetime.fromisoformat(at)
    except ValueError:
        return at
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


_NAMES_FAILURES = re.compile(rb'\s*\{\s*"(?:failed|batchItemFailures)"\s*:\s*\[\s*[^\s\]]')
_ID_NAMES = ("id", "itemIdentifier")
_ERROR_NAMES = ("error", "reason", "message")


def failures(answer_body: bytes, sent: Sequence[str]) -> dict[str, str] | None:
    """Which of the events `sent` an answer with a good status says have failed, each with what it says, or "".

    Read are `{"failed": ["evt_..."]}`, `{"failed": [{"id": ..., "error": ...}]}` and
    `{"batchItemFailures": [{"itemIdentifier": ...}]}`. None: the answer says nothing about single events. Ids that were
    not sent are passed over. A list of failures that is cut off or broken means that all have failed: sending an event
    again is allowed, losing one is not.
    """
    try:
        answer = msgspec.json.decode(answer_body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return dict.fromkeys(sent, UNREADABLE) if _NAMES_FAILURES.match(answer_body) else None
    if not isinstance(answer, dict):
        return None
    lists = [answer[name] for name in ("failed", "batchItemFailures") if isinstance(answer.get(name), list)]
    if not lists:
        return None
    known = frozenset(sent)
    return {id: error for each in lists for id, error in map(_failure, each) if id in known}


def _failure(item: Any) -> tuple[str, str]:
    if isinstance(item, str):
        return item, ""
    if not isinstance(item, dict):
        return "", ""
    id = next((item[name] for name in _ID_NAMES if isinstance(item.get(name), str)), "")
    error = next((item[name] for name in _ERROR_NAMES if isinstance(item.get(name), str)), "")
    return id, error[:ERROR_CHARS_MAX]
