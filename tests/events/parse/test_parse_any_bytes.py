"""Whatever is sent, the answer is events or `Invalid`."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketmq.errors import Invalid
from bucketmq.events.event import ObjectEvent, seconds_of
from bucketmq.events.parse import EVENTS_MAX, SOURCES, Parsed, parse

FIXTURES = Path(__file__).parent.parent / "fixtures"

NAMES = [
    "Records",
    "events",
    "message",
    "messages",
    "result",
    "body",
    "data",
    "data_base64",
    "attributes",
    "eventType",
    "eventName",
    "eventTime",
    "time",
    "eventSource",
    "s3",
    "object",
    "bucket",
    "name",
    "key",
    "size",
    "eTag",
    "versionId",
    "sequencer",
    "userMetadata",
    "metadata",
    "tags",
    "val",
    "action",
    "detail",
    "detail-type",
    "source",
    "aws.s3",
    "specversion",
    "id",
    "type",
    "subject",
    "Type",
    "TopicArn",
    "Message",
    "SubscribeURL",
    "Event",
    "event_type",
    "old_entry",
    "new_entry",
    "new_parent_path",
    "chunks",
    "fid",
    "extended",
    "mtime",
    "mtime_ns",
    "is_directory",
    "objectId",
    "objectGeneration",
    "bucketId",
    "overwrittenByGeneration",
    "validationCode",
    "sourceUrl",
    "url",
    "bucketmq",
    "kind",
    "at",
    "from_key",
]
TEXTS = [
    "ObjectCreated:Put",
    "s3:ObjectRemoved:Delete",
    "ObjectAcl:Put",
    "OBJECT_CREATED_PUT",
    "OBJECT_FINALIZE",
    "aws:s3",
    "ceph:s3",
    "/",
    "2026-03-04T10:30:00Z",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:60Z",
    "Microsoft.Storage.BlobCreated",
    "aws.s3",
    "%FF",
    "a+b",
    "Nw==",
    "Microsoft.Storage.BlobRenamed",
    "Microsoft.EventGrid.SubscriptionValidationEvent",
    "Notification",
    "SubscriptionConfirmation",
    "/blobServices/default/containers/c/blobs/k",
    "/buckets/b/k",
    "/buckets/b",
    "create",
    "rename",
    "Object",
    "com.amazonaws.s3.x",
    "1772620200",
    "google.cloud.storage.object.v1.deleted",
    "bucketmq.object.created",
    "PutObject",
    "https://[",
    "00A8",
    "1.0",
    "x",
]

texts = st.sampled_from(TEXTS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
leaves = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | texts
values = st.recursive(
    leaves,
    lambda inside: (
        st.lists(inside, max_size=3)
        | st.dictionaries(st.sampled_from(NAMES), inside, max_size=8)
        | st.dictionaries(texts, inside, max_size=3)
    ),
    max_leaves=40,
)
items = st.dictionaries(st.sampled_from(NAMES), values, min_size=3, max_size=12)
bodies = values | items | st.lists(items, max_size=3) | st.builds(
    lambda name, inside: {name: inside}, st.sampled_from(["Records", "events", "messages", "message"]), st.lists(items)
)  # fmt: skip
header_names = st.sampled_from(
    ["ce-specversion", "ce-id", "ce-type", "ce-source", "ce-subject", "ce-time", "content-type", "aeg-event-type"]
)
headers_of_any_kind = st.dictionaries(header_names, texts | st.just("application/cloudevents+json"), max_size=7)


def check(parsed: Parsed) -> None:
    """What a parser lets through can be kept, ordered and read back."""
    for event in parsed.events:
        assert event.id
        assert event.key
        seconds_of(event.at)
        assert msgspec.json.decode(msgspec.json.encode(event), type=ObjectEvent) == event


@given(st.sampled_from(SOURCES), headers_of_any_kind, st.binary(max_size=200), st.booleans())
def test_any_bytes_are_events_or_invalid(source: str, headers: dict[str, str], body: bytes, own: bool) -> None:
    with contextlib.suppress(Invalid):
        check(parse(source, headers, body, own=own))


@given(st.sampled_from(SOURCES), headers_of_any_kind, bodies, st.booleans())
def test_any_json_is_events_or_invalid(source: str, headers: dict[str, str], value: object, own: bool) -> None:
    body = json.dumps(value).encode()
    with contextlib.suppress(Invalid):
        check(parse(source, headers, body, own=own, received_at="2026-03-04T11:00:00.000000Z"))


REAL = {str(path.relative_to(FIXTURES)): json.loads(path.read_text()) for path in sorted(FIXTURES.rglob("*.json"))}


def with_one_thing_changed(value: object, draw: st.DataObject, other: object) -> object:
    """`value` with `other` in the place of something in it."""
    if isinstance(value, dict | list) and value and draw.draw(st.integers(0, 5)):
        places = sorted(value) if isinstance(value, dict) else range(len(value))
        place = draw.draw(st.sampled_from(places))
        copy = value.copy()
        copy[place] = with_one_thing_changed(value[place], draw, other)
        return copy
    return other


@given(st.sampled_from(sorted(REAL)), st.data(), values)
def test_a_real_body_with_one_thing_changed_is_events_or_invalid(name: str, draw: st.DataObject, other: object) -> None:
    source = name.split("/", maxsplit=1)[0].split("-", maxsplit=1)[0].removesuffix(".json")
    body = json.dumps(with_one_thing_changed(REAL[name], draw, other)).encode()
    for each in (source, "auto"):
        with contextlib.suppress(Invalid):
            check(parse(each, {}, body, own=True, received_at="2026-03-04T11:00:00.000000Z"))


@pytest.mark.parametrize("source", SOURCES)
def test_json_nested_a_hundred_thousand_deep_is_invalid(source: str) -> None:
    for opening in (b"[", b'{"message":', b'{"Records":[', b'{"events":['):
        with pytest.raises(Invalid, match="nested too deeply"):
            parse(source, {}, opening * 100_000)


def test_json_nested_as_deep_as_the_decoder_allows_is_no_crash() -> None:
    for depth in range(700, 1000, 20):
        deep = b"[" * depth + b"]" * depth
        entry = b'{"name":"k","attributes":{"mtime":1,"md5":' + deep + b'},"extended":{"a":' + deep + b"}}"
        message = b'{"old_entry":' + entry + b',"new_entry":' + entry + b"}"
        body = b'{"event_type":"update","key":"/buckets/b/k","message":' + message + b"}"
        with contextlib.suppress(Invalid):
            check(parse("seaweedfs", {}, body))


@pytest.mark.parametrize("source", SOURCES)
def test_what_is_no_json_is_invalid_and_says_so(source: str) -> None:
    for body in (b"", b"hello", b'{"events":[', b'"\xff"', b"<xml/>"):
        with pytest.raises(Invalid, match="not JSON"):
            parse(source, {}, body)


def test_too_many_events_are_refused() -> None:
    item = {"eventName": "OBJECT_CREATED_PUT", "eventTime": "2026-03-04T10:30:00Z", "object": {"key": "k"}}
    assert len(parse("tigris", {}, json.dumps({"events": [item] * EVENTS_MAX}).encode()).events) == EVENTS_MAX
    with pytest.raises(Invalid, match="smaller batches"):
        parse("tigris", {}, json.dumps({"events": [item] * (EVENTS_MAX + 1)}).encode())


def test_an_unknown_source_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(Invalid, match="tigris, s3"):
        parse("carrier-pigeon", {}, b"{}")
