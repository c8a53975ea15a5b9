"""The desk's API for what people decided: taking it back, deciding about several, who decided what; and who may."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from dashboard.opened import Opened, lines
from server.running import until

from apps.moderation.agents import Gate, sync_on
from apps.moderation.desks import ADA, BAD, CLEAN, OLA, OMAR, ROSA, UNSURE, VERA, Reviewer, desk, history, post
from bucketmq.apps.moderation import posts
from bucketmq.apps.moderation.desk import decisions
from bucketmq.apps.moderation.desk.decisions import Ledger, Wanted
from bucketmq.apps.moderation.desk.routes import BULK_MAX
from bucketmq.bucket.memory import MemoryStore
from bucketmq.client import Bucket
from bucketmq.server.people import Caller
from bucketmq.server.place import bus_of, run_now


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


def undo(person: Reviewer, id: str, action: str, *, turn: int = 0, revision: int = 1) -> httpx2.Response:
    body = {"id": id, "revision": revision, "action": action, "turn": turn}
    return person.http.post("/api/review/undo", json=body)


def bulk(person: Reviewer, action: str, *ids: str, revision: int = 1) -> httpx2.Response:
    chosen = [{"id": id, "revision": revision} for id in ids]
    return person.http.post("/api/review/bulk", json={"posts": chosen, "action": action})


def waiting(person: Reviewer) -> list[str]:
    return [item["id"] for item in person.get("/api/review/posts")["items"]]


# Who may.


def test_only_people_with_a_name_and_the_role_change_anything(agent: Opened, bucket: Bucket) -> None:
    with Reviewer(agent.url, ROSA) as rosa:
        rosa.review("ad", "approve")
    bodies = {
        "/api/review/undo": {"id": "ad", "revision": 1, "action": "approve", "turn": 0},
        "/api/review/bulk": {"posts": [{"id": "odd", "revision": 1}], "action": "approve"},
    }
    looks = ("/api/review/matching", "/api/review/history?id=ad", "/api/decisions/list")
    assert {agent.http.post(path, json=body).status_code for path, body in bodies.items()} == {401}
    assert {agent.http.get(path).status_code for path in looks} == {401}
    before = len(history(bucket))
    with Reviewer(agent.url, OLA) as ola:
        assert ola.session["may"] == ["look", "operate"]
        for path, body in bodies.items():
            assert ola.http.post(path, json=body).status_code == 403, path
    with Reviewer(agent.url, VERA) as vera:
        for path, body in bodies.items():
            assert vera.http.post(path, json=body).status_code == 403, path
        assert {vera.http.get(path).status_code for path in looks} == {200}
        assert not any(row["may_undo"] for row in vera.get("/api/decisions/list")["decisions"])
    with Reviewer(agent.url, ROSA) as rosa:
        for path, body in bodies.items():
            answer = rosa.http.post(path, json=body, headers={"x-bucketmq-csrf": "of another page"})
            assert answer.status_code == 403, path
        assert waiting(rosa) == ["odd"]
    assert len(history(bucket)) == before
    assert [(line.did, line.to) for line in lines(bucket) if line.by == "vera" and line.denied] == [
        ("undo approve", "post 'ad'"),
        ("approve", "post 'odd'"),
    ]


# Taking back.


def test_a_decision_is_taken_back_and_the_post_is_in_the_list_again(agent: Opened, bucket: Bucket) -> None:
    with Reviewer(agent.url, ROSA) as rosa, Reviewer(agent.url, OMAR) as omar:
        assert waiting(rosa) == ["ad", "odd"]
        said = rosa.review("ad", "approve").json()
        assert (said["turn"], said["undo_seconds"]) == (0, 600.0)
        assert waiting(rosa) == ["odd"] and rosa.get("/api/review/posts")["reviewed"] == 1
        others = undo(omar, "ad", "approve")
        assert others.status_code == 403 and others.json()["why"] == "not-yours" and "rosa" in others.json()["error"]
        done = undo(rosa, "ad", "approve")
        assert done.status_code == 200 and (done.json()["by"], done.json()["outcome"]) == ("rosa", "flagged/")
        assert waiting(rosa) == ["ad", "odd"] and rosa.get("/api/review/posts")["reviewed"] == 0
        assert bucket.look("reviewed/ad.json") is None and bucket.look("flagged/ad.json") is not None
        until(lambda: waiting(omar) == ["ad", "odd"])
        assert omar.review("ad", "uphold").json()["turn"] == 1
        late = undo(rosa, "ad", "approve")
        assert late.status_code == 200 and waiting(rosa) == ["odd"], "said twice, it is not taken back twice"
        assert undo(rosa, "ad", "uphold", turn=1).status_code == 403
        assert undo(omar, "nobody", "approve").status_code == 404
        assert undo(omar, "ad", "delete").status_code == 400


def test_after_the_window_only_an_administrator_takes_it_back(store: MemoryStore, bucket: Bucket) -> None:
    post(bucket, "ad", "buy cheap watches", BAD)
    with desk(store, undo_seconds=0.0) as agent:
        with Reviewer(agent.url, ROSA) as rosa:
            rosa.review("ad", "approve")
            (row,) = rosa.get("/api/decisions/list")["decisions"]
            assert row["may_undo"] is False
            answer = undo(rosa, "ad", "approve")
            assert answer.status_code == 403 and answer.json()["why"] == "late"
        with Reviewer(agent.url, ADA) as ada:
            (row,) = ada.get("/api/decisions/list")["decisions"]
            assert row["may_undo"] is True and row["undo_seconds"] is None
            assert undo(ada, "ad", "approve").status_code == 200
            until(lambda: ada.get("/api/decisions/list")["decisions"][0]["undone_by"] == "ada")
    assert [(line.did, line.by) for line in history(bucket) if line.did in ("approve", "undo", "refused")] == [
        ("approve", "rosa"),
        ("refused", "rosa"),
        ("undo", "ada"),
    ]


def test_one_undoes_while_the_other_decides(agent: Opened, bucket: Bucket) -> None:
    """On the server, both at once: whatever comes first, the objects say what the register says."""
    with Reviewer(agent.url, ROSA) as rosa, Reviewer(agent.url, OMAR) as omar:
        rosa.review("ad", "approve")
        answers: dict[str, int] = {}
        barrier = threading.Barrier(2)

        def run(name: str, work: Any) -> None:
            barrier.wait(30)
            answers[name] = work().status_code

        works = {"undo": lambda: undo(rosa, "ad", "approve"), "decide": lambda: omar.review("ad", "uphold")}
        threads = [threading.Thread(target=run, args=each) for each in works.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert answers["undo"] == 200 and answers["decide"] in (200, 409)
    found = run_now(bucket, posts.look_at(bus_of(bucket), "ad")).register
    assert found is not None and (found.review is not None) == (answers["decide"] == 200)
    assert (bucket.look("reviewed/ad.json") is not None) == (found.review is not None)
    assert bucket.look("flagged/ad.json") is not None and bucket.look("approved/ad.json") is None


# Several.


def test_several_are_decided_at_once_each_with_its_own_line_and_its_own_answer(agent: Opened, bucket: Bucket) -> None:
    for number in range(6):
        post(bucket, f"p{number}", f"offer number {number}", BAD)
    run_now(bucket, posts.review(bus_of(bucket), "p3", revision=1, reviewer="omar", action="approve"))
    with Reviewer(agent.url, ROSA) as rosa:
        until(lambda: len(waiting(rosa)) == 7)
        chosen = rosa.get("/api/review/matching", q="offer", category="spam")
        assert [each["id"] for each in chosen["posts"]] == ["p0", "p1", "p2", "p4", "p5"] and chosen["matching"] == 5
        answer = bulk(rosa, "uphold", *(f"p{number}" for number in range(5)), "nobody")
        results = {each["id"]: each for each in answer.json()["results"]}
        assert {id for id, each in results.items() if each["done"]} == {"p0", "p1", "p2", "p4"}
        assert results["p3"]["why"] == "decided" and "omar" in results["p3"]["error"] and results["p3"]["sure"]
        assert "no post 'nobody'" in results["nobody"]["error"]
        assert waiting(rosa) == ["ad", "odd", "p5"]
        again = bulk(rosa, "uphold", "p0", "p1")
        assert all(each["done"] for each in again.json()["results"]), "saying the same again does no harm"
    noted = [line.id for line in history(bucket) if line.did == "uphold" and line.by == "rosa"]
    assert sorted(noted) == ["p0", "p1", "p2", "p4"]


def test_too_many_none_or_one_twice_are_refused(agent: Opened) -> None:
    with Reviewer(agent.url, ROSA) as rosa:
        assert bulk(rosa, "approve").status_code == 400
        assert bulk(rosa, "approve", "ad", "ad").status_code == 400
        assert bulk(rosa, "approve", *(f"p{number}" for number in range(BULK_MAX + 1))).status_code == 400
        assert bulk(rosa, "delete", "ad").status_code == 400
        assert waiting(rosa) == ["ad", "odd"]


def test_a_filter_has_two_ends(agent: Opened) -> None:
    with Reviewer(agent.url, ROSA) as rosa:
        found = [
            [each["id"] for each in rosa.get("/api/review/matching", **{"min": low, "max": high})["posts"]]
            for low, high in ((0, 1), (0, 0.8), (0.8, 1), (0.75, 0.8))
        ]
        assert found == [["ad", "odd"], ["odd"], ["ad"], []]
        assert rosa.http.get("/api/review/matching", params={"min": 0.8, "max": 0.2}).status_code == 400


# Who decided what.


def test_decisions_are_listed_with_who_when_and_what_was_taken_back(agent: Opened) -> None:
    with Reviewer(agent.url, ROSA) as rosa, Reviewer(agent.url, OMAR) as omar:
        assert rosa.get("/api/decisions/list")["decisions"] == []
        rosa.review("ad", "approve", note="a joke")
        undo(rosa, "ad", "approve")
        omar.review("ad", "uphold")
        rosa.review("odd", "approve")
        until(lambda: len(rosa.get("/api/decisions/list")["decisions"]) == 3)
        found = rosa.get("/api/decisions/list")
        assert [(row["id"], row["action"], row["by"], row["undone_by"]) for row in found["decisions"]] == [
            ("odd", "approve", "rosa", ""),
            ("ad", "uphold", "omar", ""),
            ("ad", "approve", "rosa", "rosa"),
        ]
        assert [row["may_undo"] for row in found["decisions"]] == [True, False, False]
        assert [row["agreed"] for row in found["decisions"]] == [None, True, False]
        assert found["people"] == ["omar", "rosa"] and found["next"] is None
        assert found["agreement"] == {"upheld": 1, "approved": 0, "unsure_upheld": 0, "unsure_approved": 1}

        def ids(**query: Any) -> list[str]:
            return [f"{row['id']}:{row['turn']}" for row in rosa.get("/api/decisions/list", **query)["decisions"]]

        assert ids(by="omar") == ["ad:1"] and ids(did="approve") == ["odd:0", "ad:0"]
        assert ids(taken_back="yes") == ["ad:0"] and ids(agreed="no") == ["ad:0"] and ids(q="JOKE") == ["ad:0"]
        first = rosa.get("/api/decisions/list", limit=2)
        assert len(first["decisions"]) == 2 and first["matching"] == 3
        assert ids(limit=2, after=first["next"]) == ["ad:0"]
        for wrong in ({"limit": 51}, {"did": "undo"}, {"after": "!"}, {"x": 1}):
            assert rosa.http.get("/api/decisions/list", params=wrong).status_code == 400, wrong


def test_looking_at_decisions_costs_the_same_however_many_there_ever_were(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "KEPT_MAX", 20)
    spent = []
    with sync_on(store) as bucket:
        bus = bus_of(bucket)
        for many in (30, 120):
            for number in range(many):
                id = f"{many}-{number}"
                post(bucket, id, f"offer {number}", UNSURE)
                run_now(bucket, posts.review(bus, id, revision=1, reviewer="rosa", action="uphold"))
            with desk(store) as agent, Reviewer(agent.url, VERA) as vera:
                before = agent.requests
                found = vera.get("/api/decisions/list")
                spent.append(agent.requests - before)
                assert found["kept"] == 20 and found["full"] is True
                assert found["decisions"][0]["id"] == f"{many}-{many - 1}"
    assert all(each.get <= 30 and each.list <= 3 for each in spent), spent


def test_a_line_that_comes_twice_counts_once_and_what_is_none_is_passed_over() -> None:
    ledger = Ledger(None, undo_seconds=600.0)  # type: ignore[arg-type]  # nothing is read
    line = {
        "action": "uphold:a:1", "did": "uphold", "by": "rosa", "id": "a", "revision": 1, "at": "2026-05-04T08:00:00Z",
        "outcome": "flagged/", "before": "flagged/",
    }  # fmt: skip
    for body in (
        line,
        line,
        {**line, "action": "b", "at": "yesterday"},
        {"action": 7},
        None,
        {**line, "did": "routed"},
    ):
        ledger.add(body)
    found = ledger.find(Wanted(), Caller("rosa", ("review",)), 0.0)
    assert [row.id for row in found.decisions] == ["a"] and found.agreement.upheld == 1
