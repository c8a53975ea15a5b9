"""Whose notification is this? By the headers that only one sender has, then by the shape of the body."""

from __future__ import annotations

from collections.abc import Mapping

from bucketmq.events.parse import aws, cloudevents, records
from bucketmq.events.parse.result import Item

_HEADERS = {"x-amz-sns-message-type": "sns", "aeg-event-type": "azure"}


def recognise(headers: Mapping[str, str], value: object) -> str | None:
    """The name of the source; None if nobody known writes like that."""
    if cloudevents.is_structured(headers):
        return "cloudevents"
    for header, source in _HEADERS.items():
        if header in headers:
            return source
    if not isinstance(value, list):
        return _of_item(value) if isinstance(value, dict) else None
    for item in value:
        source_of_item = _of_item(item) if isinstance(item, dict) else None
        if source_of_item is not None:
            return source_of_item
    return None


def _of_item(item: Item) -> str | None:
    if isinstance(item.get("Records"), list) or item.get("Event") == records.TEST_EVENT:
        return "s3"
    if isinstance(item.get("events"), list):
        return "tigris"
    if "TopicArn" in item and item.get("Type") in aws.SNS_TYPES:
        return "sns"
    if "specversion" in item:
        return "cloudevents"
    if "detail-type" in item:
        return "eventbridge"
    if isinstance(item.get("message"), dict):
        return "seaweedfs" if "event_type" in item else "gcs"
    if "eventType" in item:
        return "azure"
    if "action" in item or isinstance(item.get("messages"), list) or isinstance(item.get("result"), dict):
        return "r2"
    return None
