"""The review desk's API: what reviewers see, and that each post is decided once."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from dashboard.opened import Opened
from PIL import Image
from server.running import until

from apps.moderation.agents import Gate, sync_on
from apps.moderation.desks import BAD, CLEAN, OMAR, PEOPLE, ROSA, UNSURE, VERA, Reviewer, desk, desk_on, history, post
from apps.moderation.drawing import animation, canvas, encoded, written
from apps.moderation.test_posts import record_body
from bucketmq import aio
from bucketmq.apps.moderation import posts
from bucketmq.apps.moderation.ids import key_of
from bucketmq.apps.moderation.record import FLAGGED
from bucketmq.bucket.memory import MemoryStore
from bucketmq.client import Bucket, connect
from bucketmq.server.gate import CSRF_HEADER
from bucketmq.server.place import bus_of, run_now
from bucketmq.server.session import Sessions
from bucketmq.testing.endpoints import Reply, endpoint


@pytest.fixture
def store() -> MemoryStore:
    return Gate()


@pytest.fixture
def bucket(store: MemoryStore) -> Iterator[Bucket]:
    with sync_on(store) as made:
        yield made


@pytest.fixture
def agent(store: MemoryStore, bucket: Bucket) -> Iterator[Opened]:
    post(bucket, "ad", "buy cheap watches", BAD)
    post(bucket, "odd", "is this an ad?", UNSURE)
    post(bucket, "nice", "lovely weather", CLEAN)
    with desk(store) as made:
        yield made


def ids(found: dict[str, Any]) -> list[str]:
    return [item["id"] for item in found["items"]]


# Who is let in. How they log in is tests/dashboard's.

CLOSED = [
    "/api/review/posts",
    "/api/review/post?id=ad",
    "/api/review/image?id=ad",
    "/api/review/image/state?id=ad",
    "/api/flow/figures",
]


def test_everything_that_the_desk_adds_needs_a_login(agent: Opened) -> None:
    assert {path: agent.http.get(path).status_code for path in CLOSED} == dict.fromkeys(CLOSED, 401)
    decision = {"id": "ad", "revision": 1, "action": "approve"}
    assert agent.http.post("/api/review/decide", json=decision).status_code == 401
    assert agent.http.get("/tabs/review/review.js").status_code == 200
    assert agent.http.get("/tabs/review/..%2ftabs.py").status_code == 404


def test_other_peoples_pages_cannot_decide(agent: Opened, bucket: Bucket) -> None:
    with Reviewer(agent.url, ROSA) as rosa, Reviewer(agent.url, OMAR) as omar:
        for csrf in ("", "login", omar.session["csrf"]):
            decision = {"id": "ad", "revision": 1, "action": "approve"}
            answer = rosa.http.post("/api/review/decide", json=decision, headers={CSRF_HEADER: csrf})
            assert answer.status_code == 403, csrf
    assert not [line for line in history(bucket) if line.did == "approve"]


def test_who_may_only_look_decides_nothing_and_that_is_noted(agent: Opened, bucket: Bucket) -> None:
    with Reviewer(agent.url, VERA) as vera:
        assert vera.session["may"] == ["look"]
        assert ids(vera.get("/api/review/posts")) == ["ad", "odd"]
        assert vera.review("ad", "approve").status_code == 403
    assert not [line for line in history(bucket) if line.did == "approve"]
    (line,) = (each.body for each in bucket.existing_queue("bucketmq-actions").tail({}))
    assert (line["by"], line["did"], line["to"]) == ("vera", "approve", "post 'ad'") and "look" in line["denied"]


# What they see.


def test_posts_that_wait_are_listed_with_all_that_a_reviewer_needs(agent: Opened) -> None:
    with Reviewer(agent.url, ROSA) as rosa:
        found = rosa.get("/api/review/posts")
        assert ids(found) == ["ad", "odd"] and found["waiting"] == 2 and found["next"] is None
        ad = found["items"][0]
        assert (ad["outcome"], ad["text"], ad["revision"]) == ("flagged/", "buy cheap watches", 1)
        assert [each["name"] for each in ad["categories"] if each["flagged"]] == ["spam"]
        assert ad["rationale"] == "It reads like spam." and ad["model"] == "test-1"
        whole = rosa.get("/api/review/post", id="ad")
        assert whole["text"] == "buy cheap watches" and whole["decision"]["outcome"] == "flagged/"


def test_filters_and_orders(agent: Opened, bucket: Bucket) -> None:
    post(bucket, "mean", "You are an awful player", 0.6, category="harassment")
    with Reviewer(agent.url, ROSA) as rosa:

        def found(**query: Any) -> list[str]:
            return ids(rosa.get("/api/review/posts", **query))

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
            answer = rosa.http.get("/api/review/posts", params=wrong)
            assert answer.status_code == 400 and answer.json()["error"], wrong


def test_new_posts_and_other_peoples_decisions_appear_by_themselves(agent: Opened, bucket: Bucket) -> None:
    bus = bus_of(bucket)
    with Reviewer(agent.url, ROSA) as rosa:
        assert ids(rosa.get("/api/review/posts")) == ["ad", "odd"]
        lists = agent_requests(agent)
        post(bucket, "new", "cheap pills", BAD)
        run_now(bucket, posts.review(bus, "odd", revision=1, reviewer="omar", action="approve"))
        run_now(bucket, posts.review(bus, "ad", revision=1, reviewer="omar", action="escalate", note="hm"))
        until(lambda: sorted(ids(rosa.get("/api/review/posts"))) == ["ad", "new"])
        until(lambda: ids(rosa.get("/api/review/posts", escalated="true")) == ["ad"])
        assert agent_requests(agent) == lists, "it was found by events, without listing everything again"
        assert rosa.get("/api/review/post", id="ad")["escalation"]["note"] == "hm"


def agent_requests(agent: Opened) -> int:
    """LISTs made by the desk's own bucket."""
    return agent._server.config.app.state.dashboard.site.bucket.requests.list


def test_hostile_ids_and_texts_are_only_text(store: MemoryStore, bucket: Bucket) -> None:
    hostile = "../<script>alert(1)</script>?&#"
    post(bucket, hostile, "<img src=x onerror=alert(1)>", UNSURE)
    with desk(store) as agent, Reviewer(agent.url, ROSA) as rosa:
        assert ids(rosa.get("/api/review/posts")) == [hostile]
        assert rosa.get("/api/review/post", id=hostile)["text"] == "<img src=x onerror=alert(1)>"
        assert rosa.review(hostile, "uphold").status_code == 200


def test_a_record_that_cannot_be_read_still_waits_for_a_person(store: MemoryStore, bucket: Bucket) -> None:
    bucket.put("pending/broken.json", b"{not json")
    run_now(bucket, posts.route(bus_of(bucket), "pending/broken.json"))
    with desk(store) as agent, Reviewer(agent.url, ROSA) as rosa:
        (item,) = rosa.get("/api/review/posts")["items"]
        assert item["text"] == "{not json" and "not a record" in item["doubt"]


# Deciding.


def test_a_decision_is_written_with_who_and_when_and_the_post_is_gone_from_the_list(
    agent: Opened, bucket: Bucket
) -> None:
    with Reviewer(agent.url, ROSA) as rosa:
        assert ids(rosa.get("/api/review/posts")) == ["ad", "odd"]
        done = rosa.review("ad", "approve", note="it is a joke")
        assert done.status_code == 200 and done.json()["reviewer"] == "rosa"
        assert ids(rosa.get("/api/review/posts")) == ["odd"]
    review = bucket.get_json("reviewed/ad.json")
    assert (review["reviewer"], review["action"], review["note"]) == ("rosa", "approve", "it is a joke")
    assert bucket.look("approved/ad.json") is not None and bucket.look("flagged/ad.json") is None
    (line,) = [line for line in history(bucket) if line.did == "approve"]
    assert (line.by, line.id) == ("rosa", "ad")


def test_the_name_does_not_come_from_the_client(agent: Opened) -> None:
    with Reviewer(agent.url, ROSA) as rosa:
        body = {"id": "ad", "revision": 1, "action": "approve", "reviewer": "omar"}
        assert rosa.http.post("/api/review/decide", json=body).status_code == 400


def test_of_two_reviewers_at_once_exactly_one_decides_and_the_other_is_told_who(agent: Opened, bucket: Bucket) -> None:
    with Reviewer(agent.url, ROSA) as rosa, Reviewer(agent.url, OMAR) as omar:
        for person in (rosa, omar):
            assert ids(person.get("/api/review/posts")) == ["ad", "odd"]
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


def test_a_decision_on_an_older_revision_is_refused(agent: Opened, bucket: Bucket) -> None:
    with Reviewer(agent.url, ROSA) as rosa:
        assert ids(rosa.get("/api/review/posts")) == ["ad", "odd"]
        post(bucket, "ad", "buy cheap watches, now!", BAD, revision=2)
        answer = rosa.review("ad", "approve")
        assert answer.status_code == 409 and answer.json()["why"] == "superseded"
        found = {item["id"]: item for item in rosa.get("/api/review/posts")["items"]}
        assert found["ad"]["text"] == "buy cheap watches, now!" and found["ad"]["revision"] == 2


def test_unknown_posts_and_words_are_refused(agent: Opened) -> None:
    with Reviewer(agent.url, ROSA) as rosa:
        assert rosa.review("nobody", "approve").status_code == 404
        assert rosa.review("ad", "delete").status_code == 400
        assert rosa.review("ad", "approve", note="x" * 4_001).status_code == 400
        assert rosa.http.post("/api/review/decide", content=b"{").status_code == 400
        assert rosa.http.post("/api/review/decide", content=b" " * 300_000).status_code == 413
        assert rosa.http.get("/api/review/post", params={"id": "nobody"}).status_code == 404


def test_a_bucket_that_is_away_is_said_and_nothing_is_decided(store: Gate, bucket: Bucket) -> None:
    post(bucket, "ad", "buy cheap watches", BAD)
    sessions = Sessions(PEOPLE)
    # Two desks with one log-in: only what must run out of time is asked of the one that waits no longer than a moment.
    with (
        desk(store, sessions=sessions) as patient,
        desk(store, sessions=sessions, answer_seconds=0.5) as hasty,
        Reviewer(patient.url, ROSA) as rosa,
    ):
        assert ids(rosa.get("/api/review/posts")) == ["ad"]
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
        with desk(store, private_images=True) as agent, Reviewer(agent.url, ROSA) as rosa:
            (with_media, without) = rosa.get("/api/review/posts")["items"]
            assert with_media["has_media"] and not without["has_media"]
            assert url not in rosa.http.get("/api/review/posts").text, "the browser is not told where the image lies"
            assert rosa.get("/api/review/image/state", id="pic") == {"there": True, "why": None}
            answer = rosa.http.get("/api/review/image", params={"id": "pic"})
            assert answer.status_code == 200 and answer.headers["content-type"] == "image/jpeg"
            assert answer.content != data and answer.content.startswith(b"\xff\xd8\xff")
            assert rosa.http.get("/api/review/image", params={"id": "text"}).status_code == 404
        with desk(store) as agent, Reviewer(agent.url, ROSA) as rosa:
            state = rosa.get("/api/review/image/state", id="pic")
            assert state["there"] is False and state["why"], "this machine is not spoken to unless that is allowed"


def test_every_frame_that_was_judged_is_shown(store: MemoryStore, bucket: Bucket) -> None:
    """Or the one for which a post is flagged is the one that nobody sees."""
    colours = ("white", "red", "lime", "blue", "yellow", "black")
    data = animation([canvas((40, 30), colour) for colour in colours])
    with endpoint([Reply(200, {"Content-Type": "image/gif"}, data)]) as there:
        post(bucket, "pic", "look at this", UNSURE, media_url=there.url)
        with desk(store, private_images=True) as agent, Reviewer(agent.url, ROSA) as rosa:
            shown = Image.open(io.BytesIO(rosa.http.get("/api/review/image", params={"id": "pic"}).content))
    assert shown.size == (40, 30 * len(colours))


# The dashboard.


def test_flow_counts_rates_and_latencies(agent: Opened) -> None:
    with Reviewer(agent.url, ROSA) as rosa:
        rosa.review("ad", "uphold")
        flow = rosa.get("/api/flow/figures")["flow"]
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


def test_it_is_explained_what_became_of_everything_that_was_submitted(agent: Opened, bucket: Bucket) -> None:
    bus = bus_of(bucket)
    for _ in range(2):
        run_now(bucket, posts.accept(bus, "new", "not judged yet"))  # and a repeat
    for text in ("first", "second"):
        run_now(bucket, posts.accept(bus, "revised", text))
    run_now(bucket, posts.accept(bus, "long", "x" * 90_000))  # its body does not lie in the log
    with Reviewer(agent.url, ROSA) as rosa:
        flow = rosa.get("/api/flow/figures")["flow"]
    assert flow["explained"] == {
        "submitted": 8, "repeats": 1, "replaced": 1, "judged": 3, "waiting": 3,
        "approved": 1, "flagged": 1, "needs_review": 1,
    }  # fmt: skip
    assert flow["submitted"] == 8


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
        meter = agent._server.config.app.state.dashboard.site.bucket
        until(lambda: (found := rosa.get("/api/review/posts"))["waiting"] == MANY and found["unread"] == 0)
        first = meter.requests
        assert first.get <= MANY + 400 and first.list <= 60, first
        seen: list[str] = []
        cursor = ""
        for _ in range(4):
            answer = rosa.http.get("/api/review/posts", params={"after": cursor})
            assert len(answer.content) < 100_000
            found = answer.json()
            assert len(found["items"]) == 50 and found["matching"] == MANY
            seen += ids(found)
            cursor = found["next"]
        assert len(set(seen)) == 200
        assert ids(rosa.get("/api/review/posts", q="number 9999:")) == ["post-09999"]
        assert meter.requests.list == first.list, "looking on must not list again"
        assert meter.requests.get - first.get <= 20, "nor read anything again"
        gets = meter.requests.get
        assert rosa.review(seen[0], "uphold").status_code == 200, "others put it there, and it is decided all the same"
        until(lambda: rosa.get("/api/review/posts")["waiting"] == MANY - 1)
        with connect(url, probe=False) as bucket:
            post(bucket, "late", "cheap pills", BAD)
        until(lambda: rosa.get("/api/review/posts")["waiting"] == MANY)
        # For the ends of four logs that are new, the audit log among them; posts are not listed again.
        assert meter.requests.list <= first.list + 16
        assert meter.requests.get - gets < 100
        assert msgspec.json.decode((folder / FLAGGED / "late.json").read_bytes())["id"] == "late"
