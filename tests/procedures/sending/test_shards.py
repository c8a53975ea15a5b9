"""Shards: reading from all of them, and raising their number while the queue is in use."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest

import bucketmq
from procedures.world import Killed, World, drain


def test_a_worker_reads_every_shard(bucket: Any) -> None:
    queue = bucket.queue("jobs", shards=5)
    for n in range(50):
        queue.send(n)
    assert sorted(drain(queue, limit=3)) == list(range(50))


def test_raising_the_count_keeps_what_is_there_and_uses_the_new_shards(world: World, bucket: Any) -> None:
    queue = bucket.queue("jobs", shards=2)
    for n in range(10):
        queue.send(n)
    assert queue.raise_shards(4).shards == 4
    shards = {queue.send(n).shard for n in range(10, 20)}
    assert shards == {0, 1, 2, 3}
    assert sorted(drain(queue)) == list(range(20))


def test_another_process_finds_out_within_half_a_minute(world: World) -> None:
    first, second = world.connect().queue("jobs"), world.connect().queue("jobs")
    second.send("x")
    first.raise_shards(4)
    world.advance(31)
    assert {second.send(n).shard for n in range(8)} == {0, 1, 2, 3}
    assert second.settings().shards == 4


def test_settings_may_ask_for_more_shards(world: World) -> None:
    world.connect().queue("jobs", shards=2).send("x")
    queue = world.connect().queue("jobs", shards=6)
    assert queue.settings().shards == 6
    assert world.connect().queue("jobs").settings().shards == 6


@pytest.mark.parametrize("shards", [0, 1, 1025, -3])
def test_the_count_cannot_be_lowered_or_be_impossible(world: World, bucket: Any, shards: int) -> None:
    queue = bucket.queue("jobs", shards=2)
    queue.send("x")
    with pytest.raises(bucketmq.Invalid, match="shard"):
        queue.raise_shards(shards)
    assert queue.settings().shards == 2


def test_settings_cannot_lower_it_either(world: World) -> None:
    world.connect().queue("jobs", shards=3).send("x")
    with pytest.raises(bucketmq.Invalid, match="not lowered"):
        world.connect().queue("jobs", shards=2).send("y")
    assert world.json(world.key("queue.json"))["shards"] == 3


def test_a_key_that_moves_goes_to_a_new_shard_only(bucket: Any) -> None:
    queue = bucket.queue("jobs", shards=3)
    before = {f"k{n}": queue.send(n, key=f"k{n}").shard for n in range(60)}
    queue.raise_shards(5)
    after = {key: queue.send(key, key=key).shard for key in before}
    assert all(after[key] in (before[key], 3, 4) for key in before)
    assert {3, 4} <= set(after.values())


def test_threads_that_send_and_receive_while_it_is_raised_lose_nothing(blocking: World) -> None:
    first, second = blocking.connect().queue("jobs"), blocking.connect().queue("jobs")
    first.settings()
    got: Counter[int] = Counter()
    sent = threading.Event()

    def send() -> None:
        for n in range(200):
            first.send(n, key=f"k{n % 17}")
        sent.set()

    def receive() -> None:
        while not sent.is_set() or second.stats().depth:
            for delivery in second.receive(20, wait_seconds=0.1):
                got[delivery.body] += 1
                delivery.ack()
            second.flush()

    threads = [threading.Thread(target=send), threading.Thread(target=receive)]
    for thread in threads:
        thread.start()
    for shards in (2, 3, 8):
        first.raise_shards(shards)
    for thread in threads:
        thread.join(60)
    blocking.advance(31)
    for body in drain(second):
        got[body] += 1
    assert got == Counter(range(200))


@pytest.mark.parametrize("ordered", [False, True], ids=["plain", "ordered"])
@pytest.mark.parametrize("lives", range(1, 26, 2))
def test_who_dies_while_raising_leaves_a_queue_that_works(blocking: World, lives: int, *, ordered: bool) -> None:
    queue = blocking.connect().queue("jobs", shards=2, ordered=ordered)
    for n in range(10):
        queue.send(n, key=f"k{n % 5}")
    try:
        blocking.mortal(lives).queue("jobs").raise_shards(5)
    except Killed:
        pass
    other = blocking.connect().queue("jobs")
    for n in range(10, 20):
        other.send(n, key=f"k{n % 5}")
    bodies = drain(other)
    assert sorted(bodies) == list(range(20))
    if ordered:
        for key in range(5):
            assert [n for n in bodies if n % 5 == key] == [n for n in range(20) if n % 5 == key]
