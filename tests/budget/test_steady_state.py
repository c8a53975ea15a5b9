"""What each operation costs in requests, exactly, once a process is warm. A batch of any size costs the same."""

from __future__ import annotations

import pytest

from .stores import RemoteStore, Spent, connect, settled

SIZES = [1, 10, 1000]


@pytest.mark.parametrize("size", SIZES)
def test_sending_a_batch_is_one_put(size: int) -> None:
    bucket = connect(RemoteStore())
    queue = bucket.queue("jobs")
    queue.send("warm")
    for _ in range(5):
        with Spent(bucket) as spent:
            queue.send_many(range(size))
        assert spent.kinds == {"create": 1}


def test_the_hint_is_written_every_64_segments() -> None:
    bucket = connect(RemoteStore())
    queue = bucket.queue("jobs")
    queue.send("warm")
    with Spent(bucket) as spent:
        for n in range(640):
            queue.send(n)
    assert spent.kinds == {"create": 641, "replace": 9, "get": 1}


@pytest.mark.parametrize("size", SIZES)
def test_receiving_and_settling_a_batch_is_one_get_and_one_put(size: int) -> None:
    store = RemoteStore()
    sender, bucket = connect(store).queue("jobs"), connect(store)
    for _ in range(12):
        sender.send_many(range(size))
    queue = bucket.queue("jobs")
    for _ in range(2):
        settled(queue.receive(size))
    for _ in range(8):
        with Spent(bucket) as spent:
            assert settled(queue.receive(size)) == size
        assert spent.kinds == {"get": 1, "replace": 1}
        assert spent.requests.refused == spent.requests.missing == 0


def test_a_batch_out_of_one_large_segment_needs_no_get_at_all() -> None:
    bucket = connect(RemoteStore())
    queue = bucket.queue("jobs")
    queue.send_many(range(1000))
    settled(queue.receive(100))
    for _ in range(8):
        with Spent(bucket) as spent:
            assert settled(queue.receive(100)) == 100
        assert spent.kinds == {"replace": 1}


@pytest.mark.parametrize("shards", [1, 4])
def test_an_empty_poll_is_one_get_for_each_shard(shards: int) -> None:
    bucket = connect(RemoteStore())
    queue = bucket.queue("jobs", shards=shards)
    for n in range(shards):
        queue.send(n)
    while settled(queue.receive(10)):
        pass
    queue.flush()
    queue.receive(10)
    for _ in range(5):
        with Spent(bucket) as spent:
            assert not queue.receive(10)
        assert spent.kinds == {"get": shards}
        assert spent.requests.missing == shards


def test_a_failed_batch_adds_one_put_for_its_failures() -> None:
    bucket = connect(RemoteStore())
    queue = bucket.queue("jobs")
    queue.send_many(range(100))
    batch = queue.receive(100)
    with Spent(bucket) as spent:
        for delivery in batch:
            delivery.retry("why", delay_seconds=100)
        queue.flush()
    assert spent.kinds == {"create": 1, "replace": 1}


def test_flush_wait_and_extend_are_one_put_each() -> None:
    bucket = connect(RemoteStore())
    queue = bucket.queue("jobs")
    queue.send_many(range(10))
    batch = queue.receive(10)
    for use in (
        lambda: batch[0].ack(wait=True),
        lambda: batch[1].extend(500),
        lambda: (settled(batch[2:]), queue.flush()),
    ):
        with Spent(bucket) as spent:
            use()
        assert spent.kinds == {"replace": 1}
    with Spent(bucket) as spent:
        queue.flush()
    assert spent.kinds == {}


def test_a_deduplicated_send_is_one_get_and_two_puts() -> None:
    bucket = connect(RemoteStore())
    queue = bucket.queue("jobs")
    for n in range(100):
        queue.send("warm", dedup_key=str(n))
    with Spent(bucket) as spent:
        queue.send("x", dedup_key="once")
    assert spent.kinds == {"get": 1, "replace": 1, "create": 1}
    with Spent(bucket) as spent:
        assert queue.send("x", dedup_key="once").duplicate
    assert spent.kinds == {"get": 2}


def test_a_delayed_send_is_one_put() -> None:
    bucket = connect(RemoteStore())
    queue = bucket.queue("jobs")
    queue.send("warm", delay_seconds=1000)
    with Spent(bucket) as spent:
        queue.send_many(range(100), delay_seconds=1000)
    assert spent.kinds == {"create": 1}


def test_a_large_body_adds_one_put_and_one_get() -> None:
    bucket = connect(RemoteStore())
    queue = bucket.queue("jobs")
    queue.send("warm")
    settled(queue.receive(1))
    with Spent(bucket) as spent:
        queue.send("x" * 100_000)
    assert spent.kinds == {"create": 2}
    with Spent(bucket) as spent:
        settled(queue.receive(1))
    assert spent.kinds["replace"] == 1
    assert spent.kinds["get"] <= 3  # the segment, the body, the segment ahead


def test_the_probe_is_about_ten_requests() -> None:
    from bucketmq.client import Bucket
    from bucketmq.engines.blocking import Blocking
    from bucketmq.engines.perform import Hands

    bucket = Bucket(Blocking(Hands(RemoteStore())), "app", probe=True)
    with Spent(bucket) as spent:
        bucket.open()
    assert spent.total <= 10
    assert spent.kinds["delete"] == 1
