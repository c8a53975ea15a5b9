"""Stats: the numbers, by subscription and shard."""

from __future__ import annotations

from typing import Any

from bucketmq.procedures.stats import HOLDER_SECONDS

from .world import World, drain


def test_an_empty_queue(queue: Any) -> None:
    stats = queue.stats()
    assert stats.queue == "jobs"
    assert (stats.depth, stats.in_flight, stats.waiting, stats.delayed, stats.dead, stats.sent) == (0, 0, 0, 0, 0, 0)
    assert stats.oldest_age_seconds is None
    assert stats.shards == 1
    assert [each.name for each in stats.subscriptions] == ["main"]


def test_every_number_once(world: World, queue: Any) -> None:
    queue.send_many(range(10))
    done, retried, buried, *_ = queue.receive(5)
    done.ack()
    retried.retry(delay_seconds=100)
    buried.bury()
    queue.flush()
    queue.send("later", delay_seconds=1000)
    stats = world.connect().queue("jobs").stats()
    assert stats.depth == 10 - 2  # one done, one dead
    assert stats.in_flight == 2
    assert stats.waiting == 1
    assert stats.dead == 1
    assert stats.delayed == 1
    assert stats.delayed_is_at_least is False
    assert stats.sent == 10


def test_the_oldest_age_is_that_of_the_oldest_unsettled(world: World, queue: Any) -> None:
    queue.send("a")
    world.advance(100)
    queue.send("b")
    world.advance(50)
    assert 149 < queue.stats().oldest_age_seconds < 155
    queue.receive(1)[0].ack(wait=True)
    assert 49 < queue.stats().oldest_age_seconds < 55
    drain(queue)
    assert queue.stats().oldest_age_seconds is None


def test_numbers_by_subscription(queue: Any) -> None:
    audit = queue.subscription("audit")
    queue.send_many(range(4))
    drain(audit)
    queue.receive(1)
    stats = queue.stats()
    assert {each.name: (each.depth, each.in_flight) for each in stats.subscriptions} == {
        "audit": (0, 0),
        "main": (4, 1),
    }


def test_numbers_by_shard(bucket: Any) -> None:
    queue = bucket.queue("jobs", shards=3)
    shards = [queue.send(n).shard for n in range(7)]
    (main,) = queue.stats().subscriptions
    assert {each.shard: (each.tail, each.depth) for each in main.shards} == {
        shard: (shards.count(shard), shards.count(shard)) for shard in range(3)
    }
    assert sum(each.depth for each in main.shards) == main.depth == 7


def test_holders_are_the_processes_seen_lately(world: World) -> None:
    first, second = world.connect().queue("jobs"), world.connect().queue("jobs")
    first.send_many(range(4))
    first.receive(1)
    second.receive(1)
    assert first.stats().subscriptions[0].holders == 2
    world.advance(HOLDER_SECONDS + 1)
    assert first.stats().subscriptions[0].holders == 0


def test_stats_change_nothing(world: World, queue: Any) -> None:
    queue.send_many(range(4))
    queue.receive(1)
    before = world.everything()
    world.connect().queue("jobs").stats()
    assert world.everything() == before


def test_requests_are_counted_by_kind(bucket: Any) -> None:
    queue = bucket.queue("jobs")
    queue.settings()
    before = bucket.requests
    queue.send("x" * 1000)
    made = bucket.requests - before
    assert made.create == 1
    assert 1000 < made.bytes_out < 1200
    assert made.writes == 1
    assert made.refused == made.unknown == made.failed == 0
