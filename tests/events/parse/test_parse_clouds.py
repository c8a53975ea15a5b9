"""Google Cloud Storage, Azure and R2."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from bucketmq.errors import Invalid
from bucketmq.events.event import Order
from bucketmq.events.order import newer
from bucketmq.events.parse import Confirm, parse

Payload = Callable[[str], bytes]


def test_gcs_generations_are_exact_versions_and_order(payload: Payload) -> None:
    (event,) = parse("gcs", {}, payload("gcs")).events
    assert (event.key, event.kind, event.bucket) == ("a+b%20ü.json", "created", "moonlit-press")
    assert (event.version, event.exact, event.size_bytes) == ("1772620200125000", True, 5368709120)
    assert event.order == Order("generation", "1772620200125000.1")
    assert (event.content_type, event.hops, event.lineage) == ("application/json", 1, ("evt_0",))
    assert event.metadata == {"author": "Mia", "bucketmq-hops": "1", "bucketmq-lineage": "evt_0"}
    assert parse("auto", {}, payload("gcs")).events == (event,)


def test_gcs_sends_one_change_under_several_message_ids_and_it_stays_one(payload: Payload) -> None:
    again = json.loads(payload("gcs"))
    again["message"]["messageId"] = "999"
    again["message"]["publishTime"] = "2026-03-04T10:31:01.003Z"
    bare = parse("gcs", {}, payload("gcs-bare")).events[0]
    ids = {parse("gcs", {}, body).events[0].id for body in (payload("gcs"), json.dumps(again).encode())}
    assert ids == {bare.id}
    assert (bare.metadata, bare.size_bytes) == (None, None)  # not told, as opposed to none


def test_a_gcs_overwrite_is_one_event(payload: Payload) -> None:
    (overwrite,) = parse("gcs", {}, payload("gcs-overwrite")).events
    assert overwrite.kind == "changed"
    ended = parse("gcs", {}, payload("gcs-overwritten"))
    assert (ended.events, ended.ignored) == ((), 1)


def test_gcs_events_of_one_generation_are_in_order(payload: Payload) -> None:
    created, metadata, deleted, overwrite = (
        parse("gcs", {}, payload(name)).events[0] for name in ("gcs", "gcs-metadata", "gcs-delete", "gcs-overwrite")
    )
    assert (metadata.kind, deleted.kind) == ("other", "deleted")
    assert len({created.id, metadata.id, deleted.id, overwrite.id}) == 4
    assert [newer(metadata, created), newer(deleted, metadata), newer(overwrite, deleted)] == [True, True, True]
    assert [newer(created, metadata), newer(metadata, deleted), newer(deleted, overwrite)] == [False, False, False]


def test_gcs_data_that_cannot_be_read_loses_no_event(payload: Payload) -> None:
    body = json.loads(payload("gcs"))
    body["message"]["data"] = "%%%"
    (event,) = parse("gcs", {}, json.dumps(body).encode()).events
    assert (event.key, event.version) == ("a+b%20ü.json", "1772620200125000")


def test_a_gcs_message_without_a_generation_is_bad(payload: Payload) -> None:
    body = json.loads(payload("gcs-bare"))
    del body["message"]["attributes"]["objectGeneration"]
    assert parse("gcs", {}, json.dumps(body).encode()).bad[0].reason == "has no generation"


def test_azure_events_by_event_grid(payload: Payload) -> None:
    parsed = parse("azure", {}, payload("azure"))
    assert [(event.key, event.kind) for event in parsed.events] == [
        ("in/a b+%41.json", "created"),
        ("in/empty.txt", "created"),
        ("in/gone.txt", "deleted"),
        ("out/a b.txt", "moved"),
        ("in/cold.txt", "other"),
        ("in/song.txt", "other"),
    ]
    assert parsed.ignored == 2  # the file that was only opened, and an inventory
    assert parsed.unknown == {"Microsoft.Storage.BlobSung": 1}
    first, moved = parsed.events[0], parsed.events[3]
    assert (first.bucket, first.version, first.exact) == ("press", "0x8D4BCC2E4835CD0", True)
    assert (first.at, first.size_bytes) == ("2026-03-04T10:30:00.123456Z", 5368709120)
    assert first.order == Order("text", "00000000000004420000000000028963")
    assert moved.from_key == "in/a b.txt"
    assert parse("auto", {}, payload("azure")) == parsed


def test_azure_says_the_same_in_both_schemas(payload: Payload) -> None:
    native = parse("azure", {}, payload("azure")).events[0]
    for source in ("azure", "cloudevents", "auto"):
        assert parse(source, {}, payload("azure-cloudevents")).events == (native,)


def test_azure_asks_to_prove_the_address(payload: Payload) -> None:
    parsed = parse("auto", {"aeg-event-type": "SubscriptionValidation"}, payload("azure-validation"))
    assert parsed.confirm == Confirm(
        by="eventgrid",
        code="512d38b6-c7b8-40c8-89fe-f46f9e9622b6",
        url="https://rp-westeurope.eventgrid.azure.net/validate?id=EXAMPLE",
        topic="/subscriptions/s",
    )


def test_an_azure_event_without_subject_is_about_the_blob_of_its_url(payload: Payload) -> None:
    item = json.loads(payload("azure"))[0] | {"subject": ""}
    item["data"]["url"] = "https://moonlit.blob.core.windows.net/press/in/a%20b.json?x=1"
    assert parse("azure", {}, json.dumps([item]).encode()).events[0].key == "in/a b.json"
    for odd in ("https://[", "https://moonlit.blob.core.windows.net/press", "https://h/press/%FF", ""):
        item["data"]["url"] = odd
        parsed = parse("azure", {}, json.dumps([item]).encode())
        assert (parsed.events, len(parsed.bad)) == ((), 1)


def test_r2_copies_are_creations_and_deletions_have_a_stable_id(payload: Payload) -> None:
    (copied,) = parse("r2", {}, payload("r2")).events
    assert (copied.key, copied.kind, copied.from_key) == ("a+b%20ü.json", "created", None)
    assert (copied.size_bytes, copied.version) == (5368709120, "c846ff7a18f28c2e262116d6e8719ef0")
    (deleted,) = parse("auto", {}, payload("r2-delete")).events
    assert (deleted.kind, deleted.version, deleted.size_bytes) == ("deleted", None, None)
    assert parse("r2", {}, payload("r2-delete")).events == (deleted,)
    pulled = parse("auto", {}, payload("r2-pulled"))
    assert pulled.events == (copied, deleted, deleted)
    assert parse("r2", {}, b"[" + payload("r2") + b"," + payload("r2-delete") + b"]").events == (copied, deleted)


def test_an_r2_message_with_an_odd_body_is_bad() -> None:
    parsed = parse("r2", {}, b'{"messages":[{"body":"hello"},{"body":7},{"body":"Nw=="}]}')
    assert [bad.index for bad in parsed.bad] == [0, 1, 2]


@pytest.mark.parametrize("source", ["gcs", "azure", "r2"])
def test_a_body_that_is_no_object_or_list_is_refused(source: str) -> None:
    with pytest.raises(Invalid):
        parse(source, {}, b'"hello"')
