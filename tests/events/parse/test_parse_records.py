"""Tigris, and S3's records by AWS, MinIO and Ceph, plain and through SNS; EventBridge."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from bucketmq.errors import Invalid
from bucketmq.events.order import newer
from bucketmq.events.parse import Confirm, parse

Payload = Callable[[str], bytes]


def test_tigris_keys_are_plain_and_every_name_has_its_kind(payload: Payload) -> None:
    parsed = parse("tigris", {}, payload("tigris"))
    assert [event.kind for event in parsed.events] == [
        "created", "created", "created", "deleted", "other", "moved", "other"
    ]  # fmt: skip
    first = parsed.events[0]
    assert (first.key, first.size_bytes, first.bucket) == ("pending/a+b%20ü.json", 5368709120, "moonlit-press")
    assert (first.version, first.exact, first.order) == ("0cc175b9c0f1b6a831c399e269772661", False, None)
    assert (first.at, first.source) == ("2026-03-04T10:30:00.125000Z", "tigris")
    assert parsed.unknown == {"OBJECT_SOMETHING_NEW": 1}
    assert parsed.events[-1].name == "OBJECT_SOMETHING_NEW"
    assert len({event.id for event in parsed.events}) == 7
    assert parse("auto", {}, payload("tigris")) == parsed


def test_an_empty_batch_says_nothing_and_is_fine() -> None:
    for source, body in (("tigris", b'{"events":[]}'), ("s3", b'{"Records":[]}'), ("azure", b"[]"), ("auto", b"[]")):
        assert parse(source, {}, body).events == ()


def test_a_bad_item_loses_no_good_one(payload: Payload) -> None:
    batch = json.loads(payload("tigris"))
    good = batch["events"][0]
    bad = [7, {**good, "object": None}, {**good, "object": {}}, {**good, "eventTime": "soon"}]
    batch["events"] = [good, *bad, {**good, "bucket": "b"}]
    parsed = parse("tigris", {}, json.dumps(batch).encode())
    assert [event.bucket for event in parsed.events] == ["moonlit-press", "b"]
    assert [(each.index, each.reason) for each in parsed.bad] == [
        (1, "is not a JSON object"), (2, "has no object object"), (3, "has no key"), (4, "tells no time")
    ]  # fmt: skip


def test_where_no_time_is_told_the_time_of_receipt_stands_in_and_the_id_does_not_depend_on_it(payload: Payload) -> None:
    batch = json.loads(payload("tigris"))
    del batch["events"][1:], batch["events"][0]["eventTime"]
    body = json.dumps(batch).encode()
    (one,) = parse("tigris", {}, body, received_at="2026-03-04T11:00:00.000000Z").events
    (two,) = parse("tigris", {}, body, received_at="2026-03-04T12:00:00.000000Z").events
    assert (one.at, one.id) == ("2026-03-04T11:00:00.000000Z", two.id)


def test_another_write_of_the_same_bytes_and_the_same_bytes_elsewhere_have_other_ids(payload: Payload) -> None:
    for source, field, change in (("tigris", "events", "eventTime"), ("s3", "Records", "eventTime")):
        batch = json.loads(payload(source))
        item = batch[field][0]
        moved = json.loads(json.dumps(item))
        (moved.get("object") or moved["s3"]["object"])["key"] += "x"
        again = json.loads(json.dumps(item))
        again[change] = "2026-03-04T10:30:00.126Z"
        again.get("s3", {}).get("object", {})["sequencer"] = "0055AED6DCD90281E6"
        parsed = parse(source, {}, json.dumps({field: [item, moved, again, item]}).encode())
        ids = [event.id for event in parsed.events]
        assert len(set(ids)) == 3
        assert ids[0] == ids[3]


def test_s3_keys_are_form_decoded_and_names_have_their_kinds(payload: Payload) -> None:
    parsed = parse("s3", {}, payload("s3"))
    assert [(event.key, event.kind) for event in parsed.events] == [
        ("red flower/grün+1.jpg", "created"),
        ("big.bin", "created"),
        ("gone.txt", "deleted"),
        ("marked.txt", "deleted"),
        ("expired.txt", "deleted"),
        ("tagged.txt", "other"),
        ("thawed.txt", "other"),
        ("song.txt", "created"),
        ("song.txt", "other"),
    ]
    assert parsed.unknown == {"ObjectSung:Loud": 1}
    first, second, _, marked = parsed.events[:4]
    assert (first.source, first.size_bytes) == ("s3", 5368709120)
    assert (first.version_id, first.exact) == ("096fKKXTRTtl3on89fVO.nfljtsv6qko", True)
    assert (second.version_id, second.exact) == (None, False)
    assert (marked.version_id, marked.exact) == ("null", False)


def test_a_key_that_is_no_text_is_a_bad_item() -> None:
    record = {"eventName": "ObjectCreated:Put", "eventTime": "2026-03-04T10:30:00Z", "s3": {"object": {"key": "a%FF"}}}
    parsed = parse("s3", {}, json.dumps({"Records": [record]}).encode())
    assert parsed.events == ()
    assert parsed.bad[0].reason == "has a key that is not UTF-8: 'a%FF'"


@pytest.mark.parametrize("source", ["s3", "minio", "ceph", "sns", "auto"])
def test_a_test_event_is_ignored(source: str, payload: Payload) -> None:
    assert parse(source, {}, payload("s3-test")).ignored == 1


def test_minio_tells_type_and_metadata_and_hops(payload: Payload) -> None:
    (event,) = parse("minio", {}, payload("minio")).events
    assert (event.source, event.key, event.name) == ("minio", "drafts/red flower.txt", "s3:ObjectCreated:Put")
    assert event.content_type == "text/plain"
    assert event.metadata == {"author": "Mia", "bucketmq-hops": "3", "bucketmq-lineage": "evt_1, evt_2,,evt_3"}
    assert (event.hops, event.lineage) == (3, ("evt_1", "evt_2", "evt_3"))
    assert parse("s3", {}, payload("minio")).events == (event,)
    (deleted,) = parse("minio", {}, payload("minio-delete")).events
    assert (deleted.kind, newer(deleted, event), newer(event, deleted)) == ("deleted", True, False)


@pytest.mark.parametrize("hops", ["", "-1", "many", "٣", "9" * 30])
def test_bad_hops_and_too_long_a_lineage_are_cut_to_size(hops: str, payload: Payload) -> None:
    body = json.loads(payload("minio"))
    metadata = body["Records"][0]["s3"]["object"]["userMetadata"]
    metadata["X-Amz-Meta-Bucketmq-Hops"] = hops
    metadata["X-Amz-Meta-Bucketmq-Lineage"] = ",".join([f"evt_{n}" for n in range(40)] + ["x" * 1000])
    (event,) = parse("minio", {}, json.dumps(body).encode()).events
    assert event.hops == 0
    assert event.lineage == tuple(f"evt_{n}" for n in range(24, 40))


def test_ceph_keys_are_plain_and_its_sequencers_grow_with_time(payload: Payload) -> None:
    put, expired, old_version = parse("ceph", {}, payload("ceph")).events
    assert (put.source, put.key, put.size_bytes, put.version_id) == ("ceph", "a+b%20c.txt", 1024, None)
    assert (put.metadata, put.content_type, put.tags) == ({"author": "Mia"}, "text/plain", {"Team": "red"})
    assert (expired.kind, old_version.kind) == ("deleted", "other")
    assert newer(old_version, expired) is True  # as written it is less: 00 before A8
    assert put.order is not None
    assert put.order.mark == f"{1772620200:08x}{125_000_000:08x}"


def test_a_ceph_sequencer_that_is_not_the_time_orders_nothing(payload: Payload) -> None:
    for odd in ("0055AED6DCD90281E5", "zz", "0000000000000000", ""):
        body = json.loads(payload("ceph"))
        body["Records"][0]["s3"]["object"]["sequencer"] = odd
        assert parse("ceph", {}, json.dumps(body).encode()).events[0].order is None


def test_eventbridge_keys_are_plain_and_a_repeat_has_the_same_id(payload: Payload) -> None:
    (event,) = parse("eventbridge", {}, payload("eventbridge")).events
    assert (event.key, event.kind, event.size_bytes) == ("a+b%20ü.json", "created", 5368709120)
    assert (event.version_id, event.exact) == ("IYV3p45BT0ac8hjHg1houSdS1a.Mro8e", True)
    again = json.loads(payload("eventbridge")) | {"id": "another"}
    assert parse("auto", {}, json.dumps([again]).encode()).events[0].id == event.id
    (deleted,) = parse("auto", {}, payload("eventbridge-deleted")).events
    assert (deleted.kind, deleted.version, newer(deleted, event)) == ("deleted", None, True)


def test_sns_envelopes_are_opened_and_raw_delivery_needs_none(payload: Payload) -> None:
    (event,) = parse("sns", {}, payload("sns")).events
    assert (event.key, event.source) == ("red flower.jpg", "s3")
    assert parse("auto", {"x-amz-sns-message-type": "Notification"}, payload("sns")).events == (event,)
    inside = json.loads(payload("sns"))["Message"].encode()
    assert parse("sns", {"x-amz-sns-rawdelivery": "true"}, inside).events == (event,)
    assert parse("sns", {}, payload("sns-test")).ignored == 1
    assert parse("sns", {}, payload("eventbridge")).events[0].source == "eventbridge"


def test_an_sns_subscription_asks_to_be_confirmed(payload: Payload) -> None:
    parsed = parse("auto", {}, payload("sns-confirm"))
    assert parsed.confirm == Confirm(
        by="sns",
        url="https://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription&Token=EXAMPLE",
        topic="arn:aws:sns:eu-west-1:111122223333:changes",
    )
    assert parsed.events == ()


def test_an_sns_message_that_cannot_be_read_is_a_bad_item(payload: Payload) -> None:
    envelope = json.loads(payload("sns")) | {"Message": "hello"}
    parsed = parse("sns", {}, json.dumps(envelope).encode())
    assert [bad.index for bad in parsed.bad] == [0]
    assert "Message" in parsed.bad[0].reason


def test_sizes_that_are_none_are_left_out_and_the_event_stays(payload: Payload) -> None:
    for odd in (-1, True, 1.5, 2**63, "12x", None, []):
        body = json.loads(payload("tigris"))
        body["events"][0]["object"]["size"] = odd
        assert parse("tigris", {}, json.dumps(body).encode()).events[0].size_bytes is None


@pytest.mark.parametrize(
    ("source", "body"),
    [("tigris", b"[]"), ("s3", b'{"events":[]}'), ("eventbridge", b"7"), ("sns", b"[]"), ("auto", b'{"hello":1}')],
)
def test_a_body_of_the_wrong_shape_is_refused_as_a_whole(source: str, body: bytes) -> None:
    with pytest.raises(Invalid):
        parse(source, {}, body)
