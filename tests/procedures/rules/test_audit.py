"""The audit: what a rule was told and has delivered, against what is in the bucket."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bucketmq.events.event import ObjectEvent, event_id, time_text
from bucketmq.testing.endpoints import Reply, endpoint
from procedures.objects.world import World, told


def run(bucket: Any) -> None:
    bucket.notify(stop_when_empty=True, signals=False)


def test_a_rule_that_got_everything_is_complete(world: World) -> None:
    bucket = world.connect()
    bucket.rules.add("r", to="queue:out", filter='WHERE key LIKE "in/%"')
    for n in range(5):
        bucket.put(f"in/{n}", "x")
    bucket.put("other", "x")
    bucket.move("in/0", "in/moved")
    bucket.delete("in/1")
    before = bucket.audit("r")
    assert (before.ready, before.delivered) == (7, 0)
    run(bucket)
    found = bucket.audit("r")
    assert (found.events, found.matched, found.delivered, found.ready) == (8, 7, 7, 0)
    assert (found.objects, found.missed, found.missed_keys, found.complete) == (4, 0, (), True)
    assert (found.duplicates, found.late, found.dead, found.repaired) == (0, 0, 0, 0)
    assert (found.attempts, found.failed_attempts, found.redelivered) == (7, 0, 0)


def test_what_was_written_behind_the_bus_is_missed_and_repaired(world: World) -> None:
    bucket = world.connect()
    bucket.rules.add("r", to="queue:out", filter='WHERE key LIKE "in/%"')
    bucket.put("in/a", "x")
    world.advance(5)
    world.write("in/secret", b"x")
    world.write("in/a", b"newer")
    world.write("elsewhere", b"x")
    found = bucket.audit("r")
    assert (found.missed, sorted(found.missed_keys), found.complete) == (2, ["in/a", "in/secret"], False)
    repaired = bucket.audit("r", repair=True)
    assert (repaired.missed, repaired.reported, repaired.complete) == (2, 2, True)
    run(bucket)
    assert sorted(each.body["key"] for each in bucket.queue("out").receive(10)) == ["in/a", "in/a", "in/secret"]
    after = bucket.audit("r")
    assert (after.missed, after.repaired) == (0, 2)
    bucket.sweep()
    run(bucket)
    assert bucket.audit("r").delivered == after.delivered  # the sweep tells the same


def test_what_is_older_than_the_rule_is_not_missed(memory: World) -> None:
    bucket = memory.connect()
    memory.write("old", b"x")
    memory.advance(10)
    bucket.rules.add("r", to="queue:out")
    assert (bucket.audit("r").objects, bucket.audit("r").missed) == (1, 0)


def test_a_prefix_is_audited_by_itself(memory: World) -> None:
    bucket = memory.connect()
    bucket.rules.add("r", to="queue:out")
    memory.write("a/1", b"x")
    memory.write("b/1", b"x")
    assert bucket.audit("r", prefix="a/").missed_keys == ("a/1",)


def test_echoes_and_late_events_are_counted(memory: World) -> None:
    bucket = memory.connect()
    bucket.rules.add("r", to="queue:out")
    event = bucket.put("a", "x").event
    bucket.report([event])
    old = time_text(memory.time.now() - 500)
    late = ObjectEvent(id=event_id("s3", "", "b"), kind="created", key="b", at=old, source="s3", version="1")
    bucket.report([late])
    found = bucket.audit("r")
    assert (found.duplicates, found.late) == (1, 1)
    assert bucket.audit("r", late_seconds=1000).late == 0


def test_dead_letters_and_failed_attempts_are_counted_and_not_as_delivered(memory: World) -> None:
    bucket = memory.connect()

    def answer(request: Any) -> Reply:
        key = msgspec.json.decode(request.body)["events"][0]["object"]["key"]
        return Reply(500 if key == "bad" else 200)

    with endpoint(answer) as there:
        bucket.rules.add("r", to=there.url, private=True, retry_seconds=[1], jitter=0)
        bucket.rules.add("other", to=there.url, private=True)
        bucket.put("bad", "x")
        bucket.put("good", "x")
        run(bucket)
        found = bucket.audit("r")
        assert (found.delayed, found.delivered, found.dead, found.failed_attempts) == (1, 1, 0, 1)
        memory.advance(2)
        run(bucket)
    found = bucket.audit("r")
    assert (found.delivered, found.delayed, found.ready, found.dead) == (1, 0, 0, 1)
    assert (found.attempts, found.failed_attempts) == (3, 2)
    assert bucket.audit("other").dead == 0


def test_what_was_delivered_twice_is_counted(memory: World) -> None:
    bucket = memory.connect()
    bucket.rules.add("r", to="queue:out")
    bucket.put("a", "x")
    run(bucket)
    bucket.rules.replay("r", since=0.0)
    run(bucket)
    assert bucket.audit("r").redelivered == 1


@pytest.mark.parametrize("shards", [1, 3])
def test_every_shard_is_read(memory: World, shards: int) -> None:
    bucket = memory.connect()
    bucket.queue("events", shards=shards).settings()
    bucket.rules.add("r", to="queue:out")
    for n in range(40):
        bucket.put(f"k{n}", "x")
    run(bucket)
    found = bucket.audit("r")
    assert (found.matched, found.delivered, found.missed) == (40, 40, 0)
    assert len(told(bucket)) == 40


def test_the_asyncio_facade_audits_too(memory: World) -> None:
    bucket = memory.connect_async()
    memory.connect().rules.add("r", to="queue:out")
    memory.write("a", b"x")
    assert bucket.audit("r").missed == 1


def test_what_lay_in_the_log_before_the_rule_is_not_counted_as_delivered(memory: World) -> None:
    bucket = memory.connect()
    bucket.put("before", "x")
    bucket.rules.add("r", to="queue:out", start="now")
    bucket.put("after", "x")
    run(bucket)
    found = bucket.audit("r")
    assert (found.events, found.matched, found.delivered, found.before) == (1, 1, 1, 1)
    assert (found.attempts, found.missed, found.complete) == (1, 0, True)


def test_a_rule_that_begins_with_the_log_has_nothing_before_it(memory: World) -> None:
    bucket = memory.connect()
    bucket.put("before", "x")
    bucket.rules.add("r", to="queue:out", start="beginning")
    bucket.put("after", "x")
    run(bucket)
    found = bucket.audit("r")
    assert (found.events, found.matched, found.delivered, found.before) == (2, 2, 2, 0)


@pytest.mark.parametrize("shards", [1, 3])
def test_a_rule_that_is_changed_or_paused_began_where_it_did(memory: World, shards: int) -> None:
    bucket = memory.connect()
    bucket.queue("events", shards=shards).settings()
    for n in range(12):
        bucket.put(f"old/{n}", "x")
    bucket.rules.add("r", to="queue:out")
    bucket.put("new", "x")
    bucket.rules.pause("r")
    bucket.rules.resume("r")
    bucket.rules.add("r", to="queue:other", replace=True)
    run(bucket)
    found = bucket.audit("r")
    assert (found.events, found.delivered, found.before) == (1, 1, 12)


def test_a_rule_that_does_not_say_where_it_began_answers_for_what_came_after_it_was_made(memory: World) -> None:
    """Rules of an earlier release, or changed by one, do not."""
    bucket = memory.connect()
    bucket.put("before", "x")
    memory.advance(5)
    bucket.rules.add("r", to="queue:out")
    stored = msgspec.json.decode(memory.everything()["rules/r.json"])
    del stored["begins"]
    memory.write("rules/r.json", msgspec.json.encode(stored))
    memory.advance(5)
    bucket.put("after", "x")
    run(bucket)
    found = bucket.audit("r")
    assert (found.matched, found.delivered, found.before) == (1, 1, 1)


def test_what_a_rule_has_to_do_is_told_by_its_state(memory: World) -> None:
    bucket = memory.connect()
    with endpoint(lambda _: Reply(500)) as there:
        bucket.rules.add("r", to=there.url, private=True, retry_seconds=[100], jitter=0)
        bucket.put("failing", "x")
        run(bucket)
        bucket.put("fresh", "x")
    found = bucket.audit("r")
    assert (found.ready, found.in_flight, found.delayed, found.delivered) == (1, 0, 1, 0)
    memory.advance(101)
    assert (bucket.audit("r").ready, bucket.audit("r").delayed) == (2, 0)
    bucket.queue("events").subscription(bucket.rules.get("r").subscription).receive(10)
    assert (bucket.audit("r").ready, bucket.audit("r").in_flight) == (0, 2)
