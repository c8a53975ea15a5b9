"""The object events that are received, delivered and matched: one made-up bucket's worth, each of another object."""

from __future__ import annotations

import msgspec

from bucketmq.events.event import Kind, ObjectEvent, event_id, time_text

BUCKET = "moonlit-press"
FOLDERS = 20
BEGAN = 1_790_000_000.0


def key_of(number: int) -> str:
    return f"orders/{number % FOLDERS:02}/{number:08}.{'json' if number % 3 else 'csv'}"


def event(number: int) -> ObjectEvent:
    at = time_text(BEGAN + number / 1000)
    version = f"{number:032x}"
    kind: Kind = "deleted" if number % 10 == 9 else "created"
    return ObjectEvent(
        id=event_id("tigris", BUCKET, key_of(number), kind, version, at),
        kind=kind,
        key=key_of(number),
        at=at,
        source="tigris",
        name="OBJECT_DELETED" if kind == "deleted" else "OBJECT_CREATED_PUT",
        bucket=BUCKET,
        size_bytes=1_000 + number % 5_000,
        version=version,
    )


def events(start: int, count: int) -> list[ObjectEvent]:
    return [event(number) for number in range(start, start + count)]


def notification(start: int, count: int, *, bucket: str = BUCKET) -> bytes:
    """A body as Tigris sends it."""
    items = [
        {
            "eventVersion": "1",
            "eventSource": "tigris",
            "eventName": each.name,
            "eventTime": each.at,
            "bucket": bucket,
            "object": {"key": each.key, "size": each.size_bytes, "eTag": each.version},
        }
        for each in events(start, count)
    ]
    return msgspec.json.encode({"events": items})
