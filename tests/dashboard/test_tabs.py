"""What the dashboard's own tabs answer: queues, messages, dead letters, rules, the overview; and what that costs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from fastapi import APIRouter, Request, Response
from server.running import sync_on, until

from bucketmq import aio
from bucketmq.bucket.memory import MemoryStore
from bucketmq.client import Bucket
from bucketmq.dashboard import dead as dead_module
from bucketmq.dashboard import rules as rules_module
from bucketmq.dashboard import survey as survey_module
from bucketmq.dashboard.app import make_app
from bucketmq.dashboard.site import Site, json_answer
from bucketmq.dashboard.tab import Tab
from bucketmq.errors import Invalid
from bucketmq.server.gate import GateSettings
from dashboard.opened import ANN, OLA, PEOPLE, VERA, Opened, Person, bury, lines, opened, opened_on
from dashboard.test_gate import Broken


@pytest.fixture
def agent(store: MemoryStore) -> Iterator[Opened]:
    with opened(store) as made:
        yield made


def test_looking_at_everything_writes_nothing(store: MemoryStore, bucket: Bucket, agent: Opened) -> None:
    bury(bucket, 2)
    before = {entry.key: entry.version for entry in store.list("", after="", limit=1_000).entries}
    with Person(agent.url, ANN) as ann:
        for path in ("overview", "badges", "actions", "queues", "rules", "dead"):
            ann.get(f"/api/{path}")
        ann.get("/api/queue", name="jobs")
        ann.get("/api/messages", queue="jobs")
        ann.get("/api/dead/letters", queue="jobs", q="user")
    assert {entry.key: entry.version for entry in store.list("", after="", limit=1_000).entries} == before


def test_a_queue_by_subscription_and_shard(bucket: Bucket, agent: Opened) -> None:
    queue = bucket.queue("jobs", shards=2)
    queue.subscription("audit")
    queue.send_many([{"n": n} for n in range(10)], key=lambda body: str(body["n"]))
    queue.receive(2)
    with Person(agent.url, VERA) as vera:
        found = vera.get("/api/queue", name="jobs")
    assert [each["name"] for each in found["subscriptions"]] == ["audit", "main"]
    main = found["subscriptions"][1]
    assert (main["ready"], main["in_flight"], main["holders"]) == (8, 2, 1)
    assert [each["shard"] for each in main["shards"]] == [0, 1] and sum(each["ready"] for each in main["shards"]) == 8
    assert found["settings"]["shards"] == 2 and found["sent"] == 10


def test_the_subscription_of_a_rule_is_called_by_the_rules_name(bucket: Bucket, agent: Opened) -> None:
    bucket.rules.add("hook", to="queue:copies")
    with Person(agent.url, VERA) as vera:
        (found,) = vera.get("/api/queue", name="events")["subscriptions"]
    assert found["rule"] == "hook" and found["name"] != "hook"


def test_messages_are_shown_page_by_page_without_claiming_them(bucket: Bucket, agent: Opened) -> None:
    queue = bucket.queue("jobs", shards=3)
    for start in range(0, 60, 5):
        queue.send_many([{"n": n} for n in range(start, start + 5)], key=lambda body: str(body["n"]))
    held = {each.body["n"] for each in queue.receive(7)}
    seen: list[dict[str, Any]] = []
    with Person(agent.url, VERA) as vera:
        after = ""
        while True:
            page = vera.get("/api/messages", queue="jobs", limit=11, after=after)
            seen += page["messages"]
            if page["next"] is None:
                break
            after = page["next"]
        assert len(seen) == len({each["id"] for each in seen}) == 60
        assert sum(each["state"] == "in_flight" for each in seen) == len(held) == 7
        for wrong in ("x", "1.2", "1.2.3.4", "1.2.-3", "9999.1.1", "0.1.5", "0.99999999999999999999.1"):
            assert vera.http.get("/api/messages", params={"queue": "jobs", "after": wrong}).status_code == 400, wrong
        assert vera.http.get("/api/messages", params={"queue": "jobs", "subscription": "x"}).status_code == 404
        assert vera.http.get("/api/messages", params={"queue": "no-such"}).status_code == 404
    assert bucket.queues() == ["jobs"] and [each.name for each in queue.subscriptions()] == ["main"]


def test_a_page_further_back_reads_no_more_than_the_first(bucket: Bucket, agent: Opened) -> None:
    queue = bucket.queue("jobs")
    for number in range(100):
        queue.send({"n": number})
    with Person(agent.url, VERA) as vera:
        page = vera.get("/api/messages", queue="jobs", limit=10)
        for _ in range(5):
            before = agent.requests
            page = vera.get("/api/messages", queue="jobs", limit=10, after=page["next"])
            assert (agent.requests - before).get <= 12


def test_hostile_bodies_keys_and_headers_are_only_text(bucket: Bucket, agent: Opened) -> None:
    queue = bucket.queue("jobs")
    queue.send("\x00<script>" + "x" * 10_000, key="</summary>\x1b[31m", headers={"x": "<b>"})
    queue.send(b"\xff\x00binary")
    queue.send({"deep": [[[[{"a": None}]]]]})
    queue.send("y" * 200_000)
    with Person(agent.url, VERA) as vera:
        bodies = [each["body"] for each in vera.get("/api/messages", queue="jobs")["messages"]]
    assert bodies[0].startswith("\x00<script>x") and len(bodies[0]) == 2_001
    assert bodies[1].startswith("8 bytes: ff 00") and '"deep"' in bodies[2]
    assert "a large body of 200," in bodies[3]


def test_sending_is_checked_and_makes_no_queue(bucket: Bucket, agent: Opened) -> None:
    bucket.queue("jobs")
    bucket.queue("jobs").settings()
    bucket.rules.add("hook", to="queue:copies")
    with Person(agent.url, OLA) as ola:
        assert ola.status("/api/send", queue="no-such", body="{}") == 404
        assert ola.status("/api/send", queue="events", body="{}") == 400, "our own queues are not for messages"
        assert ola.status("/api/send", queue="jobs", body="{not json") == 400
        assert ola.status("/api/send", queue="jobs", body="{}", delay_seconds=-1) == 400
        assert ola.status("/api/send", queue="jobs", body="x" * 300_000) == 413
        assert ola.status("/api/send", queue="jobs", body="not json", json=False, key="k", delay_seconds=60) == 200
        ola.post("/api/send", queue="jobs", body='{"n": 1}', dedup_key="once")
        ola.post("/api/send", queue="jobs", body='{"n": 1}', dedup_key="once")
    assert "no-such" not in bucket.queues()
    assert [each.body for each in bucket.queue("jobs").peek(10)] == [{"n": 1}]
    assert bucket.queue("jobs").stats().delayed == 1


def test_purging_needs_the_name_and_purges_one_subscription(bucket: Bucket, agent: Opened) -> None:
    queue = bucket.queue("jobs")
    audit = queue.subscription("audit")
    queue.send_many([1, 2, 3])
    with Person(agent.url, ANN) as ann:
        assert ann.status("/api/purge", queue="jobs", subscription="main", confirm="job") == 400
        assert ann.status("/api/purge", queue="jobs", subscription="no-such", confirm="jobs") == 404
        assert ann.post("/api/purge", queue="jobs", subscription="main", confirm="jobs") == {"purged": 3}
    assert queue.peek(10) == [] and len(audit.peek(10)) == 3


# Dead letters.


def test_dead_letters_say_when_they_were_sent_and_when_they_died(bucket: Bucket, agent: Opened) -> None:
    bury(bucket, 3)
    with Person(agent.url, VERA) as vera:
        dead = [{"queue": "jobs", "dead": 3}]
        assert vera.get("/api/dead") == {"dead": dead, "more": 0, "unseen": 0, "unreadable": []}
        page = vera.get("/api/dead/letters", queue="jobs")
    letter = page["letters"][0]
    assert letter["reason"] == "no such user" and '"n": 0' in letter["body"] and len(letter["failures"]) == 1
    assert letter["sent_at"] < letter["died_at"] and page["next"] is None


def test_redriving_and_deleting_what_matches(bucket: Bucket, agent: Opened) -> None:
    bury(bucket, 4, why="no such user")
    bury(bucket, 3, why="DISK is full")
    with Person(agent.url, ANN) as ann:
        found = ann.get("/api/dead/letters", queue="jobs", q="disk")
        assert len(found["letters"]) == 3 and found["searched"] == 7
        first = found["letters"][0]["id"]
        assert ann.post("/api/dead/redrive", queue="jobs", ids=[first]) == {"matched": 1, "redriven": 1}
        assert ann.post("/api/dead/redrive", queue="jobs", ids=[first]) == {"matched": 0, "redriven": 0}
        assert ann.post("/api/dead/delete", queue="jobs", q="disk") == {"deleted": 2}
        assert len(ann.get("/api/dead/letters", queue="jobs")["letters"]) == 4
        for wrong in ({}, {"ids": []}, {"ids": ["x"], "q": "y"}, {"q": "x" * 201}, {"ids": None}):
            assert ann.status("/api/dead/delete", queue="jobs", **wrong) == 400, wrong
        assert ann.status("/api/dead/redrive", queue="no-such", q="") == 404
        assert ann.post("/api/dead/delete", queue="jobs", q="") == {"deleted": 4}
        assert ann.get("/api/dead")["dead"] == []
    assert len(bucket.queue("jobs").peek(10)) == 1 and bucket.queues() == ["bucketmq-actions", "jobs"]


def test_of_two_who_redrive_at_once_each_letter_is_sent_once(bucket: Bucket, agent: Opened) -> None:
    bury(bucket, 50)
    redriven: list[int] = []
    with Person(agent.url, ANN) as ann, Person(agent.url, OLA) as ola:
        barrier = threading.Barrier(2)

        def redrive(person: Person) -> None:
            barrier.wait(30)
            redriven.append(person.post("/api/dead/redrive", queue="jobs", q="")["redriven"])

        threads = [threading.Thread(target=redrive, args=(each,)) for each in (ann, ola)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert sum(redriven) == 50
    assert sorted(each.body["n"] for each in bucket.queue("jobs").peek(100)) == list(range(50))


def test_of_two_who_pause_at_once_neither_undoes_the_other(bucket: Bucket, agent: Opened) -> None:
    bucket.queue("orders").subscription("billing")
    bucket.queue("orders").send(1)
    with Person(agent.url, ANN) as ann, Person(agent.url, OLA) as ola:
        started = threading.Barrier(2)

        def pause(person: Person, subscription: str) -> None:
            started.wait(10)
            person.post("/api/queues/change", queue="orders", do="pause", subscription=subscription, why="moving")

        threads = [threading.Thread(target=pause, args=each) for each in ((ann, "main"), (ola, "billing"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        found = ann.get("/api/queue", name="orders")
        assert found["paused"] == {"main": "moving", "billing": "moving"}
    assert sorted(line.by for line in lines(bucket)) == ["ann", "ola"]


def test_of_two_who_purge_at_once_both_are_answered_and_nothing_is_left(bucket: Bucket, agent: Opened) -> None:
    bucket.queue("jobs").send_many(range(40))
    with Person(agent.url, ANN) as ann:
        purged: list[int] = []

        def purge() -> None:
            purged.append(ann.post("/api/purge", queue="jobs", subscription="main", confirm="jobs")["purged"])

        threads = [threading.Thread(target=purge) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert max(purged) == 40 and len(purged) == 2
    assert bucket.queue("jobs").stats().depth == 0 and [line.did for line in lines(bucket)] == ["purge", "purge"]


def test_the_log_names_every_letter_that_was_chosen_and_the_page_shows_the_first(bucket: Bucket, agent: Opened) -> None:
    bury(bucket, 100)
    with Person(agent.url, ANN) as ann:
        ids = [letter.id for letter in bucket.queue("jobs").dead_letters.peek(100)]
        assert ann.post("/api/dead/redrive", queue="jobs", ids=ids)["redriven"] == 100
        (line,) = lines(bucket)
        assert len(line.how) > 1_000 and all(each in line.how for each in ids)
        (shown,) = ann.get("/api/actions")["actions"]
        assert shown["how"].startswith("100 chosen: ") and len(shown["how"]) <= 301


def test_a_redrive_and_a_delete_of_many_go_on_after_the_answer(
    bucket: Bucket, agent: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    bury(bucket, 3)
    bury(bucket, 2, "mail")
    monkeypatch.setattr(dead_module, "SETTLE_SECONDS", 0.0)
    with Person(agent.url, ANN) as ann:
        assert ann.post("/api/dead/redrive", queue="jobs", q="") == {"goes_on": True}
        until(lambda: len(bucket.queue("jobs").peek(10)) == 3)
        assert ann.post("/api/dead/delete", queue="mail", q="no such") == {"goes_on": True}
        until(lambda: bucket.queue("mail").stats().dead == 0)


MANY_LETTERS = 10_000


def test_ten_thousand_dead_letters_are_looked_through_in_pages(store: MemoryStore, agent: Opened) -> None:
    with sync_on(store) as bucket:
        bucket.queue("jobs").send_many([{"n": n} for n in range(MANY_LETTERS)])
        dead = 0
        while dead < MANY_LETTERS:
            for delivery in bucket.queue("jobs").receive(1_000):
                delivery.bury(f"reason {delivery.body['n']}")
            bucket.queue("jobs").flush()
            dead = bucket.queue("jobs").stats().dead
    with Person(agent.url, ANN) as ann:
        assert ann.get("/api/dead")["dead"] == [{"queue": "jobs", "dead": MANY_LETTERS}]
        before = agent.requests
        answer = ann.http.get("/api/dead/letters", params={"queue": "jobs"})
        assert len(answer.json()["letters"]) == 50 and len(answer.content) < 100_000
        assert (agent.requests - before).get <= 10
        after, found, asked = "", [], 0
        while after is not None:
            page = ann.get("/api/dead/letters", queue="jobs", q="reason 9999", after=after)
            found += page["letters"]
            after, asked = page["next"], asked + 1
        assert [each["reason"] for each in found] == ["reason 9999"] and asked <= 11
        assert (agent.requests - before).get <= 150, "a segment is read once, however often it is searched"


# Rules and the overview.


def test_rules_with_their_attempts(bucket: Bucket, agent: Opened) -> None:
    @bucket.watch('key LIKE "in/%"', name="route", start="beginning")
    def fails(change: Any) -> None:
        if "odd" in change.key:
            raise ValueError("no such thing")

    for name in ("ok", "odd"):  # one after the other: handlers of one run do not wait for one another
        bucket.put(f"in/{name}", b"x")
        bucket.run_watchers("route", stop_when_empty=True, signals=False)
    bucket.rules.add("told", to="https://hooks.example.com/services/SECRET-PATH")
    with Person(agent.url, OLA) as ola:
        text = ola.http.get("/api/rules").text
        rules = {rule["name"]: rule for rule in ola.get("/api/rules")["rules"]}
        route = rules["route"]
        assert (route["done"], route["failed"], route["delayed"], route["failures_in_a_row"]) == (1, 1, 1, 1)
        assert "no such thing" in route["last_error"] and route["to"] == "a watcher" and route["next_due_seconds"] > 0
        assert "hooks.example.com" in rules["told"]["to"] and "SECRET-PATH" not in text
        attempts = ola.get("/api/rules/attempts", name="route")["attempts"]
        assert sorted((each["key"], each["outcome"]) for each in attempts) == [("in/odd", "retry"), ("in/ok", "done")]
        assert ola.post("/api/rules/change", name="told", do="pause", why="moving")["paused"] == "moving"
        assert ola.get("/api/rules")["rules"][1]["paused"] == "moving"
        assert ola.post("/api/rules/change", name="told", do="resume")["paused"] is None
        assert ola.status("/api/rules/change", name="no-such", do="pause") == 404
        assert ola.status("/api/rules/change", name="told", do="remove") == 400


def test_a_replay_is_counted_before_and_done_after(bucket: Bucket, agent: Opened) -> None:
    for number in range(5):
        bucket.put(f"in/{number}", b"x")
    bucket.rules.add("copies", to="queue:copies", filter='key LIKE "in/%"')
    with Person(agent.url, OLA) as ola:
        dry = ola.post("/api/rules/replay", name="copies", prefix="in/", dry_run=True)
        assert (dry["events"], dry["goes_on"]) == (5, False)
        assert lines(bucket) == []
        assert ola.post("/api/rules/replay", name="copies", since_seconds=3600)["events"] == 5
        for wrong in ({}, {"prefix": "", "since_seconds": 1}, {"since_seconds": 0}, {"since_seconds": 1e9}):
            assert ola.status("/api/rules/replay", name="copies", **wrong) == 400, wrong
        assert ola.status("/api/rules/replay", name="no-such", prefix="") == 404
    bucket.notify(stop_when_empty=True, signals=False)
    assert len(bucket.queue("copies").peek(10)) == 5


def test_a_replay_that_fails_after_the_answer_is_told_in_the_log(
    store: MemoryStore, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bucket.rules.add("hook", to="queue:copies")
    bucket.put("a/x", b"1")
    monkeypatch.setattr(rules_module, "REPLAY_SECONDS", 0.0)

    def told() -> list[str]:
        return [each.getMessage() for each in caplog.records if "replay_failed" in each.getMessage()]

    with opened(Broken(store, "queues/events/")) as agent, Person(agent.url, ANN) as ann:
        assert ann.post("/api/rules/replay", name="hook", prefix="a/") == {"goes_on": True}
        until(lambda: bool(told()))
    assert "rule=hook" in told()[0] and "503, try again" in told()[0]


def test_the_overview_says_what_is_stuck_and_why(store: MemoryStore, bucket: Bucket, agent: Opened) -> None:
    bury(bucket, 2)
    bucket.queue("slow").send_many([1, 2])
    found = store.get("queues/jobs/queue.json")
    with Person(agent.url, VERA) as vera:
        seen = vera.get("/api/overview")
        assert (seen["ready"], seen["dead"], seen["queues"], seen["seen"]) == (2, 2, 2, 2)
        (dead,) = seen["troubles"]
        assert dead["what"] == "2 dead letters in queue jobs" and dead["since_seconds"] >= 0 and dead["tab"] == "dead"
        assert dead["why"] == "the oldest: no such user" and seen["unreadable"] == 0
        before = agent.requests
        assert vera.get("/api/overview")["troubles"][0]["why"] == dead["why"]
        assert (agent.requests - before).get <= 2, "why they died is read once"
        store.replace("queues/jobs/queue.json", b"{not json", found.version)  # type: ignore[union-attr]
        until(lambda: "cannot be read" in vera.get("/api/overview")["troubles"][0]["what"] or _fresh(vera))
        (broken,) = [each for each in vera.get("/api/overview")["troubles"] if each["name"] == "jobs"]
        assert broken["level"] == "bad" and "doctor --deep jobs" in broken["cure"]
        assert vera.get("/api/overview")["unreadable"] == 1


def _fresh(person: Person) -> bool:
    """Look at the queue, so that the overview knows."""
    person.get("/api/queues")
    return False


MANY_QUEUES = 500


def test_what_was_done_to_a_queue_shows_in_the_overview_at_once(bucket: Bucket, agent: Opened) -> None:
    bury(bucket, 3)
    with Person(agent.url, ANN) as ann:
        assert (ann.get("/api/overview")["dead"], ann.get("/api/badges")["dead"]) == (3, 3)
        ann.post("/api/dead/redrive", queue="jobs", q="")
        found = ann.get("/api/overview")
        assert (found["dead"], found["ready"], found["troubles"]) == (0, 3, [])
        assert ann.get("/api/badges")["dead"] == 0


def test_without_figures_the_overview_looks_again_at_what_it_saw_long_ago(
    bucket: Bucket, agent: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.queue("jobs").send({"n": 1})
    for name in ("AGAIN_SECONDS", "ROUND_SECONDS_PER_QUEUE", "FRESH_SECONDS", "COST_FACTOR"):
        monkeypatch.setattr(survey_module, name, 0.0)
    with Person(agent.url, VERA) as vera:
        assert vera.get("/api/overview")["dead"] == 0
        bury(bucket, 2)
        assert vera.get("/api/overview")["dead"] == vera.get("/api/dead")["dead"][0]["dead"] == 3


def test_five_hundred_queues_are_shown_in_pages_and_only_those_shown_are_looked_at(
    store: MemoryStore, bucket: Bucket
) -> None:
    for number in range(MANY_QUEUES):
        bucket.queue(f"queue-{number:03}").send({"n": 1})
    with opened(store) as agent, Person(agent.url, VERA) as vera:
        before = agent.requests
        page = vera.get("/api/queues")
        used = agent.requests - before
        assert len(page["queues"]) == 50 and page["total"] == MANY_QUEUES and page["next"] == "queue-049"
        assert used.list <= MANY_QUEUES + 1 + 4 * 50 and used.get <= 11 * 50, used
        assert used.create == used.replace == 0
        before = agent.requests
        assert vera.get("/api/queues", q="queue-49")["total"] == 10
        last = vera.get("/api/queues", after="queue-489", limit=50)
        assert [each["name"] for each in last["queues"]][-1] == "queue-499" and last["next"] is None
        assert (agent.requests - before).list <= 4 * 20, "names are listed once in a while"
        before = agent.requests
        seen = vera.get("/api/overview")
        assert seen["queues"] == MANY_QUEUES and seen["seen"] < MANY_QUEUES, "the others follow in the background"
        assert (agent.requests - before).get <= 11 * survey_module.FIRST + 5


def test_many_who_look_at_once_cost_as_much_as_one(bucket: Bucket, agent: Opened) -> None:
    bucket.queue("jobs").send({"n": 1})
    with Person(agent.url, VERA) as vera:
        vera.get("/api/queues")
        before = agent.requests
        threads = [threading.Thread(target=vera.get, args=("/api/queues",)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert (agent.requests - before).get <= 8


# Tabs that an application adds.


def tab(**more: Any) -> Tab:
    def routes(site: Site) -> APIRouter:
        router = APIRouter()

        @router.get("/hello")
        async def hello(request: Request) -> Response:
            return json_answer({"name": site.looker(request).name})

        return router

    folder = files("bucketmq.dashboard").joinpath("static")
    return Tab(**{"name": "demo", "title": "Demo", "routes": routes, "static": folder, "script": "words.js", **more})


def test_an_application_adds_a_tab_with_routes_and_files(store: MemoryStore) -> None:
    with opened(store, tabs=(tab(),)) as agent:
        assert agent.http.get("/api/demo/hello").status_code == 401
        assert agent.http.get("/tabs/demo/words.js").status_code == 200
        assert agent.http.get("/tabs/demo/no.js").status_code == agent.http.get("/tabs/x/words.js").status_code == 404
        with Person(agent.url, VERA) as vera:
            assert vera.get("/api/demo/hello") == {"name": "vera"}
            assert [each["name"] for each in vera.session["tabs"]] == ["demo"]


def test_tabs_that_cannot_work_are_refused(store: MemoryStore) -> None:
    for wrong in ({"name": "Demo"}, {"name": ""}, {"title": ""}, {"script": ""}):
        with pytest.raises(Invalid):
            tab(**wrong)
    settings = GateSettings(people=PEOPLE)
    bucket = aio.connect("memory://", probe=False)
    for tabs in ((tab(script="no.js"),), (tab(), tab()), (tab(name="queues"),), (tab(style="no.css"),)):
        with pytest.raises(Invalid):
            make_app(bucket, settings, tabs=tabs)


def test_a_folder_is_served_as_well(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket"
    with opened_on(lambda: aio.connect(url, probe=False)) as agent, Person(agent.url, VERA) as vera:
        assert vera.session["bucket"] == url and vera.get("/api/queues")["queues"] == []
        assert vera.get("/api/overview")["cost"]["usd"] is None


def test_a_queue_and_a_subscription_are_paused_and_resumed(bucket: Bucket, agent: Opened) -> None:
    queue = bucket.queue("jobs")
    queue.subscription("audit")
    queue.send_many([{"n": 1}, {"n": 2}])
    queue.receive(1)[0].ack(wait=True)
    with Person(agent.url, OLA) as ola:
        assert ola.post("/api/queues/change", queue="jobs", do="pause", why="moving") == {"paused": {"*": "moving"}}
        found = ola.get("/api/queue", name="jobs")
        assert [each["paused"] for each in found["subscriptions"]] == ["moving", "moving"]
        assert [each["why"] for each in ola.get("/api/overview")["troubles"]] == ["moving", "moving"]
        assert ola.post("/api/queues/change", queue="jobs", do="resume") == {"paused": {}}
        ola.post("/api/queues/change", queue="jobs", subscription="audit", do="pause")
        assert [each["paused"] for each in ola.get("/api/queue", name="jobs")["subscriptions"]] == ["paused", None]
        assert ola.status("/api/queues/change", queue="jobs", subscription="no-such", do="pause") == 404
        assert ola.status("/api/queues/change", queue="no-such", do="pause") == 404
        assert ola.status("/api/queues/change", queue="jobs", do="stop") == 400
    assert "no-such" not in bucket.queues()
    assert [(line.did, line.how) for line in lines(bucket)][:2] == [("pause", "all: moving"), ("resume", "all")]
