"""Reading the log for rules: the same verdicts however it was cut into segments, by whoever begins to read where."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bucketmq
from bucketmq.events.event import ObjectEvent, Source, event_id, time_text
from procedures.objects.world import World

T = 1_800_000_000.0


def event(number: int, key: str, source: Source, version: str, kind: Any) -> ObjectEvent:
    """Told by `source` of the state `version`; the number is its time."""
    at = time_text(T + number // 3 * 0.5)
    id = event_id(source, "", key, kind, version, at)
    return ObjectEvent(id=id, kind=kind, key=key, at=at, source=source, version=version)


EVENTS = st.lists(
    st.builds(
        event,
        st.integers(0, 40),
        st.sampled_from("abc"),
        st.sampled_from(["s3", "writer", "gcs", "sweep"]),
        st.sampled_from("xy"),
        st.sampled_from(["created", "deleted", "moved"]),
    ),
    min_size=1,
    max_size=25,
)


def delivered(bucket: Any, name: str) -> list[str]:
    bucket.notify(only=[name], stop_when_empty=True, signals=False)
    return [each.body["id"] for each in bucket.queue(name).receive(200)]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(EVENTS, st.data())
def test_what_a_rule_is_given_does_not_depend_on_how_the_log_was_cut(
    events: list[ObjectEvent], data: st.DataObject
) -> None:
    found = []
    for _ in range(2):
        world = World("copying")
        bucket = world.connect()
        bucket.rules.add("r", to="queue:r", start="beginning")
        rest = list(events)
        while rest:
            cut = data.draw(st.integers(1, len(rest)))
            bucket.report(rest[:cut])
            rest = rest[cut:]
        found.append(delivered(world.connect(), "r"))
        world.close()
    assert found[0] == found[1]


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(EVENTS, st.integers(0, 25))
def test_a_process_that_reads_on_from_the_middle_comes_to_the_same(events: list[ObjectEvent], middle: int) -> None:
    """The first process delivers a part and goes; the second looks back as far as it must."""
    world = World("copying")
    first = world.connect()
    for name in ("at once", "in two"):
        first.rules.add(name.replace(" ", "-"), to=f"queue:{name.replace(' ', '-')}", start="beginning")
    early = []
    if events[:middle]:
        first.report(events[:middle])
        first.notify(only=["in-two"], stop_when_empty=True, signals=False)
        queue = first.queue("in-two")
        for each in queue.receive(200):
            early.append(each.body["id"])
            each.ack(wait=True)
    if events[middle:]:
        first.report(events[middle:])
    assert early + delivered(world.connect(), "in-two") == delivered(world.connect(), "at-once")
    world.close()


@pytest.mark.parametrize("shards", [1, 4])
def test_an_echo_in_another_segment_is_passed_over(shards: int) -> None:
    world = World("copying")
    bucket = world.connect()
    bucket.queue("events", shards=shards).settings()
    bucket.rules.add("r", to="queue:r", start="beginning")
    for n in range(30):
        bucket.report([event(0, f"k{n}", "s3", "x", "created")])
    for n in range(30):
        bucket.report([event(0, f"k{n}", "writer", "x", "created")])
    assert len(delivered(world.connect(), "r")) == 30
    world.close()


def test_an_echo_that_tells_more_reaches_a_rule_that_the_first_telling_did_not(memory: World) -> None:
    bucket = memory.connect()
    bucket.rules.add("r", to="queue:r", filter="WHERE `kind` = 'changed'")
    bucket.report([event(0, "a", "s3", "x", "created"), event(0, "a", "writer", "x", "changed")])
    assert len(delivered(bucket, "r")) == 1


POISON = [
    {"at": "garbage"},
    {"at": ""},
    {"at": "2026-01-01T00:00:00.000000Z", "kind": "deleted", "seen_at": "garbage"},
    {"at": "9999-12-31T23:59:59+00:00"},
    {"key": "../x"},
    {"key": ""},
    {"key": "x" * 5000},
    {"hops": -1},
    {"version": "x" * 100_000},
    {"order": {"by": "generation", "mark": "9" * 10_000}},
]


@pytest.mark.parametrize("fields", POISON, ids=range(len(POISON)))
def test_an_event_that_makes_no_sense_stops_no_rule(memory: World, fields: dict[str, Any]) -> None:
    """Whatever somebody wrote into the log, and wrote twice: what comes behind it is delivered."""
    bucket = memory.connect()
    bucket.rules.add("r", to="queue:r", gone="drop", stale="drop", filter="WHERE `last-modified` > '2020-01-01'")
    plain = {"id": "evt_1", "kind": "created", "key": "a", "at": "2026-01-01T00:00:00.000000Z", "version": "v"}
    for source in ("s3", "writer"):
        bucket.queue("events").send({**plain, "source": source, "id": f"evt_{source}", **fields}, key="a")
    good = bucket.put("good", "x").event.id
    assert good in delivered(bucket, "r")
    assert bucket.audit("r").missed == 0
    bucket.rules.replay("r", since=0.0)
    assert good in delivered(bucket, "r")


def test_an_event_whose_time_nobody_can_read_is_not_reported(memory: World) -> None:
    bucket = memory.connect()
    bad = ObjectEvent(id="evt_1", kind="created", key="a", at="yesterday", source="s3")
    with pytest.raises(bucketmq.Invalid, match="yesterday"):
        bucket.report([bad])
