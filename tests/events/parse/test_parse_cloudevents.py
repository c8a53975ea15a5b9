"""CloudEvents: foreign ones, known forms inside, and our own on their way back."""

from __future__ import annotations

import json
from collections.abc import Callable
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketmq.errors import Invalid
from bucketmq.events.event import KINDS, LINEAGE_MAX, ObjectEvent, Order, time_text
from bucketmq.events.formats import encode
from bucketmq.events.parse import parse
from bucketmq.events.rule import Format

Payload = Callable[[str], bytes]

FORMATS: tuple[Format, ...] = ("tigris", "s3", "cloudevents")
STRUCTURED = {"content-type": "application/cloudevents+json; charset=utf-8"}
BATCH = {"content-type": "application/cloudevents-batch+json"}

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
some_words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
times = st.floats(0, 4e9).map(time_text)
sizes = st.integers(0, 2**63 - 1)
keys = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=50)
"""What is not a key is refused: see `test_hostile_items.py`."""

events = st.builds(
    ObjectEvent,
    id=some_words,
    kind=st.sampled_from(KINDS),
    key=keys,
    at=times,
    source=st.sampled_from(["tigris", "s3", "gcs", "writer", "sweep"]),
    name=words,
    bucket=words,
    size_bytes=st.none() | sizes,
    version=st.none() | words,
    version_id=st.none() | words,
    exact=st.booleans(),
    content_type=st.none() | words,
    metadata=st.none() | st.dictionaries(words, words, max_size=3),
    tags=st.none() | st.dictionaries(words, words, max_size=3),
    order=st.none() | st.builds(Order, by=st.sampled_from(["sequencer", "generation", "text"]), mark=words),
    from_key=st.none() | keys,
    seen_at=st.none() | times,
    hops=st.integers(0, 1000),
    lineage=st.lists(words, max_size=LINEAGE_MAX).map(tuple),
)


def ours(event: ObjectEvent) -> dict[str, object]:
    """One of our events as a CloudEvent."""
    return {
        "specversion": "1.0",
        "id": event.id,
        "source": f"bucketmq:{event.bucket}",
        "type": f"bucketmq.object.{event.kind}",
        "subject": event.key,
        "time": event.at,
        "datacontenttype": "application/json",
        "data": event,
    }


@given(st.lists(events, max_size=4))
def test_our_own_cloudevents_come_back_as_they_were(given_events: list[ObjectEvent]) -> None:
    batch = msgspec.json.encode([ours(event) for event in given_events])
    assert parse("cloudevents", BATCH, batch).events == tuple(given_events)
    for event in given_events:
        single = msgspec.json.encode(ours(event))
        assert parse("cloudevents", STRUCTURED, single).events == (event,)
        assert parse("auto", {}, single).events == (event,)
        attributes = {name: str(value) for name, value in ours(event).items() if name != "data"}
        headers = {f"ce-{name}": quote(value) for name, value in attributes.items()}
        body = msgspec.json.encode(event)
        parsed = parse("auto", {**headers, "content-type": "application/json"}, body)
        assert parsed.events == (event,)


@given(st.lists(events, min_size=1, max_size=4))
def test_our_own_events_in_other_formats_come_back_only_for_who_believes_them(given_events: list[ObjectEvent]) -> None:
    tigris = msgspec.json.encode({"events": [{"id": event.id, "bucketmq": event} for event in given_events]})
    s3 = msgspec.json.encode({"Records": [{"bucketmq": event} for event in given_events]})
    for source, body in (("tigris", tigris), ("s3", s3), ("auto", tigris), ("auto", s3)):
        assert parse(source, {}, body, own=True).events == tuple(given_events)
        assert parse(source, {}, body).events == ()


@given(st.sampled_from(FORMATS), st.lists(events, max_size=4))
def test_what_we_send_we_can_read(format_: Format, given_events: list[ObjectEvent]) -> None:
    body, content_type = encode(format_, given_events)
    for source in (format_, "auto"):
        assert parse(source, {"content-type": content_type}, body, own=True).events == tuple(given_events)


def test_an_event_of_ours_that_is_not_whole_is_read_as_what_it_comes_in(payload: Payload) -> None:
    body = json.loads(payload("tigris"))
    body["events"][0]["bucketmq"] = {"id": "evt_1", "kind": "sung"}
    assert parse("tigris", {}, json.dumps(body).encode(), own=True) == parse("tigris", {}, payload("tigris"))


@pytest.mark.parametrize(
    "odd",
    [
        {"id": "other"},
        {"subject": "other"},
        {"type": "bucketmq.object.deleted"},
        {"data": None},
        {"data": {"id": "evt_1", "key": "k", "kind": "created", "at": "soon", "source": "writer"}},
        {"data": {"id": "evt_1", "key": "k", "kind": "created", "at": "2026-03-04T10:30:00Z", "source": "writer"}},
    ],
)
def test_what_only_says_to_be_ours_is_bad(odd: dict[str, object]) -> None:
    event = ObjectEvent(id="evt_1", key="k", kind="created", at="2026-03-04T10:30:00.000000Z", source="writer")
    parsed = parse("cloudevents", {}, msgspec.json.encode({**ours(event), **odd}))
    assert (parsed.events, len(parsed.bad)) == ((), 1)


def test_foreign_events_are_about_their_subject(payload: Payload) -> None:
    parsed = parse("cloudevents", BATCH, payload("cloudevents"))
    assert [(event.key, event.kind, event.source) for event in parsed.events] == [
        ("exports/a b.csv", "created", "cloudevents"),
        ("exports/b.csv", "deleted", "cloudevents"),
        ("exports/c.csv", "other", "cloudevents"),
    ]
    assert parsed.unknown == {"example.shop.file.folded": 1}
    assert [(bad.index, bad.reason) for bad in parsed.bad] == [(3, "has no subject")]


def test_binary_mode_says_the_same_as_structured(payload: Payload) -> None:
    item = json.loads(payload("cloudevents"))[0]
    headers = {f"ce-{name}": quote(value) for name, value in item.items()}
    structured = parse("cloudevents", STRUCTURED, json.dumps(item).encode())
    for body in (b"", b"\xff\x00 not JSON", b'{"a":1}'):
        assert parse("cloudevents", {**headers, "content-type": "text/csv"}, body) == structured


def test_a_header_that_is_no_text_makes_a_bad_item(payload: Payload) -> None:
    headers = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "s", "ce-type": "x.created", "ce-subject": "%FF"}
    assert parse("cloudevents", headers, b"").bad[0].reason == "has a ce-subject that is not UTF-8: '%FF'"


def test_eventarc_says_the_same_as_pubsub(payload: Payload) -> None:
    (event,) = parse("gcs", {}, payload("cloudevents-eventarc")).events
    (pushed,) = parse("gcs", {}, payload("gcs")).events
    assert event.name == "google.cloud.storage.object.v1.finalized"
    assert msgspec.structs.replace(event, name=pushed.name) == pushed


def test_s3_records_inside_are_read_as_such(payload: Payload) -> None:
    (event,) = parse("cloudevents", {}, payload("cloudevents-s3")).events
    assert (event.key, event.source, event.kind) == ("red flower.jpg", "s3", "created")
    headers = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "s", "ce-type": "com.amazonaws.ObjectCreated:Put"}
    records = parse("s3", {}, payload("ceph"))
    assert parse("auto", headers, payload("ceph")).events == records.events


def test_data_in_base64_is_read(payload: Payload) -> None:
    event = ObjectEvent(id="evt_1", key="k", kind="created", at="2026-03-04T10:30:00.000000Z", source="writer")
    item = ours(event)
    item["data_base64"] = msgspec.json.encode(event)  # bytes are written as base64
    del item["data"]
    assert parse("cloudevents", {}, msgspec.json.encode(item)).events == (event,)


def test_a_cloudevent_needs_its_four_attributes() -> None:
    whole = {"specversion": "1.0", "id": "1", "source": "s", "type": "x.created", "subject": "k"}
    for name in ("specversion", "id", "source", "type"):
        body = json.dumps({each: value for each, value in whole.items() if each != name}).encode()
        assert parse("cloudevents", {}, body).bad[0].reason == f"has no {name}"
    with pytest.raises(Invalid):
        parse("cloudevents", {}, b"7")
