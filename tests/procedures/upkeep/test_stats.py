"""Stats: the numbers, by subscription and shard."""

from __future__ import annotations

from typing import Any

import msgspec

from bucketmq.bucket.port import Page
from bucketmq.procedures.upkeep.stats import HOLDER_SECONDS, UNREAD_SECONDS
from procedures.world import World, drain


def test_an_empty_queue(queue: Any) -> None:
    stats = queue.stats()
    assert stats.queue == "jobs"
    assert (stats.depth, stats.ready, stats.in_flight, stats.delayed, stats.dead, stats.sent) == (0, 0, 0, 0, 0, 0)
    assert stats.oldest_ready_seconds is None
    assert stats.damaged == ()
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
    assert stats.ready == 5
    assert stats.in_flight == 2
    assert stats.delayed == 1 + 1  # a retry and a send
    assert stats.dead == 1
    assert stats.delayed_is_at_least is False
    assert stats.sent == 10


def test_the_oldest_is_the_oldest_that_is_ready(world: World, queue: Any) -> None:
    queue.send("a")
    world.advance(100)
    queue.send("b")
    world.advance(50)
    assert 149 < queue.stats().oldest_ready_seconds < 155
    (first,) = queue.receive(1)
    assert 49 < queue.stats().oldest_ready_seconds < 55  # the other is in somebody's hands
    first.retry(delay_seconds=1000, wait=True)
    assert 49 < queue.stats().oldest_ready_seconds < 55
    world.advance(1001)
    assert 1150 < queue.stats().oldest_ready_seconds < 1160
    drain(queue)
    assert queue.stats().oldest_ready_seconds is None


def test_a_lease_that_is_over_is_not_in_flight(world: World, queue: Any) -> None:
    queue.send_many([*"ab"])
    queue.receive(1, lease_seconds=10)
    assert (queue.stats().ready, queue.stats().in_flight) == (1, 1)
    world.advance(11)
    stats = world.connect().queue("jobs").stats()
    assert (stats.ready, stats.in_flight, stats.delayed, stats.depth) == (2, 0, 0, 2)


def test_a_lease_that_is_over_after_the_last_attempt_leaves_a_dead_message(world: World, bucket: Any) -> None:
    queue = bucket.queue("jobs", attempts_max=1)
    queue.send("a")
    queue.receive(1, lease_seconds=10)
    world.advance(11)
    stats = world.connect().queue("jobs").stats()
    assert (stats.ready, stats.in_flight, stats.dead) == (0, 0, 1)


def test_a_retry_whose_back_off_is_over_is_ready(world: World, queue: Any) -> None:
    queue.send("a")
    queue.receive(1)[0].retry(delay_seconds=30, wait=True)
    assert (queue.stats().ready, queue.stats().delayed) == (0, 1)
    world.advance(31)
    assert (queue.stats().ready, queue.stats().delayed) == (1, 0)


def test_a_delayed_send_that_is_due_is_ready_even_if_nobody_has_moved_it(world: World, queue: Any) -> None:
    queue.send("later", delay_seconds=30)
    assert (queue.stats().ready, queue.stats().delayed) == (0, 1)
    world.advance(500)
    stats = world.connect().queue("jobs").stats()
    assert (stats.ready, stats.delayed, stats.depth) == (1, 0, 1)
    assert 460 < stats.oldest_ready_seconds < 475


def test_a_delayed_send_that_was_created_again_after_its_move_counts_as_nothing(world: World, queue: Any) -> None:
    queue.send("later", delay_seconds=30)
    (key,) = world.keys("later/")
    body = world.read(key)
    world.advance(31)
    assert drain(queue) == ["later"]
    world.store.create(key, body)
    assert (queue.stats().ready, queue.stats().delayed, queue.stats().depth) == (0, 0, 0)


def test_a_queue_that_only_named_subscriptions_read_has_no_backlog_of_its_own(world: World, queue: Any) -> None:
    audit = queue.subscription("audit")
    queue.send_many(range(4))
    world.advance(100)
    drain(audit)
    stats = queue.stats()
    assert [each.name for each in stats.subscriptions] == ["audit"]
    assert (stats.depth, stats.ready, stats.oldest_ready_seconds) == (0, 0, None)
    assert any("main" in line and "--no-main" in line for line in stats.advice)  # for it keeps every message


def test_the_figures_of_a_queue_are_those_of_its_subscriptions_together(world: World, queue: Any) -> None:
    audit, index = queue.subscription("audit"), queue.subscription("index")
    queue.send_many(range(4))
    world.advance(100)
    audit.receive(3)
    index.receive(1)[0].retry(delay_seconds=1000, wait=True)
    stats = queue.stats()
    assert (stats.ready, stats.in_flight, stats.delayed, stats.depth) == (1 + 3, 3, 1, 8)
    assert 99 < stats.oldest_ready_seconds < 105


def test_a_queue_made_without_main_has_no_subscription_before_somebody_subscribes(bucket: Any) -> None:
    queue = bucket.queue("jobs", main=False)
    queue.send_many(range(4))
    stats = queue.stats()
    assert (stats.subscriptions, stats.ready, stats.sent) == ((), 0, 4)
    assert stats.advice == ()


def test_a_head_ahead_of_its_log_is_damage(world: World, bucket: Any) -> None:
    queue = bucket.queue("jobs")
    queue.send_many(range(3))
    drain(queue)
    queue.send_many(range(4))
    drain(queue)
    world.store.delete(world.segment(3))
    stats = world.connect().queue("jobs").stats()
    (damage,) = stats.damaged
    assert (damage.queue, damage.subscription, damage.shard, damage.offset, damage.end) == ("jobs", "main", 0, 7, 3)
    assert "jobs" in str(damage) and "shard 0" in str(damage) and "offset 7" in str(damage)


def test_a_head_ahead_of_the_dead_letters_is_damage_too(world: World, bucket: Any) -> None:
    queue = bucket.queue("jobs")
    queue.send("a")
    queue.receive(1)[0].bury(wait=True)
    queue.dead_letters.purge()
    world.store.delete(world.segment(0, queue="jobs.dead"))
    assert [each.queue for each in world.connect().queue("jobs").stats().damaged] == ["jobs.dead"]


def test_what_is_received_while_stats_are_taken_is_not_damage(blocking: World) -> None:
    """The tail is read before the heads, which may have moved on by then."""
    store, looking, busy = blocking.store, blocking.connect().queue("jobs"), blocking.connect().queue("jobs")
    busy.send("a")
    drain(busy)
    looking.stats()
    list_, moved = store.list, []

    def list_slowly(prefix: str, *, after: str, limit: int) -> Page:
        if "/heads/" in prefix and not moved:
            moved.append(busy.send("b"))
            drain(busy)
        return list_(prefix, after=after, limit=limit)

    store.list = list_slowly  # type: ignore[method-assign]  # the one moment that matters
    assert looking.stats().damaged == ()
    assert moved


def test_a_subscription_that_nobody_reads_is_named_with_the_cure(world: World, queue: Any) -> None:
    audit = queue.subscription("audit")
    queue.send_many([*"ab"])
    audit.receive(1)[0].ack(wait=True)
    drain(queue)
    assert queue.stats().advice == ()
    world.advance(UNREAD_SECONDS + 60)
    queue.send("c")
    drain(queue)
    (line,) = queue.stats().advice
    assert "audit" in line and "bucketmq subscriptions rm jobs audit" in line
    drain(audit)
    assert queue.stats().advice == ()


def test_a_rules_subscription_that_nobody_reads_has_another_cure(blocking: World) -> None:
    bucket = blocking.connect()
    bucket.rules.add("inbox", to="queue:inbox")
    bucket.put("a", b"1")
    blocking.advance(UNREAD_SECONDS + 60)
    (line,) = bucket.existing_queue("events").stats().advice
    assert "bucketmq rules run inbox" in line and "subscriptions rm" not in line


def test_stats_can_be_printed_as_json(queue: Any) -> None:
    queue.send("a")
    row = msgspec.json.decode(msgspec.json.encode(queue.stats()))
    assert (row["ready"], row["subscriptions"][0]["ready"], row["damaged"]) == (1, 1, [])


def test_numbers_by_subscription(queue: Any) -> None:
    audit = queue.subscription("audit")
    queue.send_many(range(4))
    drain(audit)
    queue.receive(1)
    stats = queue.stats()
    assert {each.name: (each.depth, each.ready, each.in_flight) for each in stats.subscriptions} == {
        "audit": (0, 0, 0),
        "main": (4, 3, 1),
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


def test_when_the_next_delayed_message_is_due_and_since_when_the_oldest_is_dead(world: World, queue: Any) -> None:
    queue.send_many(range(4))
    one, two, three, _ = queue.receive(4)
    one.retry(delay_seconds=100)
    two.retry(delay_seconds=50)
    three.bury()
    queue.flush()
    world.advance(20)
    stats = queue.stats()
    assert 25 < (stats.subscriptions[0].next_due_seconds or 0) < 31
    assert 19 < (stats.oldest_dead_seconds or 0) < 25
    world.advance(100)
    assert queue.stats().subscriptions[0].next_due_seconds is None
