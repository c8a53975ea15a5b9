"""The ingest agent over HTTP: the demo's bodies, and 201 for what is durable alone."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
from procedures.objects.world import log_of

from apps.moderation.agents import Gate, aio_on, ingesting, settings_with, sync_on
from bucketmq.apps.moderation import ingest
from bucketmq.apps.moderation.ingest import server_settings
from bucketmq.apps.moderation.queues import SUBMISSIONS
from bucketmq.bucket.memory import MemoryStore
from bucketmq.errors import Invalid, Unavailable

POST = {"id": "p1", "text": "hello"}


def submitted(store: MemoryStore) -> list[Any]:
    with sync_on(store) as bucket:
        return [message.body for message in log_of(bucket, SUBMISSIONS)]


def test_a_post_is_accepted_with_the_demos_body_and_is_in_the_queue() -> None:
    store = MemoryStore()
    with ingesting(store) as agent:
        answer = agent.http.post("/submit", json={**POST, "media_url": "https://example.com/cat.png"})
        assert (answer.status_code, answer.json()) == (201, {"id": "p1", "status": "pending"})
        assert answer.headers["content-type"] == "application/json"
        (body,) = submitted(store)
    assert (body["id"], body["text"], body["media_url"]) == ("p1", "hello", "https://example.com/cat.png")
    assert body["revision"] == 1


def test_the_same_post_again_is_no_other_and_another_text_is_a_revision() -> None:
    store = MemoryStore()
    with ingesting(store) as agent:
        for text in ("hello", "hello", "hullo"):
            assert agent.http.post("/submit", json={"id": "p1", "text": text}).status_code == 201
        assert {(body["revision"], body["text"]) for body in submitted(store)} == {(1, "hello"), (2, "hullo")}


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"id":"\\ud800"}'])
def test_what_is_no_json_of_a_post_is_refused_with_the_demos_body(body: bytes) -> None:
    with ingesting(MemoryStore()) as agent:
        answer = agent.http.post("/submit", content=body)
        assert (answer.status_code, answer.json()) == (400, {"error": "invalid json"})


@pytest.mark.parametrize("body", [{}, {"id": "p1"}, {"text": "x"}, {"id": "", "text": "x"}, {"id": "p1", "text": None}])
def test_missing_fields_are_refused_with_the_demos_body(body: Any) -> None:
    with ingesting(MemoryStore()) as agent:
        answer = agent.http.post("/submit", json=body)
        assert (answer.status_code, answer.json()) == (400, {"error": "id and text are required"})


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ([1], "Expected `object`, got `array`"),
        ({**POST, "id": 7}, "got `int` - at `$.id`"),
        ({**POST, "media_url": True}, "at `$.media_url`"),
        ({**POST, "id": "x" * 201}, "the id has 201 bytes"),
        ({**POST, "id": "é" * 60}, "when it is written into a key"),
        ({**POST, "text": "x" * 100_001}, "100,001 characters"),
        ({**POST, "media_url": "h" * 2_049}, "media_url"),
    ],
)
def test_what_cannot_be_a_post_is_refused_with_a_reason(body: Any, why: str) -> None:
    store = MemoryStore()
    with ingesting(store) as agent:
        answer = agent.http.post("/submit", json=body)
        assert answer.status_code == 400
        assert why in answer.json()["error"]
        assert submitted(store) == []


def test_a_body_that_is_too_long_is_refused() -> None:
    with ingesting(MemoryStore()) as agent:
        answer = agent.http.post("/submit", content=b'{"text": "' + b"x" * (1 << 20) + b'"}')
        assert answer.status_code == 413
        assert agent.http.post("/submit", json=POST).status_code == 201


def test_with_a_token_nobody_else_may_submit_nor_see_metrics() -> None:
    store = MemoryStore()
    with ingesting(store, ingest_tokens=("submitters-token-1", "submitters-token-2")) as agent:
        for headers in ({}, {"authorization": "Bearer submitters-token-3"}, {"authorization": "submitters-token-1"}):
            answer = agent.http.post("/submit", json=POST, headers=headers)
            assert (answer.status_code, answer.json()) == (401, {"error": "unauthorized"})
            assert agent.http.get("/metrics", headers=headers).status_code == 401
        assert submitted(store) == []
        for token in ("submitters-token-1", "submitters-token-2"):
            assert agent.http.post("/submit", json=POST, headers={"authorization": f"Bearer {token}"}).is_success


def test_without_a_token_other_peoples_pages_may_not_submit() -> None:
    with ingesting(MemoryStore()) as agent:
        answer = agent.http.post("/submit", json=POST, headers={"origin": "https://example.com"})
        assert answer.status_code == 403


def test_without_a_token_no_public_address_is_listened_on_unless_that_is_meant() -> None:
    async def serve(**options: Any) -> None:
        bucket = aio_on(MemoryStore())
        try:
            await ingest.serve(bucket, settings_with(), host="203.0.113.7", **options)
        finally:
            await bucket.close()

    with pytest.raises(Invalid, match="--insecure-no-token"):
        asyncio.run(serve())
    with pytest.raises(Unavailable, match="cannot listen"):  # it got so far: the address is not of this machine
        asyncio.run(serve(insecure_no_token=True))


def test_when_the_bucket_cannot_be_reached_nothing_is_accepted() -> None:
    store = Gate("queues/submissions/log")
    store.broken = True
    with ingesting(store) as agent:
        answer = agent.http.post("/submit", json=POST)
        assert answer.status_code == 503
        assert answer.headers["retry-after"]
        assert "could not be stored" in answer.json()["error"]
        store.holds = "\0"
        assert agent.http.post("/submit", json=POST).status_code == 201
        assert [body["revision"] for body in submitted(store)] == [1]


def test_a_store_that_hangs_is_not_waited_for() -> None:
    store = Gate("queues/submissions/log")
    with ingesting(store, server=server_settings((), report_seconds=0.2)) as agent:
        answer = agent.http.post("/submit", json=POST)
        assert (answer.status_code, answer.json()) == (503, {"error": "the store took too long"})
        store.open.set()


def test_a_post_that_is_on_its_way_is_finished_before_the_agent_stops() -> None:
    store = Gate("queues/submissions/log")
    answers = []
    with ingesting(store) as agent:
        thread = threading.Thread(target=lambda: answers.append(agent.http.post("/submit", json=POST)))
        thread.start()
        assert store.reached.wait(30)
        agent.stop()
        store.open.set()
        thread.join(30)
    assert [answer.status_code for answer in answers] == [201]
    assert [body["id"] for body in submitted(store)] == ["p1"]


def test_posts_that_come_at_the_same_time_share_writes() -> None:
    store = Gate("queues/submissions/log/0/00000000000000000001")
    with ingesting(store) as agent, ThreadPoolExecutor(32) as pool:
        assert agent.http.post("/submit", json={"id": "first", "text": "x"}).status_code == 201

        def submit(number: int) -> int:
            return agent.http.post("/submit", json={"id": f"p{number}", "text": "x"}).status_code

        answers = [pool.submit(submit, number) for number in range(32)]
        assert store.reached.wait(30)  # one is being written: the others gather
        registers = "moderation/posts/"
        while len(store.keys(registers)) < 33:
            store.reached.wait(0.01)
        store.open.set()
        assert {each.result() for each in answers} == {201}
        assert len(submitted(store)) == 33
        assert len(store.keys("queues/submissions/log/")) <= 8


def test_health_readiness_metrics_and_the_openapi_page() -> None:
    with ingesting(MemoryStore()) as agent:
        agent.http.post("/submit", json=POST)
        agent.http.post("/submit", content=b"{")
        assert agent.http.get("/healthz").json()["status"] == "ok"
        assert agent.http.get("/readyz").json()["status"] == "ready"
        metrics = agent.http.get("/metrics").text
        assert 'bucketmq_submissions_total{status="201"} 1.0' in metrics
        assert 'bucketmq_submissions_total{status="400"} 1.0' in metrics
        page = agent.http.get("/openapi.json").json()
        assert set(page["paths"]["/submit"]["post"]["responses"]) == {
            "201", "400", "401", "403", "408", "413", "429", "503",
        }  # fmt: skip
        assert page["paths"]["/submit"]["post"]["requestBody"]["content"]["application/json"]["schema"]["required"] == [
            "id",
            "text",
        ]
        assert "swagger" in agent.http.get("/docs").text


def test_no_secret_is_shown() -> None:
    settings = settings_with(
        ingest_tokens=("hush",), webhook_secrets=("hush2",), review_url="https://example.com/hush3"
    )
    assert "hush" not in repr(settings) and msgspec.structs.asdict(settings)["ingest_tokens"] == ("hush",)
