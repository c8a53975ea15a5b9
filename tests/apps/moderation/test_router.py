"""The router agent: driven by events however they came, over HTTP with the demo's bodies, stopped and started again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from procedures.objects.world import log_of
from server.running import until

from apps.moderation.agents import Gate, aio_on, routing, settings_with, sync_on
from apps.moderation.test_posts import BAD, CLEAN, UNSURE, classify, record_body
from bucketmq import Put
from bucketmq.apps.moderation import posts, router
from bucketmq.apps.moderation.ids import key_of
from bucketmq.apps.moderation.queues import CHORES
from bucketmq.apps.moderation.record import APPROVED, FLAGGED, NEEDS_REVIEW, PENDING, REVIEWED
from bucketmq.apps.moderation.settings import settings_from
from bucketmq.bucket.memory import MemoryStore
from bucketmq.bucket.port import Object
from bucketmq.engines.meter import NAMES, Requests
from bucketmq.errors import Invalid
from bucketmq.procedures.abreast import abreast
from bucketmq.procedures.requests import Procedure, Replace
from bucketmq.server.place import bus_of


def tigris(*events: tuple[str, str]) -> bytes:
    """A notification as Tigris writes it: names and keys."""
    return msgspec.json.encode(
        {
            "events": [
                {
                    "eventVersion": "1",
                    "eventSource": "tigris",
                    "eventName": name,
                    "eventTime": f"2026-05-04T08:00:{place:02}.000Z",
                    "bucket": "posts",
                    "object": {"key": key, "size": 10, "eTag": f"{place:032x}"},
                }
                for place, (name, key) in enumerate(events)
            ]
        }
    )


def once(store: MemoryStore, **options: Any) -> None:
    """One router, until it has nothing more to do."""

    async def main() -> None:
        async with aio_on(store) as bucket:
            await router.Router(bucket, settings_with(**options)).run_once()

    asyncio.run(main())


def write(store: MemoryStore, key: str, body: bytes) -> None:
    """As somebody does who knows nothing of us."""
    store.delete(key)
    store.create(key, body)


def test_records_are_routed_by_their_events() -> None:
    store = Gate()
    with sync_on(store) as bucket:
        for id, spam in (("good", CLEAN), ("bad", BAD), ("odd", UNSURE)):
            classify(bucket, id, "hello", spam)
        once(store)
    assert store.keys(APPROVED) == ["approved/good.json"]
    assert store.keys(FLAGGED) == ["flagged/bad.json"]
    assert store.keys(NEEDS_REVIEW) == ["needs-review/odd.json"]
    assert store.keys(PENDING) == []


def test_one_poison_record_holds_up_no_other() -> None:
    store = Gate()
    with sync_on(store) as bucket:
        write(store, "moderation/posts/poison.json", b"this is no register")
        keys = [classify(bucket, id, "hello", CLEAN) for id in ("poison", *(f"p{number}" for number in range(20)))]
        once(store)
        assert len(store.keys(APPROVED)) == 20
        assert store.keys(PENDING) == [keys[0]]  # it is tried again later, and a dead letter in the end
        store.delete("moderation/posts/poison.json")
        bucket.trigger(keys[0])
        once(store)
    assert len(store.keys(APPROVED)) == 21


def test_a_copy_that_a_dead_router_left_is_cleared_away() -> None:
    """It had made the target of a move when a newer revision came, and died."""
    store = Gate()
    with sync_on(store) as bucket:
        for revision, (text, spam) in enumerate((("first", CLEAN), ("second", BAD)), start=1):
            bucket.run(posts.accept(bus_of(bucket), "p1", text))
            classify(bucket, "p1", text, spam, revision=revision)
            once(store)
        bucket.put(key_of(APPROVED, "p1"), record_body("p1", "first", CLEAN))
        once(store)
    assert store.keys(APPROVED) == []
    assert store.keys(FLAGGED) == ["flagged/p1.json"]


def test_what_others_put_below_the_outcomes_is_left_alone() -> None:
    store = Gate()
    with sync_on(store) as bucket:
        bucket.put("approved/by-hand.json", {"text": "x"})
        bucket.put("approved/a folder/x", b"x")
        once(store)
    assert len(store.keys(APPROVED)) == 2


def test_a_review_whose_maker_died_is_finished_by_the_router() -> None:
    store = Gate()
    with sync_on(store) as bucket:
        classify(bucket, "p1", "hello", BAD)
        once(store)
        review = posts.review(bus_of(bucket), "p1", revision=1, reviewer="rosa", action="approve")
        reached = _step(bucket, review, until_key=key_of(PENDING.replace("pending", "moderation/posts"), "p1"))
        assert reached and store.keys(REVIEWED) == []
        bucket.queue(CHORES).send({"settle": "p1"})  # what it had sent is due
        bucket.queue(CHORES).send({"what": "is this"})
        once(store)
        assert store.keys(APPROVED) == ["approved/p1.json"]
        assert store.keys(REVIEWED) == ["reviewed/p1.json"]
        assert len(bucket.queue(CHORES).dead_letters.peek()) == 1


def _step(bucket: Any, procedure: Any, *, until_key: str) -> bool:
    """Carry a procedure through to its write of a key, and leave it there."""

    def steps() -> Procedure[bool]:
        reply = None
        while True:
            request = procedure.send(reply)
            reply = yield request
            if isinstance(request, Replace) and request.key == until_key:
                procedure.close()
                return True

    stopped: bool = bucket.run(steps())
    return stopped


def test_the_webhook_answers_as_the_demos_does() -> None:
    with routing(MemoryStore()) as agent:
        for body in (tigris(("OBJECT_CREATED_PUT", "pending/p1.json")), b'{"events": []}'):
            answer = agent.http.post("/webhook", content=body)
            assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
        answer = agent.http.post("/webhook", content=b"{")
        assert (answer.status_code, answer.json()) == (400, {"error": "invalid json"})
        assert agent.http.post("/webhook", content=b'{"what": 1}').status_code == 400
        for token in ("", "Bearer other", "a-secret-of-tigris"):
            answer = agent.http.post("/webhook", content=b"{}", headers={"authorization": token})
            assert (answer.status_code, answer.json()) == (401, {"error": "unauthorized"})
        assert agent.http.get("/webhook").status_code == 405
        assert agent.http.get("/healthz").status_code == 200


def test_events_that_cannot_be_stored_are_answered_500_for_the_sender_to_repeat() -> None:
    store = Gate()
    with sync_on(store) as bucket, routing(store) as agent:
        bucket.put("warm", "x")
        write(store, "pending/p1.json", record_body("p1", "hello", CLEAN))
        store.broken, store.holds = True, "queues/events/log"
        body = tigris(("OBJECT_CREATED_PUT", "pending/p1.json"))
        answer = agent.http.post("/webhook", content=body)
        assert (answer.status_code, answer.json()) == (500, {"error": "processing failed"})
        store.holds = "\0"
        assert agent.http.post("/webhook", content=body).status_code == 200
        until(lambda: store.keys(APPROVED))


@pytest.mark.parametrize(
    "name", ["OBJECT_CREATED_PUT", "OBJECT_CREATED_COPY", "OBJECT_CREATED_MULTIPART", "OBJECT_RENAME"]
)
def test_however_a_record_came_to_pending_it_is_routed(name: str) -> None:
    store = Gate()
    write(store, "pending/p1.json", record_body("p1", "hello", CLEAN))
    with routing(store) as agent:
        assert agent.http.post("/webhook", content=tigris((name, "pending/p1.json"))).status_code == 200
        until(lambda: store.keys(APPROVED))
        assert store.keys(PENDING) == []


def test_a_batch_with_bad_and_foreign_items_is_taken_for_its_good_ones() -> None:
    store = Gate()
    write(store, "pending/p1.json", record_body("p1", "hello", CLEAN))
    body = msgspec.json.decode(
        tigris(
            ("OBJECT_CREATED_PUT", "pending/gone.json"),
            ("OBJECT_DELETED", "pending/p1.json"),
            ("OBJECT_SOMETHING_NEW", "pending/p1.json"),
            ("OBJECT_CREATED_PUT", "elsewhere/x"),
            ("OBJECT_CREATED_PUT", "pending/p1.json"),
        )
    )
    body["events"].insert(0, {"eventName": "OBJECT_CREATED_PUT"})
    with routing(store) as agent:
        assert agent.http.post("/webhook", json=body).status_code == 200
        until(lambda: store.keys(APPROVED))


def test_a_router_that_stops_finishes_the_move_it_is_in() -> None:
    store = Gate("approved/")
    with sync_on(store) as bucket:
        classify(bucket, "p1", "hello", CLEAN)
        with routing(store) as agent:
            assert store.reached.wait(30)
            agent.stop()
            store.open.set()
    assert store.keys(APPROVED) == ["approved/p1.json"]
    assert store.keys(PENDING) == []
    assert isinstance(store.get("moderation/posts/p1.json"), Object)


def test_what_happens_while_no_router_runs_waits() -> None:
    store = Gate()
    with sync_on(store) as bucket:
        for number in range(3):
            classify(bucket, f"p{number}", "hello", CLEAN)
            once(store)
            classify(bucket, f"q{number}", "hello", BAD)
        once(store)
    assert (len(store.keys(APPROVED)), len(store.keys(FLAGGED))) == (3, 3)


def test_two_routers_share_the_work_and_do_nothing_twice() -> None:
    store = Gate()
    with sync_on(store) as bucket:
        for number in range(60):
            classify(bucket, f"p{number}", "hello", CLEAN if number % 2 else BAD)
        threads = [threading.Thread(target=once, args=(store,)) for _ in range(2)]
        _run(threads)
        once(store)
        moved = [each.body["key"] for each in log_of(bucket, "events") if each.body["kind"] == "moved"]
    assert (len(store.keys(APPROVED)), len(store.keys(FLAGGED)), store.keys(PENDING)) == (30, 30, [])
    assert len(set(moved)) == 60


def _run(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)


def test_routing_a_new_post_costs_few_requests() -> None:
    store = MemoryStore()
    with sync_on(store) as bucket:
        run: Callable[[Any], Any] = bucket.run
        for id in ("warm", "p1"):
            run(posts.accept(bus_of(bucket), id, "hello"))
        run(posts.route(bus_of(bucket), classify(bucket, "warm", "hello", CLEAN)))
        key = classify(bucket, "p1", "hello", CLEAN)
        before = bucket.requests
        run(posts.route(bus_of(bucket), key))
        after = bucket.requests
    spent = {name: getattr(after, name) - getattr(before, name) for name in NAMES.values()}
    expected = {"get": 2, "create": 3, "replace": 1, "rename": 1, "look": 1, "delete": 1}
    assert {name: count for name, count in spent.items() if count} == expected


class CopyingStore(Gate):
    """Neither near nor renaming, as most object stores are."""

    local = False
    renames = False
    copies = False


def billed(requests: Requests) -> int:
    """All but deletions, which stores do not bill."""
    return sum(getattr(requests, name) for name in NAMES.values() if name not in ("delete", "remove"))


def test_a_post_costs_at_most_eight_requests_from_submission_to_outcome_when_there_are_many() -> None:
    store, count = CopyingStore(), 200
    ids = [f"p{number}" for number in range(count)]
    with sync_on(store) as bucket:
        run: Callable[[Any], Any] = bucket.run
        run(posts.accept(bus_of(bucket), "warm", "hello"))
        classify(bucket, "warm", "hello", CLEAN)
        once(store)
        before = bucket.requests
        run(abreast([posts.accept(bus_of(bucket), id, f"hello {id}") for id in ids]))
        records = {key_of(PENDING, id): record_body(id, f"hello {id}", CLEAN) for id in ids}
        bucket.put_many([Put(key, body, metadata={"revision": "1"}) for key, body in records.items()])
        submitted = billed(bucket.requests - before)

    async def main() -> int:
        async with aio_on(store) as bucket:
            agent = router.Router(bucket, settings_with())
            for _ in range(2):  # the second time for what was brought to its outcome when the first had looked
                await agent.run_once()
            assert bucket.requests.remove == count
            return billed(bucket.requests)

    routed = asyncio.run(main())
    assert len(store.keys(APPROVED)) == count + 1
    assert submitted <= 2.2 * count  # the register, the record, and shares
    assert submitted + routed <= 8 * count, (submitted, routed)


def test_a_record_that_breaks_the_router_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Gate()
    read = posts.routing.read

    def reading(body: bytes, *, id: str) -> Any:
        if id == "broken":
            raise ZeroDivisionError("nobody expected this")
        return read(body, id=id)

    monkeypatch.setattr(posts.routing, "read", reading)
    with sync_on(store) as bucket:
        for id in ("p1", "broken", "p2"):
            classify(bucket, id, "hello", CLEAN)
        once(store)
        tried = [each.body for each in log_of(bucket, "deliveries") if each.body["rule"] == router.ROUTE_RULE]
    assert store.keys(APPROVED) == [key_of(APPROVED, "p1"), key_of(APPROVED, "p2")]
    assert store.keys(PENDING) == [key_of(PENDING, "broken")]
    assert {(each["key"], each["outcome"]) for each in tried} >= {(key_of(PENDING, "broken"), "retry")}


@pytest.mark.parametrize(
    ("environment", "url"),
    [
        ({"BUCKET_NAME": "posts"}, "s3://posts"),
        ({"BUCKET_NAME": "posts/eu"}, "s3://posts/eu"),
        ({"BUCKET_NAME": "s3://posts/eu?region=auto"}, "s3://posts/eu?region=auto"),
        ({"BUCKET_NAME": "/var/lib/posts"}, "/var/lib/posts"),
        ({"BUCKET_NAME": "file:///var/lib/posts", "BUCKETMQ_URL": "s3://other"}, "file:///var/lib/posts"),
        ({"BUCKETMQ_URL": "s3://other"}, "s3://other"),
    ],
)
def test_the_bucket_is_named_as_the_demo_names_it(environment: dict[str, str], url: str) -> None:
    assert settings_from(environment).url == url


def test_the_demos_variables_work_and_flags_win() -> None:
    environment = {
        "BUCKET_NAME": "posts",
        "WEBHOOK_SECRET": "one two",
        "REVIEW_WEBHOOK_URL": "https://example.com/hook",
        "PORT_INGEST": "9000",
        "PORT_ROUTER": "9001",
        "ANTHROPIC_API_KEY": "key",
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:1",
    }
    found = settings_from(environment, port_router=9002)
    assert (found.url, found.port_ingest, found.port_router) == ("s3://posts", 9000, 9002)
    assert found.webhook_secrets == ("one", "two")
    assert (found.review_url, found.review_format) == ("https://example.com/hook", "slack")
    assert (found.anthropic_api_key, found.anthropic_base_url) == ("key", "http://127.0.0.1:1")


@pytest.mark.parametrize(
    "environment",
    [{}, {"BUCKET_NAME": "b", "PORT_INGEST": "http"}, {"BUCKET_NAME": "b", "REVIEW_WEBHOOK_FORMAT": "fax"}],
)
def test_settings_that_cannot_be_are_refused(environment: dict[str, str]) -> None:
    with pytest.raises(Invalid):
        settings_from(environment)
