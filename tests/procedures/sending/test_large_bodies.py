"""Bodies too large for a line lie in objects of their own, and live exactly as long as a message that names them."""

from __future__ import annotations

from typing import Any

import pytest

import bucketmq
from procedures.world import World, drain


@pytest.mark.parametrize(
    "body", [{"text": "x" * 70_000}, "y" * 70_000, b"\x00\xff" * 40_000], ids=["json", "text", "bytes"]
)
def test_a_large_body_gets_an_object_and_is_read_back(world: World, queue: Any, body: object) -> None:
    sent = queue.send(body)
    assert world.keys("bodies/") == [world.key(f"bodies/{sent.id}")]
    assert len(world.read(world.segment(0))) < 300
    (delivery,) = queue.receive(1)
    assert delivery.body == body


def test_the_limit_is_a_setting(world: World, bucket: Any) -> None:
    queue = bucket.queue("jobs", inline_bytes_max=10)
    queue.send_many(["short", "a text that is longer", b"some more bytes", 7])
    assert len(world.keys("bodies/")) == 2
    assert drain(queue) == ["short", "a text that is longer", b"some more bytes", 7]


def test_large_and_small_bodies_keep_their_order(queue: Any) -> None:
    bodies = [("x" if n % 2 else "y" * 70_000) + str(n) for n in range(10)]
    queue.send_many(bodies)
    assert drain(queue) == bodies


def test_a_large_body_can_be_delayed(world: World, queue: Any) -> None:
    queue.send("x" * 70_000, delay_seconds=100)
    world.advance(102)
    assert drain(queue) == ["x" * 70_000]


def test_a_body_that_somebody_deleted_is_told_where_it_is_looked_at(world: World, queue: Any) -> None:
    sent = queue.send("x" * 70_000)
    queue.send("small")
    world.store.delete(world.key(f"bodies/{sent.id}"))
    large, small = queue.receive(10)
    with pytest.raises(bucketmq.NotFound, match=r"bury"):
        _ = large.body
    assert small.body == "small"
    large.bury("its body is gone", wait=True)


def test_a_worker_gets_large_bodies_too(blocking: World) -> None:
    queue = blocking.connect().queue("jobs")
    queue.send_many(["x" * 70_000, "y"])
    seen = []
    queue.run(lambda delivery: seen.append(delivery.body), stop_when_empty=True)
    assert seen == ["x" * 70_000, "y"]


def test_a_dead_letter_keeps_its_large_body_when_its_segment_is_trimmed(world: World, bucket: Any) -> None:
    queue = bucket.queue("jobs", keep_seconds=0)
    queue.send("x" * 70_000)
    queue.receive(1)[0].bury("no", wait=True)
    queue.send("the last segment always stays")
    drain(queue)
    world.advance(1000)
    assert queue.trim().segments == 1
    assert queue.dead_letters.redrive().redriven == 1
    assert drain(queue) == ["x" * 70_000]


def test_a_redriven_large_body_outlives_the_segment_it_first_came_in(world: World, bucket: Any) -> None:
    queue = bucket.queue("jobs", keep_seconds=0)
    queue.send("x" * 70_000)
    queue.receive(1)[0].bury("no", wait=True)
    assert queue.dead_letters.redrive().redriven == 1
    world.advance(1000)
    assert queue.trim().segments == 1
    assert drain(queue) == ["x" * 70_000]
