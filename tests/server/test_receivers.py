"""Notifications of every known sender: stored first, then answered, and each change told once whoever repeats it."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx2
import msgspec
import pytest
from cloudevents.core.bindings.http import to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent

from bucketmq.bucket.memory import MemoryStore
from bucketmq.bucket.port import PLAIN, Attributes, Refused, Unknown, Written
from bucketmq.client import Bucket
from bucketmq.errors import Unavailable
from bucketmq.events.event import ObjectEvent
from bucketmq.events.parse import parse
from bucketmq.server import place
from bucketmq.server.app import make_app
from server.running import (
    FIXTURES,
    TOKEN,
    WAIT_SECONDS,
    Running,
    aio_on,
    delivered,
    logged,
    payload,
    raw_request,
    serving,
    settings_with,
    sync_on,
    until,
    when_it_refuses,
)

NO_NEWS = {"azure-validation", "sns-confirm"}
LATER = "2026-11-16T02:00:00.000000Z"


def source_of(name: str) -> str:
    return name.partition("/")[0].partition("-")[0]


NAMES = [
    path.relative_to(FIXTURES).with_suffix("").as_posix()
    for path in sorted(FIXTURES.rglob("*.json"))
    if path.with_suffix("").name not in NO_NEWS
]


def test_there_are_payloads_of_every_sender() -> None:
    assert {source_of(name) for name in NAMES} == {
        "azure",
        "ceph",
        "cloudevents",
        "eventbridge",
        "gcs",
        "minio",
        "r2",
        "s3",
        "seaweedfs",
        "sns",
        "tigris",
    }


async def post_all(store: MemoryStore, name: str) -> list[httpx2.Response]:
    """To the app itself: nothing here is about connections."""
    bucket = aio_on(store)
    transport = httpx2.ASGITransport(make_app(bucket, settings_with()))
    headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
    try:
        async with httpx2.AsyncClient(transport=transport, base_url="http://here", headers=headers) as client:
            ways = (source_of(name), "auto", source_of(name))
            return [await client.post(f"/events/{way}", content=payload(name)) for way in ways]
    finally:
        await bucket.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_payload_is_stored_and_told_once_however_often_it_is_sent(
    store: MemoryStore, bucket: Bucket, name: str
) -> None:
    expected = parse(source_of(name), {}, payload(name), received_at=LATER)
    for answer in asyncio.run(post_all(store, name)):
        assert answer.status_code == 200, answer.text
        assert answer.json() == {
            "accepted": len(expected.events),
            "ignored": expected.ignored,
            "unknown": expected.unknown,
            "bad": [{"index": each.index, "reason": each.reason} for each in expected.bad],
            "outside": 0,
        }
    told = delivered(bucket)
    assert sorted(event.id for event in told) == sorted({event.id for event in expected.events})
    assert {(event.key, event.kind) for event in told} == {(event.key, event.kind) for event in expected.events}


CLOUD_EVENT = CloudEvent(
    {"id": "7", "source": "https://shop.example", "type": "shop.file.created", "subject": "a b/ü.csv"}, {"n": 1}
)


@pytest.mark.parametrize("mode", ["binary", "structured", "batch"])
def test_a_cloud_event_in_every_mode_is_the_same_event(server: Running, bucket: Bucket, mode: str) -> None:
    message = to_binary_event(CLOUD_EVENT) if mode == "binary" else to_structured_event(CLOUD_EVENT)
    body = message.body if isinstance(message.body, bytes) else message.body.encode()
    headers = dict(message.headers)
    if mode == "batch":
        body, headers = b"[" + body + b"]", {"content-type": "application/cloudevents-batch+json"}
    for source in ("cloudevents", "auto"):
        answer = server.http.post(f"/events/{source}", content=body, headers=headers)
        assert answer.json()["accepted"] == 1, answer.text
    (event,) = delivered(bucket)
    assert (event.key, event.kind, event.source) == ("a b/ü.csv", "created", "cloudevents")


def test_a_bad_item_does_not_lose_the_good_ones(server: Running, bucket: Bucket) -> None:
    body = json.loads(payload("tigris"))
    good = len(body["events"])
    body["events"] = [7, *body["events"], {"eventName": "OBJECT_CREATED_PUT"}]
    answer = server.post("tigris", json.dumps(body).encode())
    assert answer.status_code == 200
    assert [each["index"] for each in answer.json()["bad"]] == [0, good + 1]
    assert answer.json()["accepted"] == good == len(delivered(bucket))


def test_an_unknown_name_is_an_event_and_counted(server: Running, bucket: Bucket) -> None:
    body = json.loads(payload("tigris"))
    body["events"] = body["events"][:1]
    body["events"][0]["eventName"] = "OBJECT_SOMETHING_NEW"
    assert server.post("tigris", json.dumps(body).encode()).json()["unknown"] == {"OBJECT_SOMETHING_NEW": 1}
    (event,) = delivered(bucket)
    assert (event.kind, event.name) == ("other", "OBJECT_SOMETHING_NEW")
    assert 'name="OBJECT_SOMETHING_NEW",source="tigris"} 1.0' in server.http.get("/metrics").text


def test_unknown_names_without_end_do_not_make_labels_without_end(server: Running) -> None:
    one = json.loads(payload("tigris"))["events"][0]
    body = {"events": [{**one, "eventName": f"NAME_{number}"} for number in range(1_000)]}
    answer = server.post("tigris", json.dumps(body).encode()).json()
    assert (answer["accepted"], len(answer["unknown"])) == (1_000, 100)
    page = server.http.get("/metrics").text
    lines = [line for line in page.splitlines() if line.startswith("bucketmq_unknown_event_names_total{")]
    assert len(lines) <= 501
    assert sum(float(line.rsplit(" ", 1)[1]) for line in lines) == 1_000


@pytest.mark.parametrize("body", [b'{"events": []}', b"[]", payload("s3-test"), payload("sns-test")])
def test_test_events_and_empty_batches_are_fine(server: Running, bucket: Bucket, body: bytes) -> None:
    answer = server.post("auto", body)
    assert (answer.status_code, answer.json()["accepted"]) == (200, 0)
    assert not delivered(bucket)


def test_only_what_lies_below_the_prefix_and_is_not_our_own_is_taken(store: MemoryStore) -> None:
    def item(key: str, bucket: str = "press") -> dict[str, object]:
        told = {"key": key, "size": 1, "eTag": "x"}
        return {"eventName": "OBJECT_CREATED_PUT", "eventTime": LATER, "bucket": bucket, "object": told}

    keys = ["team/a.json", "other/b.json", "team/queues/jobs/log/0/0", "team/rules/x.json", "teams/c.json", "team/"]
    body = {"events": [*(item(key) for key in keys), item("team/d.json", "elsewhere")]}
    with serving(lambda: aio_on(store, "team"), settings_with(buckets=("press",))) as running:
        answer = running.post("tigris", json.dumps(body).encode())
    assert (answer.json()["accepted"], answer.json()["outside"]) == (1, 6)
    with sync_on(store, "team") as bucket:
        assert [event.key for event in delivered(bucket)] == ["a.json"]


class Moody(MemoryStore):
    """A store that can be told to fail, or to keep everybody waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.failing = False

    def create(self, key: str, body: bytes, attributes: Attributes = PLAIN) -> Written | Refused | Unknown:
        if self.failing:
            raise Unavailable("the store is on fire; try later")
        return super().create(key, body, attributes)


def test_a_store_that_fails_is_a_503_and_the_repeat_is_told_once() -> None:
    store = Moody()
    with serving(lambda: aio_on(store), settings_with(report_seconds=1.0)) as running:
        assert running.post("tigris", b'{"events": []}').status_code == 200
        store.failing = True
        answer = running.post("tigris", payload("tigris"))
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) > 0
        assert "fire" not in answer.text
        assert running.stranger.get("/healthz").status_code == 200
        store.failing = False
        assert running.post("tigris", payload("tigris")).status_code == 200
    with sync_on(store) as bucket:
        assert len(delivered(bucket)) == 7


class Gated(MemoryStore):
    """A store that holds a write to the log until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.go = threading.Event()

    def create(self, key: str, body: bytes, attributes: Attributes = PLAIN) -> Written | Refused | Unknown:
        if "/log/" in key:
            self.entered.set()
            assert self.go.wait(WAIT_SECONDS)
        return super().create(key, body, attributes)


@pytest.fixture
def gated() -> Iterator[Gated]:
    store = Gated()
    yield store
    store.go.set()


def test_a_sender_that_hangs_up_while_its_events_are_stored_loses_nothing(gated: Gated) -> None:
    body = payload("r2")
    with serving(lambda: aio_on(gated), settings_with()) as running:
        with running.connect() as connection:
            head = raw_request(running, "POST /events/r2 HTTP/1.1", f"Content-Length: {len(body)}\r\n\r\n".encode())
            connection.sendall(head + body)
            assert gated.entered.wait(WAIT_SECONDS)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing resets
        assert running.stranger.get("/healthz").status_code == 200
        gated.go.set()
        until(lambda: running.parts.counters.read("events_received_total", source="r2", outcome="accepted"))
        assert running.is_healthy()
    with sync_on(gated) as bucket:
        assert len(delivered(bucket)) == 1


def test_a_store_that_takes_long_is_a_503_and_the_late_write_and_the_repeat_are_one(gated: Gated) -> None:
    with serving(lambda: aio_on(gated), settings_with(report_seconds=0.2)) as running:
        answer = running.post("r2", payload("r2"))
        assert (answer.status_code, "retry-after" in answer.headers) == (503, True)
        gated.go.set()
        assert running.post("r2", payload("r2")).status_code == 200
    with sync_on(gated) as bucket:
        assert len(delivered(bucket)) == 1


def test_writes_that_are_late_are_bounded(gated: Gated, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each holds its events, and while the bucket hangs senders go on repeating: beyond so many nothing is begun."""
    monkeypatch.setattr(place, "LATE_MAX", 2)
    names = ("tigris", "r2", "ceph")
    with serving(lambda: aio_on(gated), settings_with(report_seconds=0.2)) as running:
        for name in names:
            answer = running.post(name, payload(name))
            assert (answer.status_code, "retry-after" in answer.headers) == (503, True)
        gated.go.set()
        until(lambda: not place._LATE)
        with sync_on(gated) as bucket:
            assert {event["source"] for event in logged(bucket)} == {"tigris", "r2"}
        assert running.post("ceph", payload("ceph")).status_code == 200


def test_a_server_that_stops_finishes_what_it_is_storing(gated: Gated) -> None:
    with ThreadPoolExecutor(1) as pool, serving(lambda: aio_on(gated), settings_with()) as running:
        answer = pool.submit(running.post, "r2", payload("r2"))
        assert gated.entered.wait(WAIT_SECONDS)
        stopping = when_it_refuses(running.url, gated.go.set)
        pool.submit(lambda: (answer.result(WAIT_SECONDS), stopping.join()))
        running.stop()
        assert answer.result(WAIT_SECONDS).status_code == 200
    with sync_on(gated) as bucket:
        assert len(delivered(bucket)) == 1


def test_an_event_that_cannot_be_stored_does_not_lose_the_others(server: Running, bucket: Bucket) -> None:
    body = json.loads(payload("cloudevents"))
    huge = {**body[0], "id": "huge", "subject": "k" * 200_000}
    answer = server.post("cloudevents", json.dumps([body[0], huge]).encode())
    assert answer.status_code == 200
    told = delivered(bucket)
    assert [event.key[:20] for event in told if len(event.key) < 1_000] == [body[0]["subject"]]
    assert answer.json()["accepted"] == len(told)


def test_many_senders_at_once_lose_nothing(server: Running, bucket: Bucket) -> None:
    def body(number: int) -> bytes:
        told = {"key": f"many/{number}", "size": 1, "eTag": "x"}
        item = {"eventName": "OBJECT_CREATED_PUT", "eventTime": LATER, "bucket": "press", "object": told}
        return json.dumps({"events": [item]}).encode()

    def send(number: int) -> int:
        answer: httpx2.Response = server.post("tigris", body(number))
        return answer.status_code

    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(send, range(200))) == {200}
    assert sorted(event.key for event in delivered(bucket)) == sorted(f"many/{number}" for number in range(200))


def test_events_of_ours_are_not_believed_without_a_proof(server: Running, bucket: Bucket) -> None:
    forged = ObjectEvent(id="evt_x", kind="deleted", key="a", at=LATER, source="writer")
    item = json.loads(payload("tigris"))["events"][0]
    body = {"events": [{**item, "bucketmq": msgspec.to_builtins(forged)}]}
    server.post("tigris", json.dumps(body).encode())
    (event,) = delivered(bucket)
    assert (event.source, event.kind) == ("tigris", "created")
