"""What webhooks are sent, byte for byte where others rely on it, and what their answers mean."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import unquote_plus

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from hypothesis import given
from hypothesis import strategies as st

from bucketmq.events import formats
from bucketmq.events.event import KINDS, ObjectEvent, Order
from bucketmq.events.parse import parse
from bucketmq.events.rule import Format

AT = "2026-03-04T05:06:07.089123Z"

FULL = ObjectEvent(
    id="evt_00000000000000000000000000000001",
    kind="created",
    key="pending/red flower+50%.json",
    at=AT,
    source="s3",
    name="s3:ObjectCreated:CompleteMultipartUpload",
    bucket="moderation",
    size_bytes=3 << 30,
    version="d41d8cd98f00b204e9800998ecf8427e",
    version_id="v7",
    content_type="application/json",
    order=Order("sequencer", "0055AED6DCD90281E5"),
    hops=2,
    lineage=("evt_a", "evt_b"),
)
BARE = ObjectEvent(id="evt_2", kind="deleted", key="a/b", at=AT, source="sweep")


def encoded(format: Format, *events: ObjectEvent) -> Any:
    return json.loads(formats.encode(format, events)[0])


def as_json(event: ObjectEvent) -> Any:
    return json.loads(formats.msgspec.json.encode(event))


def test_the_tigris_form_is_tigris_form_with_an_id_and_the_event_beside() -> None:
    body, content_type = formats.encode("tigris", [FULL])
    assert content_type == "application/json"
    assert json.loads(body) == {
        "events": [
            {
                "eventVersion": "1",
                "eventSource": "tigris",
                "eventName": "OBJECT_CREATED_PUT",
                "eventTime": "2026-03-04T05:06:07.089Z",
                "bucket": "moderation",
                "object": {"key": FULL.key, "size": 3 << 30, "eTag": FULL.version},
                "id": FULL.id,
                "bucketmq": as_json(FULL),
            }
        ]
    }


def test_size_and_etag_that_are_not_known_keep_their_types_in_the_tigris_form() -> None:
    (event,) = encoded("tigris", BARE)["events"]
    assert event["object"] == {"key": "a/b", "size": 0, "eTag": ""}
    assert "size_bytes" not in event["bucketmq"]


def test_events_from_tigris_keep_tigris_names() -> None:
    event = ObjectEvent(id="e", kind="created", key="k", at=AT, source="tigris", name="OBJECT_CREATED_COPY")
    assert encoded("tigris", event)["events"][0]["eventName"] == "OBJECT_CREATED_COPY"
    assert encoded("s3", event)["Records"][0]["eventName"] == "ObjectCreated:Copy"


def test_the_s3_form_is_an_aws_record() -> None:
    body, content_type = formats.encode("s3", [FULL])
    (record,) = json.loads(body)["Records"]
    assert content_type == "application/json"
    assert record["eventVersion"].startswith("2.")
    assert record["eventSource"] == "aws:s3"
    assert record["eventName"] == "ObjectCreated:CompleteMultipartUpload"
    assert record["eventTime"] == "2026-03-04T05:06:07.089Z"
    assert record["responseElements"]["x-amz-request-id"] == FULL.id
    assert record["s3"]["s3SchemaVersion"] == "1.0"
    assert record["s3"]["bucket"] == {
        "name": "moderation",
        "ownerIdentity": {"principalId": ""},
        "arn": "arn:aws:s3:::moderation",
    }
    assert record["s3"]["object"] == {
        "key": "pending/red+flower%2B50%25.json",
        "size": 3 << 30,
        "eTag": FULL.version,
        "versionId": "v7",
        "sequencer": "0055AED6DCD90281E5",
    }
    assert record["bucketmq"] == as_json(FULL)


def test_an_s3_record_leaves_out_what_is_not_known() -> None:
    (record,) = encoded("s3", BARE)["Records"]
    assert record["eventName"] == "ObjectRemoved:Delete"
    assert record["s3"]["object"] == {"key": "a/b"}


def test_only_a_sequencer_is_told_as_a_sequencer() -> None:
    event = ObjectEvent(id="e", kind="created", key="k", at=AT, source="gcs", order=Order("generation", "17"))
    assert "sequencer" not in encoded("s3", event)["Records"][0]["s3"]["object"]


@pytest.mark.parametrize("name", ["", "s3:", "ObjectCreated:Put\n", "x" * 500, '"', "OBJECT_CREATED_PUT"])
def test_a_name_that_is_none_of_s3_is_replaced_by_the_kinds(name: str) -> None:
    event = ObjectEvent(id="e", kind="changed", key="k", at=AT, source="s3", name=name)
    assert encoded("s3", event)["Records"][0]["eventName"] == "ObjectCreated:Put"


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_an_s3_key_is_form_encoded_and_comes_back(key: str) -> None:
    event = ObjectEvent(id="e", kind="created", key=key, at=AT, source="writer")
    written = encoded("s3", event)["Records"][0]["s3"]["object"]["key"]
    assert re.fullmatch(r"[A-Za-z0-9_.~/+%-]+", written)
    assert unquote_plus(written) == key


def test_one_event_is_a_structured_cloudevent() -> None:
    body, content_type = formats.encode("cloudevents", [FULL])
    assert content_type == "application/cloudevents+json"
    assert json.loads(body) == {
        "specversion": "1.0",
        "id": FULL.id,
        "source": "bucketmq:moderation",
        "type": "bucketmq.object.created",
        "subject": FULL.key,
        "time": AT,
        "datacontenttype": "application/json",
        "data": as_json(FULL),
    }


def test_several_events_are_a_batch_of_cloudevents() -> None:
    body, content_type = formats.encode("cloudevents", [FULL, BARE])
    assert content_type == "application/cloudevents-batch+json"
    assert [each["id"] for each in json.loads(body)] == [FULL.id, BARE.id]


def test_the_cloudevents_package_reads_what_we_write() -> None:
    body, content_type = formats.encode("cloudevents", [FULL])
    read = from_http_event(HTTPMessage(headers={"content-type": content_type}, body=body))
    assert read.get_id() == FULL.id
    assert read.get_type() == "bucketmq.object.created"
    assert read.get_subject() == FULL.key
    assert read.get_data() == as_json(FULL)


@pytest.mark.parametrize("format", ["tigris", "s3", "cloudevents"])
@pytest.mark.parametrize("kind", KINDS)
def test_our_own_receiver_reads_back_every_form_of_every_kind(format: Format, kind: Any) -> None:
    events = tuple(
        ObjectEvent(id=f"evt_{n}", kind=kind, key=f"k {n}", at=AT, source="writer", bucket="b") for n in range(3)
    )
    for some in (events, events[:1]):
        body, content_type = formats.encode(format, some)
        assert parse("auto", {"content-type": content_type}, body, own=True).events == some


@pytest.mark.parametrize(
    ("at", "told"),
    [
        ("2026-03-04T05:06:07.089999Z", "2026-03-04T05:06:07.089Z"),
        ("2026-03-04T05:06:07Z", "2026-03-04T05:06:07.000Z"),
        ("2026-03-04T05:06:07.5+02:00", "2026-03-04T03:06:07.500Z"),
        ("2026-03-04T05:06:07", "2026-03-04T05:06:07.000Z"),
        ("yesterday", "yesterday"),
    ],
)
def test_times_are_told_in_milliseconds_of_utc(at: str, told: str) -> None:
    event = ObjectEvent(id="e", kind="created", key="k", at=at, source="writer")
    assert encoded("tigris", event)["events"][0]["eventTime"] == told


SENT = ["evt_1", "evt_2", "evt_3"]


@pytest.mark.parametrize(
    ("answer", "failed"),
    [
        (b"", None),
        (b"OK", None),
        (b"null", None),
        (b"[]", None),
        (b'"evt_1"', None),
        (b"{}", None),
        (b'{"ok": true}', None),
        (b'{"failed": 0}', None),
        (b'{"failed": "evt_1"}', None),
        (b'{"failed": null}', None),
        (b"\xff\xfe", None),
        (b'{"failed": []}', {}),
        (b'{"batchItemFailures": []}', {}),
        (b'{"failed": ["evt_2"]}', {"evt_2": ""}),
        (b'{"failed": ["evt_1", "evt_9", 7, null, [], {}]}', {"evt_1": ""}),
        (b'{"failed": [{"id": "evt_3", "error": "no such user"}]}', {"evt_3": "no such user"}),
        (b'{"failed": [{"id": "evt_3", "reason": "busy"}, "evt_1"]}', {"evt_3": "busy", "evt_1": ""}),
        (b'{"failed": [{"id": 3}, {"id": "evt_3", "error": {"code": 1}}]}', {"evt_3": ""}),
        (b'{"batchItemFailures": [{"itemIdentifier": "evt_2"}]}', {"evt_2": ""}),
        (b'{"failed": 3, "batchItemFailures": [{"itemIdentifier": "evt_2"}]}', {"evt_2": ""}),
        (b'{"failed": ["evt_1"], "batchItemFailures": [{"itemIdentifier": "evt_2"}]}', {"evt_1": "", "evt_2": ""}),
    ],
)
def test_an_answer_names_the_events_to_send_again(answer: bytes, failed: dict[str, str] | None) -> None:
    assert formats.failures(answer, SENT) == failed


@pytest.mark.parametrize(
    "cut", [b'{"failed": ["evt_1", "evt', b' {"batchItemFailures":[{"itemIdentifier":"evt_', b'{"failed":[1,}']
)
def test_a_list_of_failures_that_is_cut_off_means_all_of_them(cut: bytes) -> None:
    assert set(formats.failures(cut, SENT) or ()) == set(SENT)


def test_an_answer_as_deep_as_it_is_long_says_nothing() -> None:
    assert formats.failures(b"[" * 60_000, SENT) is None
    assert formats.failures(b'{"a":' * 10_000, SENT) is None
    assert set(formats.failures(b'{"failed":[' + b"[" * 60_000, SENT) or ()) == set(SENT)


def test_what_is_kept_of_an_error_is_bounded() -> None:
    answer = json.dumps({"failed": [{"id": "evt_1", "error": "x" * 10_000}]}).encode()
    assert formats.failures(answer, SENT) == {"evt_1": "x" * formats.ERROR_CHARS_MAX}


@given(st.binary())
def test_no_bytes_make_reading_an_answer_fail(answer: bytes) -> None:
    for body in (answer, b'{"failed":' + answer, b'{"failed":[' + answer + b"]}"):
        found = formats.failures(body, SENT)
        assert found is None or found.keys() <= set(SENT)
