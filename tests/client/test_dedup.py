"""Idempotent sends: one message for a key, whoever repeats, dies or races."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import bucketmq

from .world import Killed, World, drain


def test_the_same_key_twice_is_one_message(queue: Any) -> None:
    first = queue.send("a", dedup_key="order-1")
    again = queue.send("b", dedup_key="order-1")
    assert not first.duplicate
    assert again.duplicate
    assert (again.id, again.shard, again.offset) == (first.id, first.shard, first.offset)
    assert drain(queue) == ["a"]


def test_other_keys_are_other_messages(queue: Any) -> None:
    for n in range(40):
        assert not queue.send(n, dedup_key=f"order-{n}").duplicate
    assert sorted(drain(queue)) == list(range(40))


def test_another_process_is_told_of_the_first_ones_message(world: World) -> None:
    first = world.connect().queue("jobs").send("a", dedup_key="order-1")
    again = world.connect().queue("jobs").send("b", dedup_key="order-1")
    assert (again.id, again.duplicate) == (first.id, True)
    assert drain(world.connect().queue("jobs")) == ["a"]


def test_another_process_on_the_same_folder_is_told_too(tmp_path: Any) -> None:
    with bucketmq.connect(f"file://{tmp_path}/b") as one, bucketmq.connect(f"file://{tmp_path}/b") as other:
        first = one.queue("jobs").send("a", dedup_key="order-1")
        again = other.queue("jobs").send("b", dedup_key="order-1")
        assert (again.id, again.duplicate) == (first.id, True)
        assert drain(other.queue("jobs")) == ["a"]


def test_a_settled_message_is_still_remembered(queue: Any) -> None:
    queue.send("a", dedup_key="order-1")
    assert drain(queue) == ["a"]
    assert queue.send("b", dedup_key="order-1").duplicate
    assert drain(queue) == []


def test_the_window_ends(world: World, bucket: Any) -> None:
    queue = bucket.queue("jobs", dedup_seconds=60)
    queue.send("a", dedup_key="order-1")
    world.advance(55)
    assert queue.send("b", dedup_key="order-1").duplicate
    world.advance(6)
    assert not queue.send("c", dedup_key="order-1").duplicate
    assert drain(queue) == ["a", "c"]


def test_entries_outside_the_window_are_forgotten(world: World, bucket: Any) -> None:
    queue = bucket.queue("jobs", dedup_seconds=60)
    for n in range(200):
        queue.send(n, dedup_key=f"old-{n}")
    old = sum(len(world.json(key)["sent"]) for key in world.keys("dedup/"))
    world.advance(61)
    for n in range(200):
        queue.send(n, dedup_key=f"new-{n}")
    assert old == sum(len(world.json(key)["sent"]) for key in world.keys("dedup/")) == 200


def test_dedup_keys_mix_with_plain_sends_of_others(world: World) -> None:
    first, second = world.connect().queue("jobs"), world.connect().queue("jobs")
    for n in range(10):
        first.send(f"plain {n}")
        assert not second.send(f"once {n}", dedup_key=str(n)).duplicate
        assert first.send(f"twice {n}", dedup_key=str(n)).duplicate
    assert drain(first) == [f"{how} {n}" for n in range(10) for how in ("plain", "once")]


def test_a_large_body_is_sent_once_too(world: World) -> None:
    first, second = world.connect().queue("jobs"), world.connect().queue("jobs")
    first.send("x" * 70_000, dedup_key="d")
    assert second.send("x" * 70_000, dedup_key="d").duplicate
    assert drain(second) == ["x" * 70_000]


def requests_of_a_send(**options: Any) -> int:
    world = World()
    bucket = world.connect()
    before = bucket.requests
    bucket.queue("jobs", **options).send("a", dedup_key="d")
    made = bucket.requests - before
    world.close()
    return made.get + made.create + made.replace + made.list


SHARDED = {"shards": 4}


@pytest.mark.parametrize("options", [{}, SHARDED], ids=["one shard", "four shards"])
@pytest.mark.parametrize("lives", range(1, requests_of_a_send(**SHARDED) + 1))
def test_a_sender_that_dies_between_any_two_requests_and_its_repetition_send_one_message(
    blocking: World, lives: int, options: dict[str, Any]
) -> None:
    with pytest.raises(Killed):
        blocking.mortal(min(lives, requests_of_a_send(**options))).queue("jobs", **options).send("a", dedup_key="d")
    receipt = blocking.connect().queue("jobs", **options).send("a", dedup_key="d")
    again = blocking.connect().queue("jobs", **options).send("a", dedup_key="d")
    assert (again.id, again.duplicate) == (receipt.id, True)
    assert drain(blocking.connect().queue("jobs")) == ["a"]


@pytest.mark.parametrize("lives", range(1, requests_of_a_send() + 1))
def test_the_same_with_somebody_elses_message_in_the_place_it_was_meant_for(blocking: World, lives: int) -> None:
    with pytest.raises(Killed):
        blocking.mortal(lives).queue("jobs").send("a", dedup_key="d")
    blocking.connect().queue("jobs").send("plain")
    first = blocking.connect().queue("jobs").send("a", dedup_key="d")
    second = blocking.connect().queue("jobs").send("a", dedup_key="d")
    assert second.id == first.id
    assert sorted(drain(blocking.connect().queue("jobs"))) == ["a", "plain"]


def test_threads_that_race_with_one_key_send_one_message(blocking: World) -> None:
    queues = [blocking.connect().queue("jobs") for _ in range(4)]
    queues[0].settings()
    start = threading.Barrier(16)
    receipts: list[Any] = []

    def race(n: int) -> None:
        start.wait()
        receipts.append(queues[n % 4].send("a", dedup_key="d"))

    threads = [threading.Thread(target=race, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({receipt.id for receipt in receipts}) == 1
    assert sum(not receipt.duplicate for receipt in receipts) == 1
    assert drain(queues[0]) == ["a"]
