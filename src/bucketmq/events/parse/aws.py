"""What AWS wraps around S3's events: EventBridge's own form, and SNS's envelope around either form.

Whether an SNS message is signed by AWS, and fetching the address that confirms a subscription, is not done here.
"""

from __future__ import annotations

from bucketmq.errors import Invalid
from bucketmq.events.event import Kind, ObjectEvent, Order, event_id, plain_version
from bucketmq.events.parse import records
from bucketmq.events.parse.fields import Reading, at_of, decode, inner, items_of, need, need_inner, size, text
from bucketmq.events.parse.result import IGNORED, Bad, BadItem, Confirm, Item, Parsed, gather, told

KINDS: dict[str, Kind] = {
    "Object Created": "created",
    "Object Deleted": "deleted",
    "Object Restore Initiated": "other",
    "Object Restore Completed": "other",
    "Object Restore Expired": "other",
    "Object Storage Class Changed": "other",
    "Object Access Tier Changed": "other",
    "Object ACL Updated": "other",
    "Object Tags Added": "other",
    "Object Tags Deleted": "other",
}

SNS_TYPES = ("Notification", "SubscriptionConfirmation", "UnsubscribeConfirmation")


def eventbridge(value: object, reading: Reading) -> Parsed:
    """One event, or a list of them. Keys are plain."""
    items = items_of(value, "the body is not an event of EventBridge: it must be a JSON object")
    return gather(items, lambda item: _event(item, reading))


def _event(item: Item, reading: Reading) -> Parsed:
    name = need(item, "detail-type")
    if item.get("source") != "aws.s3":
        raise BadItem("is not from aws.s3")
    detail = need_inner(item, "detail")
    object_ = need_inner(detail, "object")
    key = need(object_, "key")
    bucket = text(inner(detail, "bucket"), "name") or ""
    kind = KINDS.get(name)
    etag, version_id, sequencer = text(object_, "etag"), text(object_, "version-id"), text(object_, "sequencer")
    time = text(item, "time")
    # S3 may hand one change to EventBridge twice, under two ids; the sequencer is the same then.
    mark = sequencer or text(item, "id") or time
    return told(
        ObjectEvent(
            id=event_id("eventbridge", bucket, key, name, version_id, etag, mark),
            kind=kind or "other",
            key=key,
            at=at_of(reading, time),
            source="eventbridge",
            name=name,
            bucket=bucket,
            size_bytes=size(object_, "size"),
            version=plain_version(etag) if etag else None,
            version_id=version_id,
            exact=version_id is not None and version_id != "null",
            order=Order("sequencer", sequencer) if sequencer else None,
        ),
        known=kind is not None,
    )


def sns(value: object, reading: Reading) -> Parsed:
    """An envelope; or what would be in it, where SNS was told to deliver without."""
    if not isinstance(value, dict):
        raise Invalid("the body is not a message of SNS: it must be a JSON object")
    match value.get("Type") if "TopicArn" in value else None:
        case "SubscriptionConfirmation":
            return _confirmation(value)
        case "UnsubscribeConfirmation":
            return IGNORED
        case "Notification":
            return _notification(value, reading)
        case _:
            return _inside(value, reading)


def _confirmation(value: Item) -> Parsed:
    url, topic = text(value, "SubscribeURL"), text(value, "TopicArn")
    if url is None or topic is None:
        raise Invalid("the subscription confirmation has no SubscribeURL or no TopicArn")
    return Parsed(confirm=Confirm(by="sns", url=url, topic=topic))


def _notification(value: Item, reading: Reading) -> Parsed:
    try:
        return _inside(decode(text(value, "Message") or ""), reading)
    except Invalid as error:
        return Parsed(bad=(Bad(0, f"has a Message that cannot be read: {error}"),))


def _inside(value: object, reading: Reading) -> Parsed:
    if isinstance(value, dict) and "detail-type" in value:
        return eventbridge(value, reading)
    return records.read(value, reading)
