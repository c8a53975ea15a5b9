"""What a sender must not be able to do: make up keys that no handler expects, or change what a signature covers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bucketmq.errors import Invalid
from bucketmq.events.parse import KEY_BYTES_MAX, parse

BAD_KEYS = {
    "NUL": "a\0b",
    "escape": "a\x1b]52;c;aGk=\x07",
    "new line": "a\nINFO forged",
    "DEL": "a\x7f",
    "C1": "a\x9b31m",
    "long": "k" * 1025,
    "long in bytes": "é" * 513,
}


def cloud_event(key: str, **fields: Any) -> dict[str, Any]:
    return {"specversion": "1.0", "id": "1", "source": "s", "type": "x.created", "subject": key, **fields} | {
        "time": "2026-03-04T10:30:00Z"
    }


def s3_record(key: str) -> dict[str, Any]:
    return {
        "eventName": "ObjectCreated:Put",
        "eventTime": "2026-03-04T10:30:00.000Z",
        "s3": {"bucket": {"name": "b"}, "object": {"key": "".join(f"%{byte:02X}" for byte in key.encode())}},
    }


@pytest.mark.parametrize("key", BAD_KEYS.values(), ids=BAD_KEYS)
def test_an_item_with_a_key_that_no_handler_expects_is_bad_and_loses_no_other(key: str) -> None:
    parsed = parse("cloudevents", {}, json.dumps([cloud_event("good"), cloud_event(key), cloud_event("fine")]).encode())
    assert [event.key for event in parsed.events] == ["good", "fine"]
    (bad,) = parsed.bad
    assert bad.index == 1
    assert "key" in bad.reason
    assert bad.reason.isprintable()
    assert len(bad.reason) < 300


@pytest.mark.parametrize("key", [each for each in BAD_KEYS.values() if each.isascii()])
def test_the_same_holds_for_what_was_escaped_on_its_way(key: str) -> None:
    body = json.dumps({"Records": [s3_record(key), s3_record("good")]}).encode()
    parsed = parse("s3", {}, body)
    assert ([event.key for event in parsed.events], [bad.index for bad in parsed.bad]) == (["good"], [0])


def test_an_empty_key_is_bad() -> None:
    parsed = parse("s3", {}, json.dumps({"Records": [s3_record(""), s3_record("good")]}).encode())
    assert ([event.key for event in parsed.events], [bad.index for bad in parsed.bad]) == (["good"], [0])


def test_where_an_object_came_from_is_checked_as_well() -> None:
    ours = {"id": "evt_1", "kind": "moved", "key": "k", "at": "2026-03-04T10:30:00.000000Z", "source": "writer"}
    item = cloud_event("k", data={**ours, "from_key": "a\0"}) | {"id": "evt_1", "type": "bucketmq.object.moved"}
    parsed = parse("cloudevents", {}, json.dumps(item).encode())
    assert (parsed.events, len(parsed.bad)) == ((), 1)


@pytest.mark.parametrize(
    "key", ["a", "k" * KEY_BYTES_MAX, "é" * (KEY_BYTES_MAX // 2), "with space & ünïcode/😀", "a\u200bb"]
)
def test_keys_that_stores_have_are_taken(key: str) -> None:
    (event,) = parse("cloudevents", {}, json.dumps(cloud_event(key)).encode()).events
    assert event.key == key


BINARY = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "s", "ce-type": "x.created", "ce-subject": "k"} | {
    "ce-time": "2026-03-04T10:30:00Z"
}


@pytest.mark.parametrize("source", ["auto", "cloudevents", "azure", "gcs"])
def test_what_only_the_body_proves_is_not_read_from_headers(source: str) -> None:
    """A signature covers the body: with headers that count, one captured request would mint any event."""
    assert [event.key for event in parse(source, BINARY, b"{}").events] == ["k"]
    with pytest.raises(Invalid, match="structured mode"):
        parse(source, BINARY, b"{}", signed_body_only=True)


def test_other_headers_do_not_change_how_a_signed_body_is_read() -> None:
    body = json.dumps([cloud_event("k")]).encode()
    plain = parse("auto", {"content-type": "application/cloudevents-batch+json"}, body, signed_body_only=True)
    assert [event.key for event in plain.events] == ["k"]
    for headers in ({"aeg-event-type": "Notification"}, {"x-amz-sns-message-type": "Notification"}):
        assert parse("auto", headers, body, signed_body_only=True) == plain
