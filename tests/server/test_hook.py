"""The same handler pulled and mounted: the same change, the same filter, and the demo's answers to whoever posts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx2
import pytest
import uvicorn
from fastapi import FastAPI

from bucketmq import Bury, Release, Retry
from bucketmq.bucket.memory import MemoryStore
from bucketmq.client import Bucket
from bucketmq.errors import Invalid
from bucketmq.events.event import ObjectEvent, time_text
from bucketmq.events.formats import encode
from bucketmq.events.signing import sign
from bucketmq.server import Endpoint, endpoint
from bucketmq.server.run import listen
from server.running import SECRET, TOKEN, aio_on, payload, sync_on, until

PENDING = 'WHERE `key` REGEXP "^pending/"'


def post(app: Any, path: str, body: bytes, headers: dict[str, str] | None = None) -> httpx2.Response:
    """One request to an ASGI app."""

    async def one() -> httpx2.Response:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://here") as client:
            given = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
            return await client.post(path, content=body, headers=given if headers is None else headers)

    return asyncio.run(one())


def told(key: str, kind: str = "OBJECT_CREATED_PUT") -> dict[str, Any]:
    item = {"key": key, "size": 1, "eTag": ""}
    return {"eventName": kind, "eventTime": time_text(time.time()), "bucket": "press", "object": item}


def batch(*keys: str) -> bytes:
    return json.dumps({"events": [told(key) for key in keys]}).encode()


@pytest.fixture
def calls() -> list[tuple[str, Any]]:
    return []


def plain_route(bucket: Any, calls: list[tuple[str, Any]]) -> Callable[[Any], Any]:
    @bucket.watch(PENDING, start="beginning")  # type: ignore[untyped-decorator]
    def route(change: Any) -> Any:
        record = change.json()
        calls.append((change.key, record))
        if "fail" in record:
            raise RuntimeError("a secret that must not be told")
        change.move(f"approved/{change.name}")

    return route  # type: ignore[no-any-return]


def async_route(bucket: Any, calls: list[tuple[str, Any]]) -> Callable[[Any], Awaitable[Any]]:
    @bucket.watch(PENDING, start="beginning")  # type: ignore[untyped-decorator]
    async def route(change: Any) -> Any:
        record = await change.json()
        calls.append((change.key, record))
        if "fail" in record:
            raise RuntimeError("a secret that must not be told")
        await change.move(f"approved/{change.name}")

    return route  # type: ignore[no-any-return]


@pytest.fixture
def hook(bucket: Bucket, calls: list[tuple[str, Any]]) -> Iterator[Endpoint]:
    yield endpoint(plain_route(bucket, calls), bucket, bearer=[TOKEN, "the-next-token-for-tests"], signing=[SECRET])


@pytest.mark.parametrize("make", [plain_route, async_route])
@pytest.mark.parametrize("own_loop", [False, True], ids=["blocking bucket", "asyncio bucket"])
def test_the_same_handler_is_pulled_and_mounted(
    store: MemoryStore, bucket: Bucket, calls: list[tuple[str, Any]], make: Any, own_loop: bool
) -> None:
    bucket.put("pending/1.json", {"n": 1})

    async def with_aio() -> None:
        mine = aio_on(store)
        try:
            route = make(mine, calls)
            app = FastAPI()
            app.mount("/hooks/route", endpoint(route, mine, bearer=[TOKEN]))
            async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://here") as client:
                headers = {"authorization": f"Bearer {TOKEN}"}
                answer = await client.post("/hooks/route/", content=batch("pending/1.json"), headers=headers)
            assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
            await mine.put("pending/2.json", {"n": 2})
            await mine.run_watchers(stop_when_empty=True, signals=False)
        finally:
            await mine.close()

    if own_loop:
        asyncio.run(with_aio())
    else:
        route = make(bucket, calls)
        app = FastAPI()
        app.mount("/hooks/route", endpoint(route, bucket, bearer=[TOKEN]))
        answer = post(app, "/hooks/route/", batch("pending/1.json"))
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
        bucket.put("pending/2.json", {"n": 2})
        bucket.run_watchers(stop_when_empty=True)
    assert calls == [("pending/1.json", {"n": 1}), ("pending/2.json", {"n": 2})]
    assert bucket.get_json("approved/1.json") == {"n": 1}
    assert bucket.get_json("approved/2.json") == {"n": 2}


def test_json_that_is_no_notification_says_so(hook: Endpoint) -> None:
    for body in (b"{}", b"7", b'{"events": 7}'):
        answer = post(hook, "/", body)
        assert (answer.status_code, answer.json()["error"]) == (400, "not a known notification")


def test_it_can_be_a_route_under_exactly_its_path(hook: Endpoint, bucket: Bucket) -> None:
    app = FastAPI()
    app.add_route("/hooks/route", hook)
    bucket.put("pending/1.json", {"n": 1})
    assert post(app, "/hooks/route", batch("pending/1.json")).json() == {"status": "ok"}


@pytest.mark.parametrize(
    ("body", "headers", "status", "says"),
    [
        (b'{"events": []}', None, 200, {"status": "ok"}),
        (b"not json", None, 400, {"error": "invalid json"}),
        (b"", None, 400, {"error": "invalid json"}),
        (b"[" * 100_000, None, 400, {"error": "invalid json"}),
        (b'{"events": []}', {}, 401, {"error": "unauthorized"}),
        (b'{"events": []}', {"authorization": "Bearer wrong"}, 401, {"error": "unauthorized"}),
        (b"not json", {}, 401, {"error": "unauthorized"}),
        (b'{"events": []}', {"authorization": "Bearer the-next-token-for-tests"}, 200, {"status": "ok"}),
    ],
)
def test_the_answers_are_the_demos(hook: Endpoint, body: bytes, headers: Any, status: int, says: Any) -> None:
    answer = post(hook, "/", body, headers)
    assert (answer.status_code, answer.json()) == (status, says)


def test_a_failure_is_repeated_and_then_handled(hook: Endpoint, bucket: Bucket, calls: list[Any]) -> None:
    bucket.put("pending/good.json", {"n": 1})
    bucket.put("pending/bad.json", {"fail": True})
    first = post(hook, "/", batch("pending/bad.json", "pending/good.json"))
    assert (first.status_code, first.json()) == (500, {"error": "processing failed"})
    assert bucket.get_json("approved/good.json") == {"n": 1}  # one that fails does not hold up the others
    bucket.put("pending/bad.json", {"n": 2})
    assert post(hook, "/", batch("pending/bad.json", "pending/good.json")).json() == {"status": "ok"}
    assert bucket.get_json("approved/bad.json") == {"n": 2}
    assert [key for key, _ in calls].count("pending/good.json") == 1


def test_our_own_rules_are_told_which_events_failed(hook: Endpoint, bucket: Bucket) -> None:
    events = []
    for number, body in enumerate(({"n": 1}, {"fail": True})):
        bucket.put(f"pending/{number}.json", body)
        key, at = f"pending/{number}.json", time_text(time.time())
        events.append(ObjectEvent(id=f"evt_{number}", kind="created", key=key, at=at, source="writer"))
    body, content_type = encode("tigris", events)
    headers = {"authorization": f"Bearer {TOKEN}", "content-type": content_type, "bucketmq-rule": "route"}
    answer = post(hook, "/", body, headers)
    assert (answer.status_code, answer.json()) == (200, {"failed": [{"id": "evt_1", "error": "RuntimeError"}]})
    assert "secret" not in answer.text
    alone = post(hook, "/", encode("tigris", events[1:])[0], headers)
    assert (alone.status_code, alone.json()) == (500, {"error": "processing failed"})


def test_a_rule_delivers_to_a_mounted_handler_and_repeats_only_what_failed(
    store: MemoryStore, bucket: Bucket, calls: list[Any], hook: Endpoint
) -> None:
    app = FastAPI()
    app.mount("/hooks/route", hook)
    with on_a_port(app) as url:
        bucket.rules.add(
            "push",
            to=f"{url}/hooks/route/",
            private=True,
            filter=PENDING,
            start="beginning",
            bearer=TOKEN,
            batch=10,
            retry_seconds=[0.05, 0.05, 0.05],
        )
        bucket.put("pending/good.json", {"n": 1})
        bucket.put("pending/bad.json", {"fail": True})
        bucket.notify(stop_when_empty=True)
        until(lambda: notified(bucket) and len([key for key, _ in calls if "bad" in key]) >= 2)
    assert [key for key, _ in calls].count("pending/good.json") == 1


def notified(bucket: Bucket) -> bool:
    bucket.notify(stop_when_empty=True)
    return True


@contextlib.contextmanager
def on_a_port(app: Any) -> Iterator[str]:
    """Somebody's own app on somebody's own server."""
    with listen("127.0.0.1", 0) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
        thread.start()
        try:
            until(lambda: server.started)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(30)


def test_only_what_the_watchers_filter_lets_through_is_handled(
    hook: Endpoint, bucket: Bucket, calls: list[Any]
) -> None:
    bucket.put("approved/1.json", {"n": 1})
    assert post(hook, "/", batch("approved/1.json", "queues/x", "pending/gone.json")).json() == {"status": "ok"}
    assert not calls


def test_an_object_that_goes_while_it_is_handled_is_done(store: MemoryStore, bucket: Bucket) -> None:
    def late(change: Any) -> None:
        bucket.delete(change.key)
        change.bytes()

    bucket.put("a", b"x")
    assert post(endpoint(late, bucket, bearer=[TOKEN]), "/", batch("a")).json() == {"status": "ok"}


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (None, 200),
        (Retry("not now"), 500),
        (Retry, 500),
        (Bury("never"), 200),
        (Bury, 200),
        (Release(), 500),
        ("x", 200),
    ],
)
def test_what_a_handler_returns_says_whether_it_is_done(bucket: Bucket, outcome: object, status: int) -> None:
    bucket.put("a", b"x")
    answer = post(endpoint(lambda _: outcome, bucket, bearer=[TOKEN]), "/", batch("a"))
    assert answer.status_code == status


@pytest.mark.parametrize("format", ["tigris", "s3", "cloudevents"])
@pytest.mark.parametrize("count", [1, 2])
def test_what_our_rules_send_arrives_whole(store: MemoryStore, format: Any, count: int) -> None:
    seen = []
    with sync_on(store, "team") as bucket:
        events = []
        for number in range(count):
            stored = bucket.put(f"a {number}+ü.json", {"n": number}, metadata={"who": "mia"})
            event = ObjectEvent(
                id=f"evt_{number}",
                kind="created",
                key=f"a {number}+ü.json",
                at=time_text(time.time()),
                source="writer",
                version=stored.version.strip('"'),
                hops=3,
                lineage=("evt_x",),
                metadata={"who": "mia"},
            )
            events.append(event)
        body, content_type = encode(format, events)
        headers = {"content-type": content_type, "bucketmq-rule": "r"}
        hook = endpoint(lambda change: seen.append(change.event), bucket, signing=[SECRET])
        assert post(hook, "/", body, headers).status_code == 401
        signed = sign([SECRET], "evt_0", int(time.time()), body)
        assert post(hook, "/", body, headers | signed).json() == {"status": "ok"}
    assert seen == events


def test_without_a_proof_nobody_can_pass_for_us(bucket: Bucket) -> None:
    seen: list[ObjectEvent] = []
    bucket.put("real", b"x")
    forged = {**told("real"), "bucketmq": {"id": "evt_x", "kind": "created", "key": "rules", "at": "x", "source": "s3"}}
    hook = endpoint(lambda change: seen.append(change.event), bucket, no_auth=True)
    body = json.dumps({"events": [forged]}).encode()
    assert post(hook, "/", body, {"bucketmq-rule": "r"}).json() == {"status": "ok"}
    assert [(event.key, event.source) for event in seen] == [("real", "tigris")]


def test_payloads_of_tigris_itself_are_understood(bucket: Bucket) -> None:
    seen: list[str] = []
    bucket.put("pending/a+b%20ü.json", b"x")

    @bucket.watch(gone="deliver")
    def every(change: Any) -> None:
        seen.append(change.kind)

    answer = post(endpoint(every, bucket, bearer=[TOKEN]), "/", payload("tigris"))
    assert answer.json() == {"status": "ok"}
    assert len(seen) == 7 and {"created", "deleted", "moved"} <= set(seen)


def test_bodies_are_bounded_here_too(hook: Endpoint) -> None:
    assert post(hook, "/", b" " * ((1 << 20) + 1)).status_code == 413
    answer = post(hook, "/", b"{}", {"authorization": f"Bearer {TOKEN}", "content-type": "image/png"})
    assert answer.status_code == 415

    async def get() -> httpx2.Response:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(hook), base_url="http://here") as client:
            return await client.get("/")

    assert asyncio.run(get()).status_code == 405


def test_what_cannot_be_mounted_is_refused(bucket: Bucket) -> None:
    with pytest.raises(Invalid, match="no caller could be let in"):
        endpoint(print, bucket)
    with pytest.raises(Invalid, match="function"):
        endpoint(7, bucket, bearer=[TOKEN])  # type: ignore[arg-type]

    @bucket.when_all("a/{id}", "b/{id}")
    def both(_: Any) -> None: ...

    with pytest.raises(Invalid, match="pull"):
        endpoint(both, bucket, bearer=[TOKEN])
