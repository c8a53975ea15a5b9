"""The review desk's API: who is let in, what they see, and that each post is decided once."""

from __future__ import annotations

import base64
import contextlib
import io
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import msgspec
import pytest
from PIL import Image
from server.running import until

from apps.moderation.agents import Agent, Gate, sync_on
from apps.moderation.desks import BAD, CLEAN, OMAR, PEOPLE, ROSA, UNSURE, VERA, Reviewer, desk, desk_on, history, post
from apps.moderation.drawing import animation, canvas, encoded, written
from apps.moderation.test_posts import record_body
from bucketmq import aio
from bucketmq.apps.moderation import posts
from bucketmq.apps.moderation.classify.fetch import FetchSettings
from bucketmq.apps.moderation.desk.session import Sessions
from bucketmq.apps.moderation.ids import key_of
from bucketmq.apps.moderation.record import FLAGGED
from bucketmq.apps.moderation.router import ROUTE_FILTER, ROUTE_RULE
from bucketmq.bucket.memory import MemoryStore
from bucketmq.client import Bucket, connect
from bucketmq.outcomes import Bury
from bucketmq.server.place import bus_of, run_now
from bucketmq.testing.endpoints import Reply, endpoint


@pytest.fixture
def store() -> MemoryStore:
    return Gate()


@pytest.fixture
def bucket(store: MemoryStore) -> Iterator[Bucket]:
    with sync_on(store) as made:
        yield made


@pytest.fixture
def agent(store: MemoryStore, bucket: Bucket) -> Iterator[Agent]:
    post(bucket, "ad", "buy cheap watches", BAD)
    post(bucket, "odd", "is this an ad?", UNSURE)
    post(bucket, "nice", "lovely weather", CLEAN)
    with desk(store) as made:
        yield made


def ids(found: dict[str, Any]) -> list[str]:
    return [item["id"] for item in found["items"]]


# Who is let in.

OPEN = {"/", "/static/main.js", "/healthz", "/api/session"}
CLOSED = [
    "/api/posts",
    "/api/post?id=ad",
    "/api/image?id=ad",
    "/api/image/state?id=ad",
    "/api/figures/flow",
    "/api/figures/queues",
    "/api/figures/rules",
    "/api/figures/dead",
    "/api/figures/badges",
]


def test_everything_but_the_page_and_health_needs_a_login(agent: Agent) -> None:
    assert {path: agent.http.get(path).status_code for path in OPEN} == dict.fromkeys(OPEN, 200)
    assert {path: agent.http.get(path).status_code for path in CLOSED} == dict.fromkeys(CLOSED, 401)
    for path in ("/api/review", "/api/redrive"):
        body = (
            {"id": "ad", "revision": 1, "action": "approve"} if path == "/api/review" else {"queue": "x", "ids": None}
        )
        assert agent.http.post(path, json=body).status_code == 401
    assert agent.http.get("/docs").status_code == 404
    assert agent.http.get("/static/..%2fapp.py").status_code == 404
    assert agent.http.get("/api/session").json() == {"name": None}


def test_every_answer_keeps_the_page_to_itself(agent: Agent) -> None:
    for path in ("/", "/static/main.js", "/api/posts", "/nowhere"):
        headers = agent.http.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"


def test_a_token_is_exchanged_for_a_cookie_that_scripts_cannot_read(agent: Agent, bucket: Bucket) -> None:
    with Reviewer(agent.url, ROSA) as rosa:
        assert (rosa.session["name"], rosa.session["role"]) == ("rosa", "reviewer")
        answer = rosa.http.post("/api/login", json={"token": ROSA}, headers={"x-desk-csrf": "login"})
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie and "samesite=strict" in cookie and "max-age=43200" in cookie
        assert ROSA not in answer.text + cookie
        assert rosa.http.post("/api/logout").status_code == 403, "the header of the login is none of a session"
        token = {"x-desk-csrf": answer.json()["csrf"]}
        kept = dict(rosa.http.cookies)
        assert rosa.http.post("/api/logout", headers=token).status_code == 200
        assert httpx2.get(f"{agent.url}/api/posts", cookies=kept).status_code == 401, "the old cookie still counts"
    assert [(line.did, line.by) for line in history(bucket) if line.did in ("login", "logout")] == [
        ("login", "rosa"),
        ("login", "rosa"),
        ("logout", "rosa"),
    ]


def test_behind_https_the_cookie_belongs_to_this_host_alone(store: MemoryStore) -> None:
    with desk(store, https=True) as agent:
        answer = agent.http.post("/api/login", json={"token": ROSA}, headers={"x-desk-csrf": "login"})
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-bucketmq_desk_")
        assert "; Secure" in cookie and "; Path=/;" in cookie and "domain" not in cookie.lower()
        shown = {"cookie": cookie.partition(";")[0]}
        assert httpx2.get(f"{agent.url}/api/posts", headers=shown).status_code == 200
        plain = {"cookie": shown["cookie"].removeprefix("__Host-")}
        assert httpx2.get(f"{agent.url}/api/posts", headers=plain).status_code == 401, "another host may have set it"


def test_a_cookie_cannot_be_made_or_changed(agent: Agent) -> None:
    with Reviewer(agent.url, VERA) as vera:
        ((name, value),) = dict(vera.http.cookies).items()
    payload, signature = value.split(".")
    text = base64.urlsafe_b64decode(payload + "==").replace(b"read-only", b"reviewer ")
    forged = base64.urlsafe_b64encode(text).decode().rstrip("=")
    for cookie in (f"{forged}.{signature}", payload, f"{payload}.", f"{payload}.{signature[:-4]}AAAA", "é.é", "." * 50):
        answer = httpx2.get(
            f"{agent.url}/api/posts", headers={"cookie": f"{name}={cookie}".encode("latin-1", "replace")}
        )
        assert answer.status_code == 401, cookie


def test_wrong_tokens_are_counted_and_then_refused_for_a_while(agent: Agent, bucket: Bucket) -> None:
    mark = {"x-desk-csrf": "login"}
    statuses = [
        agent.http.post("/api/login", json={"token": f"wrong-{n}"}, headers=mark).status_code for n in range(12)
    ]
    assert statuses == [401] * 10 + [429] * 2
    late = agent.http.post("/api/login", json={"token": ROSA}, headers=mark)
    assert late.status_code == 429 and 0 < int(late.headers["retry-after"]) <= 60
    lines = [line for line in history(bucket) if line.did == "denied"]
    assert len(lines) == 10 and "127.0.0.1" in lines[0].reason


def guess(agent: Agent, token: str, **headers: str) -> int:
    return agent.http.post("/api/login", json={"token": token}, headers={"x-desk-csrf": "login", **headers}).status_code


def test_guesses_that_come_together_are_counted_before_their_bodies_are_read(agent: Agent) -> None:
    """Sixty requests wait with the last byte of their bodies; then all of them are sent at once."""
    place = urlsplit(agent.url)
    body = b'{"token": "a-wrong-token-000001"}'
    head = (
        f"POST /api/login HTTP/1.1\r\nHost: {place.netloc}\r\nX-Desk-Csrf: login\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    guesses = [socket.create_connection((str(place.hostname), place.port or 80), timeout=30) for _ in range(60)]
    try:
        for each in guesses:
            each.sendall(head + body[:-1])
        limit = agent._server.config.app.state.desk.limit
        until(lambda: limit.wait_seconds("127.0.0.1") > 0)
        for each in guesses:
            with contextlib.suppress(ConnectionError):
                each.sendall(body[-1:])
        statuses = [each.recv(12) for each in guesses]
    finally:
        for each in guesses:
            each.close()
    assert statuses.count(b"HTTP/1.1 401") == 10 and statuses.count(b"HTTP/1.1 429") == 50


def test_who_logs_in_is_not_counted_as_a_failure(agent: Agent) -> None:
    assert [guess(agent, ROSA) for _ in range(15)] == [200] * 15


def test_behind_a_trusted_proxy_one_guesser_locks_nobody_else_out(store: MemoryStore) -> None:
    with desk(store, trusted_proxies=("127.0.0.1",)) as agent:
        statuses = [guess(agent, "a-wrong-token", **{"x-forwarded-for": "198.51.100.7"}) for _ in range(11)]
        assert statuses == [401] * 10 + [429]
        assert guess(agent, ROSA, **{"x-forwarded-for": "203.0.113.9"}) == 200
        assert guess(agent, ROSA, **{"x-forwarded-for": "203.0.113.9, 198.51.100.7"}) == 429
    with desk(store) as agent:
        for number in range(10):
            assert guess(agent, "a-wrong-token", **{"x-forwarded-for": f"198.51.100.{number}"}) == 401
        assert guess(agent, ROSA, **{"x-forwarded-for": "203.0.113.9"}) == 429, "anybody can write that header"


def test_who_is_not_logged_in_is_sent_away_before_the_body_is_read(agent: Agent) -> None:
    place = urlsplit(agent.url)
    for path in ("/api/review", "/api/redrive"):
        with socket.create_connection((str(place.hostname), place.port or 80), timeout=30) as connection:
            connection.sendall(f"POST {path} HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Length: 1000\r\n\r\n".encode())
            assert connection.recv(12) == b"HTTP/1.1 401"


def test_other_peoples_pages_cannot_log_in_or_decide(agent: Agent, bucket: Bucket) -> None:
    assert agent.http.post("/api/login", json={"token": ROSA}).status_code == 403
    with Reviewer(agent.url, ROSA) as rosa, Reviewer(agent.url, OMAR) as omar:
        for csrf in ("", "login", omar.session["csrf"]):
            answer = rosa.http.post(
                "/api/review", json={"id": "ad", "revision": 1, "action": "approve"}, headers={"x-desk-csrf": csrf}
            )
            assert answer.status_code == 403, csrf
            assert (history(bucket)[-1].did, history(bucket)[-1].by) == ("denied", "rosa"), "somebody used her cookie"
    assert not [line for line in history(bucket) if line.did == "approve"]


def test_who_may_only_look_decides_nothing_and_that_is_noted(agent: Agent, bucket: Bucket) -> None:
    with Reviewer(agent.url, VERA) as vera:
        assert vera.session["may_decide"] is False
        assert ids(vera.get("/api/posts")) == ["ad", "odd"]
        assert vera.review("ad", "approve").status_code == 403
        assert vera.http.post("/api/redrive", json={"queue": "events", "ids": None}).status_code == 403
    lines = [line for line in history(bucket) if line.did == "denied"]
    assert [line.by for line in lines] == ["vera", "vera"]
    assert "approve post 'ad'" in lines[0].reason and "redrive" in lines[1].reason


# What they see.


def test_posts_that_wait_are_listed_with_all_that_a_reviewer_needs(agent: Agent) -> None:
    with Reviewer(agent.url, ROSA) as rosa:
        found = rosa.get("/api/posts")
        assert ids(found) == ["ad", "odd"] and found["waiting"] == 2 and found["next"] is None
        ad = found["items"][0]
        assert (ad["outcome"], ad["text"], ad["revision"]) == ("flagged/", "buy cheap watches", 1)
        assert [each["name"] for each in ad["categories"] if each["flagged"]] == ["spam"]
        assert ad["rationale"] == "It reads like spam." and ad["model"] == "test-1"
        whole = rosa.get("/api/post", id="ad")
        assert whole["text"] == "buy cheap watches" and whole["decision"]["outcome"] == "flagged/"


def test_filters_and_orders(agent: Agent, bucket: Bucket) -> None:
    post(bucket, "mean", "You are an awful player", 0.6, category="harassment")
    with Reviewer(agent.url, ROSA) as rosa:

        def found(**query: Any) -> list[str]:
            return ids(rosa.get("/api/posts", **query))

        until(lambda: "mean" in found())
        assert found(outcome="flagged/") == ["ad"]
        assert found(category="harassment") == ["mean"]
        assert found(min=0.65) == ["ad", "odd"]
        assert found(category="spam", min=0.8) == ["ad"]
        assert found(q="AWFUL player") == ["mean"]
        assert found(q="odd") == ["odd"]
        assert found(q="no such words") == []
        assert found(sort="surest") == ["ad", "odd", "mean"]
        assert found(sort="least-sure") == ["mean", "odd", "ad"]
        assert found(sort="newest") == ["mean", "odd", "ad"]
        assert found(escalated="true") == []
        for wrong in ({"category": "rudeness"}, {"min": 2}, {"limit": 51}, {"sort": "no"}, {"after": "!"}, {"x": 1}):
            answer = rosa.http.get("/api/posts", params=wrong)
            assert answer.status_code == 400 and answer.json()["error"], wrong


def test_new_posts_and_other_peoples_decisions_appear_by_themselves(agent: Agent, bucket: Bucket) -> None:
    bus = bus_of(bucket)
    with Reviewer(agent.url, ROSA) as rosa:
        assert ids(rosa.get("/api/posts")) == ["ad", "odd"]
        lists = agent_requests(agent)
        post(bucket, "new", "cheap pills", BAD)
        run_now(bucket, posts.review(bus, "odd", revision=1, reviewer="omar", action="approve"))
        run_now(bucket, posts.review(bus, "ad", revision=1, reviewer="omar", action="escalate", note="hm"))
        until(lambda: sorted(ids(rosa.get("/api/posts"))) == ["ad", "new"])
        until(lambda: ids(rosa.get("/api/posts", escalated="true")) == ["ad"])
        assert agent_requests(agent) == lists, "it was found by events, without listing everything again"
        assert rosa.get("/api/post", id="ad")["escalation"]["note"] == "hm"


def agent_requests(agent: Agent) -> int:
    """LISTs made by the desk's own bucket."""
    return agent._server.config.app.state.desk.bucket.requests.list


def test_hostile_ids_and_texts_are_only_text(store: MemoryStore, bucket: Bucket) -> None:
    hostile = "../<script>alert(1)</script>?&#"
    post(bucket, hostile, "<img src=x onerror=alert(1)>", UNSURE)
    with desk(store) as agent, Reviewer(agent.url, ROSA) as rosa:
        assert ids(rosa.get("/api/posts")) == [hostile]
        assert rosa.get("/api/post", id=hostile)["text"] == "<img src=x onerror=alert(1)>"
        assert rosa.review(hostile, "uphold").status_code == 200


def test_a_record_that_cannot_be_read_still_waits_for_a_person(store: MemoryStore, bucket: Bucket) -> None:
    bucket.put("pending/broken.json", b"{not json")
    run_now(bucket, posts.route(bus_of(bucket), "pending/broken.json"))
    with desk(store) as agent, Reviewer(agent.url, ROSA) as rosa:
        (item,) = rosa.get("/api/posts")["items"]
        assert item["text"] == "{not json" and "not a record" in item["doubt"]


# Deciding.


def test_a_decision_is_written_with_who_and_when_and_the_post_is_gone_from_the_list(
    agent: Agent, bucket: Bucket
) -> None:
    with Reviewer(agent.url, ROSA) as rosa:
        assert ids(rosa.get("/api/posts")) == ["ad", "odd"]
        done = rosa.review("ad", "approve", note="it is a joke")
        assert done.status_code == 200 and done.json()["reviewer"] == "rosa"
        assert ids(rosa.get("/api/posts")) == ["odd"]
    review = bucket.get_json("reviewed/ad.json")
    assert (review["reviewer"], review["action"], review["note"]) == ("rosa", "approve", "it is a joke")
    assert bucket.look("approved/ad.json") is not None and bucket.look("flagged/ad.json") is None
    (line,) = [line for line in history(bucket) if line.did == "approve"]
    assert (line.by, line.id) == ("rosa", "ad")


def test_the_name_does_not_come_from_the_client(agent: Agent) -> None:
    with Reviewer(agent.url, ROSA) as rosa:
        body = {"id": "ad", "revision": 1, "action": "approve", "reviewer": "omar"}
        assert rosa.http.post("/api/review", json=body).status_code == 400


def test_of_two_reviewers_at_once_exactly_one_decides_and_the_other_is_told_who(agent: Agent, bucket: Bucket) -> None:
    with Reviewer(agent.url, ROSA) as rosa, Reviewer(agent.url, OMAR) as omar:
        for person in (rosa, omar):
            assert ids(person.get("/api/posts")) == ["ad", "odd"]
        answers: dict[str, httpx2.Response] = {}
        barrier = threading.Barrier(2)

        def decide(name: str, person: Reviewer, action: str) -> None:
            barrier.wait(30)
            answers[name] = person.review("ad", action)

        threads = [
            threading.Thread(target=decide, args=given)
            for given in (("rosa", rosa, "approve"), ("omar", omar, "uphold"))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(answer.status_code for answer in answers.values()) == [200, 409]
        won, lost = sorted(answers, key=lambda name: answers[name].status_code)
        told = answers[lost].json()
        assert told["reviewer"] == won and told["at"] and won in told["error"]
        stands = bucket.get_json("reviewed/ad.json")
        assert stands["reviewer"] == won
        lines = [line for line in history(bucket) if line.id == "ad" and line.did in ("approve", "uphold", "refused")]
        assert sorted((line.by, line.did == "refused") for line in lines) == sorted([(won, False), (lost, True)])


def test_a_decision_on_an_older_revision_is_refused(agent: Agent, bucket: Bucket) -> None:
    with Reviewer(agent.url, ROSA) as rosa:
        assert ids(rosa.get("/api/posts")) == ["ad", "odd"]
        post(bucket, "ad", "buy cheap watches, now!", BAD, revision=2)
        answer = rosa.review("ad", "approve")
        assert answer.status_code == 409 and answer.json()["why"] == "superseded"
        found = {item["id"]: item for item in rosa.get("/api/posts")["items"]}
        assert found["ad"]["text"] == "buy cheap watches, now!" and found["ad"]["revision"] == 2


def test_unknown_posts_and_words_are_refused(agent: Agent) -> None:
    with Reviewer(agent.url, ROSA) as rosa:
        assert rosa.review("nobody", "approve").status_code == 404
        assert rosa.review("ad", "delete").status_code == 400
        assert rosa.review("ad", "approve", note="x" * 4_001).status_code == 400
        assert rosa.http.post("/api/review", content=b"{").status_code == 400
        assert rosa.http.post("/api/review", content=b" " * 300_000).status_code == 413
        assert rosa.http.get("/api/post", params={"id": "nobody"}).status_code == 404


def test_a_bucket_that_is_away_is_said_and_nothing_is_decided(store: Gate, bucket: Bucket) -> None:
    post(bucket, "ad", "buy cheap watches", BAD)
    sessions = Sessions(PEOPLE)
    # Two desks with one log-in: only what must run out of time is asked of the one that waits no longer than a moment.
    with (
        desk(store, sessions=sessions) as patient,
        desk(store, sessions=sessions, answer_seconds=0.5) as hasty,
        Reviewer(patient.url, ROSA) as rosa,
    ):
        assert ids(rosa.get("/api/posts")) == ["ad"]
        store.holds, store.broken = "moderation/posts", True
        rosa.go_to(hasty.url)
        answer = rosa.review("ad", "approve")
        assert answer.status_code == 503 and answer.json()["error"]
        assert bucket.look("reviewed/ad.json") is None
        store.holds, store.broken = "\0", False
        rosa.go_to(patient.url)
        assert rosa.review("ad", "approve").status_code == 200, "saying it again is no error, whatever became of it"


# Images.


def test_an_image_is_fetched_by_the_server_and_drawn_anew(store: MemoryStore, bucket: Bucket) -> None:
    data = encoded(written("hello"))
    with endpoint([Reply(200, {"Content-Type": "image/png"}, data)]) as there:
        url = there.url
        post(bucket, "pic", "look at this", UNSURE, media_url=url)
        post(bucket, "text", "no image here", UNSURE)
        with desk(store, fetch=FetchSettings(private=True)) as agent, Reviewer(agent.url, ROSA) as rosa:
            (with_media, without) = rosa.get("/api/posts")["items"]
            assert with_media["has_media"] and not without["has_media"]
            assert url not in rosa.http.get("/api/posts").text, "the browser is not told where the image lies"
            assert rosa.get("/api/image/state", id="pic") == {"there": True, "why": None}
            answer = rosa.http.get("/api/image", params={"id": "pic"})
            assert answer.status_code == 200 and answer.headers["content-type"] == "image/jpeg"
            assert answer.content != data and answer.content.startswith(b"\xff\xd8\xff")
            assert rosa.http.get("/api/image", params={"id": "text"}).status_code == 404
        with desk(store) as agent, Reviewer(agent.url, ROSA) as rosa:
            state = rosa.get("/api/image/state", id="pic")
            assert state["there"] is False and state["why"], "this machine is not spoken to unless that is allowed"


def test_every_frame_that_was_judged_is_shown(store: MemoryStore, bucket: Bucket) -> None:
    """Or the one for which a post is flagged is the one that nobody sees."""
    colours = ("white", "red", "lime", "blue", "yellow", "black")
    data = animation([canvas((40, 30), colour) for colour in colours])
    with endpoint([Reply(200, {"Content-Type": "image/gif"}, data)]) as there:
        post(bucket, "pic", "look at this", UNSURE, media_url=there.url)
        with desk(store, fetch=FetchSettings(private=True)) as agent, Reviewer(agent.url, ROSA) as rosa:
            shown = Image.open(io.BytesIO(rosa.http.get("/api/image", params={"id": "pic"}).content))
    assert shown.size == (40, 30 * len(colours))


# The dashboard.


def test_flow_counts_rates_and_latencies(agent: Agent) -> None:
    with Reviewer(agent.url, ROSA) as rosa:
        rosa.review("ad", "uphold")
        flow = rosa.get("/api/figures/flow")["flow"]
    assert (flow["submitted"], flow["unjudged"]) == (3, 3)
    objects = {prefix: flow["objects"][prefix] for prefix in ("approved/", "flagged/", "needs-review/", "reviewed/")}
    assert objects == {"approved/": 1, "flagged/": 1, "needs-review/": 1, "reviewed/": 1}
    totals = {name: sum(counts) for name, counts in flow["rates"].items()}
    assert totals == {
        "accepted": 3, "judged": 3, "approved": 1, "flagged": 1, "needs-review": 1, "reviewed": 1, "told": 0,
    }  # fmt: skip
    assert {name: found and found["count"] for name, found in flow["latencies"].items()} == {
        "judging": 3, "routing": 3, "whole": 3, "review": 1, "notice": None,
    }  # fmt: skip


def test_queues_rules_and_deliveries(agent: Agent, bucket: Bucket) -> None:
    @bucket.watch(ROUTE_FILTER, name=ROUTE_RULE, start="beginning", gone="deliver")
    def fails(change: Any) -> None:
        if "odd" in change.key:
            raise ValueError("no such thing")

    bucket.run_watchers(ROUTE_RULE, stop_when_empty=True, signals=False)
    bucket.rules.add("told", to="https://hooks.example.com/services/SECRET-PATH", filter="")
    bucket.queue("jobs").send({"n": 1})
    with Reviewer(agent.url, ROSA) as rosa:
        queues = {queue["name"]: queue for queue in rosa.get("/api/figures/queues")["queues"]}
        rules = {rule["name"]: rule for rule in rosa.get("/api/figures/rules")["rules"]}
        text = rosa.http.get("/api/figures/rules").text
    assert queues["submissions"]["sent"] == 3 and queues["submissions"]["subscriptions"] == []
    assert [(each["name"], each["ready"]) for each in queues["jobs"]["subscriptions"]] == [("main", 1)]
    route = rules[ROUTE_RULE]
    assert (route["done"], route["failed"], route["delayed"]) == (2, 1, 1)
    assert "no such thing" in route["last_error"] and route["to"] == "a watcher" and "pending/" in route["filter"]
    assert "hooks.example.com" in rules["told"]["to"] and "SECRET-PATH" not in text


def bury(bucket: Bucket, count: int) -> None:
    queue = bucket.queue("jobs")
    queue.send_many([{"n": n} for n in range(count)])
    queue.run(lambda delivery: Bury("no such user"), stop_when_empty=True, signals=False)


def test_dead_letters_are_shown_and_redriven_one_or_all(agent: Agent, bucket: Bucket) -> None:
    bury(bucket, 3)
    with Reviewer(agent.url, ROSA) as rosa:
        (found,) = rosa.get("/api/figures/dead")["dead"]
        assert (found["queue"], found["dead"]) == ("jobs", 3)
        letter = found["letters"][0]
        assert letter["reason"] == "no such user" and '"n": 0' in letter["body"] and len(letter["failures"]) == 1
        one = rosa.http.post("/api/redrive", json={"queue": "jobs", "ids": [letter["id"]]})
        assert one.json() == {"matched": 1, "redriven": 1}
        (left,) = rosa.get("/api/figures/dead")["dead"]
        assert left["dead"] == 2 and letter["id"] not in [each["id"] for each in left["letters"]]
        assert rosa.http.post("/api/redrive", json={"queue": "jobs", "ids": None}).json()["redriven"] == 2
        assert rosa.get("/api/figures/dead")["dead"] == []
        assert rosa.http.post("/api/redrive", json={"queue": "no-such", "ids": None}).status_code == 404
        assert rosa.http.post("/api/redrive", json={"queue": "jobs", "ids": []}).status_code == 400
    assert len(bucket.queue("jobs").peek(10)) == 3
    lines = [line for line in history(bucket) if line.did == "redrive"]
    assert [(line.by, line.reason) for line in lines] == [
        ("rosa", "1 of 'jobs'"),
        ("rosa", "all of 'jobs'"),
        ("rosa", "all of 'no-such'"),
    ]
    assert bucket.queues().count("no-such") == 0


# Many.

MANY = 10_000


@pytest.mark.timeout(120)
def test_ten_thousand_waiting_posts_cost_a_bounded_number_of_requests_and_bytes(tmp_path: Path) -> None:
    folder = tmp_path / "bucket"
    (folder / FLAGGED).mkdir(parents=True)
    for number in range(MANY):
        id = f"post-{number:05}"
        (folder / key_of(FLAGGED, id)).write_bytes(record_body(id, f"offer number {number}: " + "x" * 400, 0.97))
    url = f"file://{folder}"
    with desk_on(lambda: aio.connect(url, probe=False)) as agent, Reviewer(agent.url, ROSA) as rosa:
        meter = agent._server.config.app.state.desk.bucket
        until(lambda: (found := rosa.get("/api/posts"))["waiting"] == MANY and found["unread"] == 0)
        first = meter.requests
        assert first.get <= MANY + 400 and first.list <= 60, first
        seen: list[str] = []
        cursor = ""
        for _ in range(4):
            answer = rosa.http.get("/api/posts", params={"after": cursor})
            assert len(answer.content) < 100_000
            found = answer.json()
            assert len(found["items"]) == 50 and found["matching"] == MANY
            seen += ids(found)
            cursor = found["next"]
        assert len(set(seen)) == 200
        assert ids(rosa.get("/api/posts", q="number 9999:")) == ["post-09999"]
        assert meter.requests.list == first.list, "looking on must not list again"
        assert meter.requests.get - first.get <= 20, "nor read anything again"
        gets = meter.requests.get
        assert rosa.review(seen[0], "uphold").status_code == 200, "others put it there, and it is decided all the same"
        until(lambda: rosa.get("/api/posts")["waiting"] == MANY - 1)
        with connect(url, probe=False) as bucket:
            post(bucket, "late", "cheap pills", BAD)
        until(lambda: rosa.get("/api/posts")["waiting"] == MANY)
        assert meter.requests.list <= first.list + 10, "for the ends of logs that are new; posts are not listed again"
        assert meter.requests.get - gets < 100
        assert msgspec.json.decode((folder / FLAGGED / "late.json").read_bytes())["id"] == "late"
