"""Stored bytes that are not what the format says: `Corrupt`, naming the object, and nothing is changed."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

import bucketmq
from procedures.world import World

BAD_DOCUMENTS = [b"", b"{", b"null", b"[]", b"\xff\xfe", b'"text"', b'{"next":"x"}', b'{"shards":"x"}']


def stored(world: World) -> Any:
    """A queue with something settled, held and fresh in it; its sender is another process."""
    queue = world.connect().queue("jobs")
    queue.send_many([*"abc"])
    queue.receive(1)[0].ack(wait=True)
    queue.receive(1)
    return queue


def refused(world: World, key: str, body: bytes, *uses: str) -> list[str]:
    """What a new process says to each use of the queue; nothing must change."""
    world.overwrite(key, body)
    before = world.everything()
    told = []
    for use in uses:
        queue = world.connect().queue("jobs")
        with pytest.raises(bucketmq.Corrupt) as error:
            queue.send("x") if use == "send" else getattr(queue, use)()
        told.append(str(error.value))
        assert world.everything() == before
    return told


@pytest.mark.parametrize("body", BAD_DOCUMENTS)
def test_corrupt_settings(world: World, body: bytes) -> None:
    stored(world)
    if body in (b'{"next":"x"}',):
        return  # unknown fields are fine in settings
    for told in refused(world, world.key("queue.json"), body, "send", "receive", "stats"):
        assert "queue.json" in told


@pytest.mark.parametrize("body", [*BAD_DOCUMENTS, b"{}"])
def test_a_corrupt_head(world: World, body: bytes) -> None:
    stored(world)
    for told in refused(world, world.key("heads/main/0.json"), body, "receive", "stats", "peek", "purge", "trim"):
        assert "heads/main/0.json" in told


def test_a_head_that_breaks_the_rules(world: World) -> None:
    stored(world)
    key = world.key("heads/main/0.json")
    head = world.json(key)
    head["next"] = 1
    for told in refused(world, key, msgspec.json.encode(head), "receive", "stats"):
        assert "heads/main/0.json" in told


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff\n", b"not json\n", b'{"id":1}\n', b'{"id":"x","at":"y"}', b'{"parts":[]}\n', b"\n\n\n"],
)
def test_a_corrupt_segment(world: World, body: bytes) -> None:
    world.connect().queue("jobs").send_many([*"abc"])
    for told in refused(world, world.segment(0), body, "receive", "peek"):
        assert "0" in told


def test_a_segment_cut_short_under_a_lease(world: World) -> None:
    queue = stored(world)
    first_line = world.read(world.segment(0)).split(b"\n")[0] + b"\n"
    world.overwrite(world.segment(0), first_line)
    before = world.everything()
    with pytest.raises(bucketmq.Corrupt):
        world.connect().queue("jobs").receive(10)
    with pytest.raises(bucketmq.Corrupt):
        world.connect().queue("jobs").peek()
    assert world.everything() == before
    queue.flush()


def test_a_segment_that_somebody_deleted(world: World) -> None:
    stored(world)
    world.advance(61)
    world.store.delete(world.segment(0))
    with pytest.raises(bucketmq.Corrupt, match=r"its log ends at 0.*doctor --deep"):
        world.connect().queue("jobs").receive(10)
    assert json.loads(world.read(world.key("losses.json")))["lost"], "what was in flight is recorded"


FUTURE = [
    ("queue.json", ["send", "receive", "stats"]),
    ("heads/main/0.json", ["receive", "stats", "peek"]),
    ("trim/0.json", ["send"]),
]


@pytest.mark.parametrize(("part", "uses"), FUTURE, ids=[part for part, _ in FUTURE])
def test_a_format_from_the_future_says_upgrade(world: World, part: str, uses: list[str]) -> None:
    stored(world)
    key = world.key(part)
    if key not in world.everything():
        world.store.create(key, b"{}")
    for told in refused(world, key, b'{"format":2,"everything":"else"}\n', *uses):
        assert part in told
        assert "format 2" in told
        assert "upgrade" in told


@pytest.mark.parametrize("part", ["later.json", "dedup"])
def test_registers_that_are_corrupt(world: World, part: str) -> None:
    queue = world.connect().queue("jobs")
    queue.send("x", delay_seconds=10)
    queue.send("x", dedup_key="d")
    (key,) = world.keys(part)
    world.overwrite(key, b"nonsense")
    before = world.everything()
    with pytest.raises(bucketmq.Corrupt, match=part):
        if part == "dedup":
            world.connect().queue("jobs").send("x", dedup_key="d")
        else:
            world.connect().queue("jobs").receive(1)
    assert world.everything() == before


def test_a_stranger_among_the_segments_is_named(world: World) -> None:
    world.connect().queue("jobs").send("x")
    world.store.create(world.key("log/0/zzz.txt"), b"hello")
    with pytest.raises(bucketmq.Corrupt, match=r"zzz.txt.*move it away"):
        world.connect().queue("jobs").send("y")


def test_one_corrupt_shard_does_not_stop_the_others(world: World) -> None:
    queue = world.connect().queue("jobs", shards=3)
    homes = {queue.send(n).shard: n for n in range(3)}
    world.overwrite(world.segment(0, shard=1), b"broken\n")
    reader = world.connect().queue("jobs")
    got = []
    for _ in range(10):
        try:
            got += [delivery.body for delivery in reader.receive(10)]
        except bucketmq.Corrupt:
            continue
    assert sorted(got) == sorted(homes[shard] for shard in (0, 2))
