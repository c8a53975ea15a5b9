"""Reading the log for rules: the same verdicts however it was cut into segments, by whoever begins to read where."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bucketmq.events.event import ObjectEvent, Source, event_id, time_text

from .world import World

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
