"""History, audit and replay: tables over log and archive."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("pyspark")

from chores.test_archive import send, settle

from bucketmq import Invalid, NotFound, Queue
from bucketmq.chores import archive, audit, replay
from bucketmq.spark.history.tables import history
from spark.conftest import Inbox


@pytest.fixture
def lived(inbox: Inbox) -> tuple[Inbox, Queue]:
    """40 messages: 20 settled and archived, but for one that died; then 10 settled; 3 in flight; 1 to be tried again; 6
    ready. Another subscription has settled 30. What is archived is still in the log, too."""
    jobs = inbox.bucket.queue("jobs", attempts_max=2)
    other = jobs.subscription("other")
    send(jobs, 40)
    for delivery in jobs.receive(20):
        if delivery.body["n"] == 7:
            delivery.bury("no such page")
        else:
            delivery.ack()
    jobs.flush()
    for delivery in other.receive(30):
        delivery.ack()
    other.flush()
    assert archive.run(inbox.spark, inbox.url, queue="jobs").rows == 20
    for delivery in jobs.receive(10):
        if delivery.body["n"] == 25:
            delivery.bury("no such user")
        else:
            delivery.ack()
    *_, last = jobs.receive(4)
    last.retry("not yet", delay_seconds=3600)
    jobs.flush()
    return inbox, jobs


def test_history_tells_of_each_message_once_and_what_became_of_it(lived: tuple[Inbox, Queue]) -> None:
    inbox, _ = lived
    rows = history(inbox.spark, inbox.url, "jobs").orderBy("offset").collect()
    assert [json.loads(row.body)["n"] for row in rows] == list(range(40))
    assert [row.place for row in rows] == ["archive"] * 20 + ["log"] * 20
    main = [row.outcomes["main"] for row in rows]
    assert [n for n, outcome in enumerate(main) if outcome == "dead"] == [7, 25]
    assert set(main[:30]) == {"done", "dead"}
    assert main[30:] == ["in flight"] * 3 + ["delayed"] + ["ready"] * 6
    assert [row.outcomes["other"] for row in rows] == ["done"] * 30 + ["ready"] * 10
    for n, error in ((7, "no such page"), (25, "no such user")):
        assert [(d.subscription, d.attempts, d.error) for d in rows[n].deaths] == [("main", 1, error)]
        assert rows[n].attempts == {"main": 1}
    assert rows[33].attempts == {"main": 1}
    dead = history(inbox.spark, inbox.url, "jobs.dead").collect()
    assert sorted((row.died.offset, row.outcomes["main"]) for row in dead) == [(7, "ready"), (25, "ready")]


def test_a_history_that_was_planned_before_archiving_and_trimming_is_whole_all_the_same(inbox: Inbox) -> None:
    jobs = inbox.bucket.queue("jobs", keep_seconds=0, dedup_seconds=0)
    send(jobs, 30)
    settle(jobs, 20)
    told = history(inbox.spark, inbox.url, "jobs")
    columns = ("offset", "body", "outcomes", "place")
    before = sorted(told.select(*columns).collect())
    assert {row.place for row in before} == {"log"}
    archive.run(inbox.spark, inbox.url, queue="jobs")
    inbox.age("jobs", 86400)
    assert jobs.trim().segments == 2
    after = sorted(told.select(*columns).collect())
    assert [row.place for row in after] == ["archive"] * 20 + ["log"] * 10
    assert [row[:3] for row in after] == [row[:3] for row in before]


def test_the_history_of_events_has_their_deliveries(inbox: Inbox) -> None:
    bucket = inbox.bucket
    bucket.rules.add("texts", to="queue:out", filter="key REGEXP '[.]txt$'")
    for name in ("a.txt", "b.png", "c.txt"):
        bucket.put(name, "x")
    bucket.notify(stop_when_empty=True, signals=False)
    rows = history(inbox.spark, inbox.url, "events").collect()
    found = {json.loads(row.body)["key"]: row.deliveries for row in rows}
    assert found.keys() == {"a.txt", "b.png", "c.txt"}
    assert [(each.rule, each.outcome, each.attempt) for each in found["a.txt"]] == [("texts", "done", 1)]
    assert found["b.png"] is None
    audited = bucket.audit("texts")
    [line] = [line for line in audit.run(inbox.spark, inbox.url, queue="events").lines if line.rule == "texts"]
    assert (line.sent, line.settled, line.dead, line.unsettled) == (
        audited.matched,
        audited.delivered,
        audited.dead,
        audited.ready + audited.in_flight + audited.delayed,
    )
    assert (line.sent, line.settled) == (2, 2)


def test_an_audit_agrees_with_the_librarys_own_numbers_and_finds_what_was_lost(lived: tuple[Inbox, Queue]) -> None:
    inbox, jobs = lived
    found = audit.run(inbox.spark, inbox.url)
    lines = {line.subscription: line for line in found.lines if line.queue == "jobs"}
    stats = jobs.stats()
    assert found.complete
    today = datetime.now(UTC).date().isoformat()
    main, other = lines["main"], lines["other"]
    assert (main.day, main.sent, main.settled, main.dead, main.unsettled) == (
        today,
        stats.sent,
        28,
        stats.dead,
        next(each.depth for each in stats.subscriptions if each.name == "main"),
    )
    assert (other.sent, other.settled, other.dead, other.unsettled) == (40, 30, 0, 10)
    jobs.dead_letters.redrive(limit=1)
    main = audit.run(inbox.spark, inbox.url, queue="jobs").lines[0]
    assert (main.sent, main.settled, main.dead, main.unsettled) == (41, 29, 1, 11)
    assert main.sent == jobs.stats().sent
    # A segment that nobody has read, one that everybody has, and a file of the archive.
    for path in (
        inbox.file(f"queues/jobs/log/0/{30:020}.ndjson"),
        inbox.file(f"queues/jobs/log/0/{20:020}.ndjson"),
        *inbox.file("queues/jobs/archive").rglob("*.parquet"),
    ):
        path.unlink()
    found = audit.run(inbox.spark, inbox.url, queue="jobs")
    assert not found.complete
    assert sum(line.lost for line in found.lines if line.subscription == "main") == 40, found.lines
    assert "NO" in str(found)
    assert audit.table(inbox.spark, found).where("not complete").count() >= 1


def test_trimming_without_an_archive_is_no_loss(inbox: Inbox) -> None:
    jobs = inbox.bucket.queue("jobs", keep_seconds=0, dedup_seconds=0)
    send(jobs, 30)
    settle(jobs, 25)
    inbox.age("jobs", 86400)
    assert jobs.trim().segments == 2
    found = audit.run(inbox.spark, inbox.url, queue="jobs")
    assert [(line.sent, line.settled, line.unsettled, line.lost) for line in found.lines] == [(10, 5, 5, 0)]
    archive.run(inbox.spark, inbox.url, queue="jobs")
    assert audit.run(inbox.spark, inbox.url, queue="jobs") == found


def test_what_was_lost_behind_what_was_trimmed_is_lost_after_archiving_too(inbox: Inbox) -> None:
    """The archive was released, so trimming took what it had not; and more than that is gone."""
    jobs = inbox.bucket.queue("jobs", keep_seconds=1)
    assert jobs.stats().sent == 0
    archive.run(inbox.spark, inbox.url, queue="jobs")
    archive.run(inbox.spark, inbox.url, queue="jobs", release=True)
    send(jobs, 20)
    settle(jobs, 20)
    inbox.age("jobs", 8 * 86400)
    assert jobs.trim().segments == 1
    send(jobs, 20)
    settle(jobs, 20)
    inbox.file(f"queues/jobs/log/0/{10:020}.ndjson").unlink()
    before = audit.run(inbox.spark, inbox.url, queue="jobs")
    done = archive.run(inbox.spark, inbox.url, queue="jobs", skip_lost=True)
    assert (done.skipped, done.lost) == (20, 10)
    after = audit.run(inbox.spark, inbox.url, queue="jobs")
    assert [sum(line.lost for line in each.lines) for each in (before, after)] == [10, 10]
    assert not after.complete


def test_a_replay_into_a_queue_is_sent_once(lived: tuple[Inbox, Queue], failing: Callable[..., str]) -> None:
    inbox, jobs = lived
    chosen: dict[str, Any] = {"queue": "jobs", "to_queue": "again", "where": "get_json_object(body, '$.n') % 10 = 7"}
    assert replay.run(inbox.spark, inbox.url, replay_id="r1", dry_run=True, **chosen).messages == 4
    assert "again" not in inbox.bucket.queues()
    done = [replay.run(inbox.spark, inbox.url, replay_id="r1", **chosen) for _ in range(2)]
    assert [(each.messages, each.already) for each in done] == [(4, False), (0, True)]
    again = inbox.bucket.queue("again").receive(10)
    assert [delivery.body["n"] for delivery in again] == [7, 17, 27, 37]
    assert {delivery.headers["bucketmq-replay"] for delivery in again} == {"r1"}
    # Into the queue itself: what was replayed is not chosen by the same replay.
    for _ in range(2):
        replay.run(inbox.spark, inbox.url, **{**chosen, "to_queue": "jobs"}, replay_id="r2")
    assert jobs.stats().sent == 44
    assert replay.run(inbox.spark, inbox.url, **chosen, replay_id="r3", until="2020-01-01T00:00:00Z").messages == 0


def test_a_replay_to_a_subscription_is_for_nobody_else_and_goes_on_where_it_died(lived: tuple[Inbox, Queue]) -> None:
    inbox, jobs = lived
    last = jobs.subscription("last", start="latest")
    chosen: dict[str, Any] = {"queue": "jobs", "subscription": "last", "replay_id": "r1"}
    assert replay.run(inbox.spark, inbox.url, where="offset < 5", **chosen).messages == 5
    done = replay.run(inbox.spark, inbox.url, where="offset < 8", **chosen)
    assert (done.messages, done.already) == (3, True)
    got = last.receive(20)
    assert sorted(delivery.body["n"] for delivery in got) == list(range(8))
    everything = inbox.bodies("jobs")
    assert len(everything) == 40  # a new subscription is not given them
    with pytest.raises(Invalid, match="one target"):
        replay.run(inbox.spark, inbox.url, to_queue="again", **chosen)
    with pytest.raises(NotFound, match="queue 'jobs' has no reader 'lst'; there are last, main, other"):
        replay.run(inbox.spark, inbox.url, **{**chosen, "subscription": "lst"})


def test_large_bodies_are_objects_of_their_own_when_they_are_replayed(inbox: Inbox) -> None:
    jobs = inbox.bucket.queue("jobs", inline_bytes_max=1000)
    bodies = ["text " * 1000, b"\xff" * 5000, "small"]
    jobs.send_many(bodies)
    last = jobs.subscription("last", start="latest")
    assert replay.run(inbox.spark, inbox.url, queue="jobs", subscription="last", replay_id="r1").messages == 3
    assert max(map(len, inbox.file(f"queues/jobs/log/0/{3:020}.ndjson").read_bytes().splitlines())) < 1000
    assert [delivery.body for delivery in last.receive(10)] == bodies


def test_a_replay_to_a_rule_gives_it_what_it_wants(inbox: Inbox) -> None:
    bucket = inbox.bucket
    bucket.rules.add("texts", to="queue:out", filter="key REGEXP '[.]txt$'")
    for name in ("a.txt", "b.png", "c.txt"):
        bucket.put(name, "x")
    bucket.notify(stop_when_empty=True, signals=False)
    for expected in (2, 0):
        done = replay.run(inbox.spark, inbox.url, queue="events", rule="texts", replay_id="r1")
        assert done.messages == expected
    bucket.notify(stop_when_empty=True, signals=False)
    assert bucket.queue("out").stats().sent == 4


def test_a_replay_to_a_rule_that_is_run_again_does_not_send_an_echo_instead(inbox: Inbox) -> None:
    bucket = inbox.bucket
    bucket.rules.add("all", to="queue:out")
    bucket.put("a.txt", "x")
    told = bucket.queue("events").peek(1)[0]
    bucket.queue("events").send(told.body, key=told.key)  # a second source tells of it
    for expected in (1, 0):
        done = replay.run(inbox.spark, inbox.url, queue="events", rule="all", replay_id="r1")
        assert done.messages == expected
