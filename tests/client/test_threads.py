"""Many threads, one bucket: they share segments and commits, and nothing gets lost between them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from procedures.world import World, drain

from bucketmq.bucket.memory import MemoryStore
from bucketmq.bucket.port import PLAIN, Attributes, Refused, Version, Written


class SlowStore(MemoryStore):
    """Writes take a while, as they do over a network."""

    def create(self, key: str, body: bytes, attributes: Attributes = PLAIN) -> Written | Refused:
        time.sleep(0.02)
        return super().create(key, body, attributes)

    def replace(self, key: str, body: bytes, version: Version, attributes: Attributes = PLAIN) -> Written | Refused:
        time.sleep(0.02)
        return super().replace(key, body, version, attributes)


def together(count: int, work: Callable[[int], Any]) -> None:
    """Run `work(0)` .. `work(count - 1)` on threads at the same time; raise what one raised."""
    start = threading.Barrier(count)
    errors: list[BaseException] = []

    def run(n: int) -> None:
        start.wait()
        try:
            work(n)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if errors:
        raise errors[0]


def test_sixteen_threads_that_send_singles_share_segments() -> None:
    world = World(store=SlowStore())
    bucket = world.connect()
    queue = bucket.queue("jobs")
    queue.send("warm")
    before = bucket.requests
    answers: list[Any] = []
    together(16, lambda n: answers.extend(queue.send((n, i)) for i in range(10)))
    made = bucket.requests - before
    assert made.create <= 40  # 160 without sharing
    assert made.refused == 0
    assert sorted(answer.offset for answer in answers) == list(range(1, 161))
    by_offset = {seen.offset: seen for seen in queue.peek(1000)}
    assert all(by_offset[answer.offset].id == answer.id for answer in answers)
    world.close()


def test_each_threads_sends_stay_in_its_order(blocking: World) -> None:
    queue = blocking.connect().queue("jobs")
    together(8, lambda n: [queue.send((n, i)) for i in range(25)])
    bodies = drain(queue)
    assert len(bodies) == 200
    for n in range(8):
        assert [i for thread, i in bodies if thread == n] == list(range(25))


def test_threads_that_receive_get_each_message_once(blocking: World) -> None:
    bucket = blocking.connect()
    queue = bucket.queue("jobs", shards=2)
    for _ in range(10):
        queue.send_many(range(50))
    got: Counter[tuple[int, int]] = Counter()

    def work(_: int) -> None:
        while batch := queue.receive(7):
            for delivery in batch:
                got[(delivery.shard, delivery.offset)] += 1
                delivery.ack()

    together(8, work)
    for delivery in queue.receive(500):
        got[(delivery.shard, delivery.offset)] += 1
    queue.flush()
    assert len(got) == 500
    assert set(got.values()) == {1}


def test_threads_share_commits() -> None:
    world = World(store=SlowStore())
    bucket = world.connect()
    queue = bucket.queue("jobs")
    queue.send_many(range(64))
    deliveries = list(queue.receive(64))
    before = bucket.requests
    together(16, lambda n: [delivery.ack(wait=True) for delivery in deliveries[n * 4 : n * 4 + 4]])
    made = bucket.requests - before
    assert made.replace <= 16  # 64 without sharing
    assert made.refused == 0
    assert queue.stats().depth == 0
    world.close()


def test_threads_that_open_the_same_queue_at_once_make_it_once(blocking: World) -> None:
    bucket = blocking.connect()
    before = bucket.requests
    queues = [bucket.queue("jobs") for _ in range(8)]
    together(8, lambda n: queues[n].send(n))
    assert sorted(drain(queues[0])) == list(range(8))
    assert (bucket.requests - before).refused == 0


def test_one_thread_that_sends_nonsense_does_not_disturb_the_others(blocking: World) -> None:
    queue = blocking.connect().queue("jobs")

    def work(n: int) -> None:
        for i in range(20):
            try:
                queue.send(object() if n == 0 else (n, i))
            except ValueError:
                assert n == 0

    together(4, work)
    assert len(drain(queue)) == 60


def test_buckets_of_several_threads_and_processes_race_for_one_shard_and_lose_nothing(blocking: World) -> None:
    queues = [blocking.connect().queue("jobs") for _ in range(4)]
    queues[0].settings()
    got: Counter[int] = Counter()
    together(4, lambda n: [queues[n].send(n * 100 + i) for i in range(50)])

    def work(n: int) -> None:
        empty = 0
        while empty < 3:
            batch = queues[n].receive(5, wait_seconds=0.05)
            empty = 0 if batch else empty + 1
            for delivery in batch:
                got[delivery.body] += 1
                delivery.ack(wait=True)

    together(4, work)
    for body in drain(queues[0]):
        got[body] += 1
    assert got == Counter(n * 100 + i for n in range(4) for i in range(50))
