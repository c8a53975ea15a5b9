"""Sending events again: to one rule, under the same ids, no faster than asked, unseen by the others."""

from __future__ import annotations

from typing import Any

import pytest

import bucketmq
from bucketmq.events.event import ObjectEvent, event_id
from procedures.objects.world import World, log_of, told


def run(bucket: Any) -> None:
    bucket.notify(stop_when_empty=True, signals=False)


def got(bucket: Any, queue: str) -> list[tuple[str, str]]:
    """What a queue holds by now: keys and event ids."""
    run(bucket)
    found = []
    while batch := bucket.queue(queue).receive(100):
        for delivery in batch:
            found.append((delivery.body["key"], delivery.body["id"]))
            delivery.ack()
    return found


@pytest.fixture
def rules(memory: World) -> Any:
    """Two rules that have delivered three events each."""
    bucket = memory.connect()
    bucket.rules.add("one", to="queue:one", filter='WHERE key LIKE "in/%"')
    bucket.rules.add("two", to="queue:two")
    for key in ("in/a", "in/b", "other"):
        bucket.put(key, "x")
    assert len(got(bucket, "one")) == 2
    assert len(got(bucket, "two")) == 3
    return bucket


def test_a_prefix_is_replayed_to_one_rule_alone(rules: Any) -> None:
    replayed = rules.rules.replay("one", prefix="")
    assert (replayed.events, replayed.looked_at) == (2, 3)
    assert sorted(key for key, _ in got(rules, "one")) == ["in/a", "in/b"]
    assert got(rules, "two") == []
    assert len([message for message in log_of(rules) if message.message.headers]) == 2


def test_a_prefix_need_not_be_a_folder(memory: World) -> None:
    bucket = memory.connect()
    bucket.rules.add("one", to="queue:one", start="beginning")
    for key in ("in", "in/a", "inbox", "in2/b", "im", "io", "queues2/x", "in\U0010ffff"):
        bucket.put(key, "x")
    got(bucket, "one")
    assert bucket.rules.replay("one", prefix="in").events == 5
    assert sorted(key for key, _ in got(bucket, "one")) == ["in", "in/a", "in2/b", "inbox", "in\U0010ffff"]
    assert bucket.rules.replay("one", prefix="in/a").events == 1
    assert bucket.rules.replay("one", prefix="queues").events == 1  # our own keys are left out
    assert bucket.rules.replay("one", prefix="nothing").events == 0


def test_one_object_is_replayed_by_its_key(rules: Any) -> None:
    replayed = rules.rules.replay("one", key="in/a")
    assert (replayed.events, replayed.looked_at) == (1, 1)
    assert [key for key, _ in got(rules, "one")] == ["in/a"]
    assert got(rules, "two") == []
    assert rules.rules.replay("one", key="other").events == 0  # the rule does not want it


def test_one_object_has_the_id_that_a_prefix_gives_it(rules: Any) -> None:
    rules.rules.replay("one", prefix="in/a")
    by_prefix = got(rules, "one")
    rules.rules.replay("one", key="in/a")
    assert got(rules, "one") == by_prefix


def test_an_object_that_is_gone_is_replayed_from_the_log(rules: Any) -> None:
    ids = {event.key: event.id for event in told(rules)}
    rules.delete("in/a")
    got(rules, "one")
    with pytest.raises(bucketmq.NotFound, match="since"):
        rules.rules.replay("one", key="in/a")
    assert rules.rules.replay("one", key="in/a", since=0.0).events == 2
    assert got(rules, "one")[0] == ("in/a", ids["in/a"])


def test_a_time_span_is_narrowed_by_a_prefix(rules: Any) -> None:
    assert rules.rules.replay("two", prefix="in/", since=0.0).events == 2
    assert sorted(key for key, _ in got(rules, "two")) == ["in/a", "in/b"]


def test_a_prefix_replayed_twice_has_the_same_ids(rules: Any) -> None:
    rules.rules.replay("one", prefix="in/")
    first = got(rules, "one")
    rules.rules.replay("one", prefix="in/")
    assert got(rules, "one") == first


def test_a_time_span_is_replayed_under_the_same_ids(memory: World, rules: Any) -> None:
    ids = {event.key: event.id for event in told(rules)}
    memory.advance(100)
    since = memory.time.now()
    memory.advance(10)
    late = rules.put("in/c", "x").event.id
    got(rules, "one"), got(rules, "two")
    rules.rules.replay("one", since=0.0, until=since)
    assert got(rules, "one") == [("in/a", ids["in/a"]), ("in/b", ids["in/b"])]
    rules.rules.replay("one", since=since)
    assert got(rules, "one") == [("in/c", late)]
    assert got(rules, "two") == []


def test_echoes_are_not_replayed_beside_what_they_echo(memory: World, rules: Any) -> None:
    event = told(rules)[0]
    echo = ObjectEvent(
        id=event_id("gcs", "", event.key, event.version),
        kind="created",
        key=event.key,
        at=event.at,
        source="gcs",
        version=event.version,
        exact=True,
    )
    rules.report([echo, event])
    assert rules.rules.replay("one", since=0.0).events == 2
    assert sorted(key for key, _ in got(rules, "one")) == ["in/a", "in/b"]


def test_a_replay_does_not_replay_replays(rules: Any) -> None:
    rules.rules.replay("one", prefix="")
    rules.rules.replay("two", prefix="")
    assert rules.rules.replay("one", since=0.0).events == 2


def test_a_dry_run_sends_nothing(rules: Any) -> None:
    before = len(list(log_of(rules)))
    assert rules.rules.replay("one", prefix="", dry_run=True).events == 2
    assert rules.rules.replay("one", since=0.0, dry_run=True).events == 2
    assert len(list(log_of(rules))) == before
    assert got(rules, "one") == []


def test_the_rate_is_kept(memory: World) -> None:
    bucket = memory.connect()
    bucket.rules.add("one", to="queue:one")
    for n in range(21):
        bucket.put(f"k{n:02}", "x")
    before, progress = memory.time.now(), []
    bucket.rules.replay("one", prefix="", rate_per_second=5, progress=progress.append)
    assert memory.time.now() - before >= 4 - 0.01
    assert progress == [5, 10, 15, 20, 21]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"prefix": "", "key": "in/a"},
        {"prefix": "/in"},
        {"prefix": "queues/"},
        {"key": "queues/events/queue.json"},
        {"key": ""},
        {"prefix": "", "rate_per_second": 0},
        {"prefix": "", "rate_per_second": float("nan")},
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(rules: Any, options: dict[str, Any]) -> None:
    with pytest.raises(bucketmq.Invalid):
        rules.rules.replay("one", **options)


def test_a_rule_that_is_not_there_is_not_found(rules: Any) -> None:
    with pytest.raises(bucketmq.NotFound):
        rules.rules.replay("nobody", prefix="")


def test_objects_of_any_number_are_replayed_over_several_shards(memory: World) -> None:
    bucket = memory.connect()
    bucket.queue("events", shards=3).settings()
    bucket.rules.add("one", to="queue:one")
    bucket.rules.add("two", to="queue:two", start="beginning")
    for n in range(50):
        bucket.put(f"k{n:02}", "x")
    assert sorted(key for key, _ in got(bucket, "one")) == [f"k{n:02}" for n in range(50)]
    assert sorted(key for key, _ in got(bucket, "two")) == [f"k{n:02}" for n in range(50)]
    bucket.rules.replay("one", since=0.0)
    assert sorted(key for key, _ in got(bucket, "one")) == [f"k{n:02}" for n in range(50)]
    assert got(bucket, "two") == []
