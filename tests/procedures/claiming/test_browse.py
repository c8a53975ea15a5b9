"""Looking without claiming: peek, tail, purge, and the list of queues."""

from __future__ import annotations

from typing import Any

import pytest

from bucketmq.errors import Corrupt
from bucketmq.log import documents
from bucketmq.queue.head import Head
from procedures.world import World, drain


def test_peek_shows_what_is_unsettled_and_claims_nothing(world: World, queue: Any) -> None:
    queue.send_many([*"abcd"])
    a, _ = queue.receive(2)
    a.retry("later", delay_seconds=100, wait=True)
    before = world.everything()
    assert [(seen.body, seen.state, seen.attempts) for seen in queue.peek()] == [
        ("a", "delayed", 1),
        ("b", "in_flight", 1),
        ("c", "ready", 0),
        ("d", "ready", 0),
    ]
    assert world.everything() == before
    assert [delivery.body for delivery in queue.receive(10)] == ["c", "d"]


def test_peek_goes_by_the_clock(world: World, bucket: Any) -> None:
    queue = bucket.queue("jobs", attempts_max=2)
    queue.send_many([*"abc"])
    first, *_ = queue.receive(3, lease_seconds=10)
    first.retry(delay_seconds=10, wait=True)
    world.advance(11)
    assert [(seen.body, seen.state) for seen in queue.peek()] == [("a", "ready"), ("b", "ready"), ("c", "ready")]
    queue.receive(3, lease_seconds=10)
    world.advance(11)
    assert {seen.state for seen in world.connect().queue("jobs").peek()} == {"dead"}


def test_peek_stops_at_its_limit(queue: Any) -> None:
    queue.send_many(range(100))
    assert [seen.body for seen in queue.peek(3)] == [0, 1, 2]
    assert len(queue.peek(1000)) == 100


def test_peek_looks_into_every_shard(bucket: Any) -> None:
    queue = bucket.queue("jobs", shards=4)
    for n in range(8):
        queue.send(n)
    assert sorted(seen.body for seen in queue.peek(100)) == list(range(8))


def test_a_peeked_message_tells_all_about_it(queue: Any) -> None:
    sent = queue.send({"n": 1}, key="k", headers={"h": "v"})
    (seen,) = queue.peek()
    assert (seen.id, seen.body, seen.key, seen.headers) == (sent.id, {"n": 1}, "k", {"h": "v"})
    assert (seen.shard, seen.offset) == (sent.shard, sent.offset)
    assert seen.sent_at.tzinfo is not None


def test_tail_follows_what_is_sent_and_claims_nothing(world: World, queue: Any) -> None:
    queue.send("before")
    positions = queue.tails()
    assert positions == {0: 1}
    assert queue.tail(positions) == []
    queue.send_many([*"ab"])
    queue.send("c")
    seen = [*queue.tail(positions), *queue.tail(positions)]
    assert [message.body for message in seen] == ["a", "b", "c"]
    assert positions == {0: 4}
    assert queue.tail(positions) == []
    assert world.keys("heads/") == []


def test_tail_from_the_beginning_reads_everything(bucket: Any) -> None:
    queue = bucket.queue("jobs", shards=3)
    for n in range(9):
        queue.send(n)
    positions: dict[int, int] = {}
    seen = []
    while found := queue.tail(positions):
        seen += [message.body for message in found]
    assert sorted(seen) == list(range(9))


def test_purge_forgets_what_this_subscription_has_not_settled(world: World, queue: Any) -> None:
    audit = queue.subscription("audit")
    queue.send_many(range(10))
    held = queue.receive(3)
    held[0].ack(wait=True)
    held[1].retry(delay_seconds=100, wait=True)
    assert queue.purge() == 9
    assert {each.name: each.depth for each in queue.stats().subscriptions} == {"audit": 10, "main": 0}
    assert drain(queue) == []
    assert drain(audit) == list(range(10))
    queue.send("after")
    assert drain(queue) == ["after"]


@pytest.mark.parametrize("knows_the_log", [False, True])
def test_purging_a_subscription_that_is_ahead_of_its_log_is_refused(
    world: World, queue: Any, knows_the_log: bool
) -> None:
    queue.settings()
    if knows_the_log:
        queue.tails()
    world.store.create(world.key("heads/main/0.json"), documents.encode(Head(3, 3, version=1)))
    before = world.everything()
    with pytest.raises(Corrupt, match=r"at offset 3, but .* log ends at 0"):
        queue.purge()
    assert world.everything() == before


def test_purge_of_an_empty_queue_is_zero(queue: Any) -> None:
    assert queue.purge() == 0


def test_queues_are_listed_by_name_without_their_dead_letters(world: World, bucket: Any) -> None:
    assert bucket.queues() == []
    for name in ("b", "a", "a.b", "a-b"):
        bucket.queue(name).send("x")
    bucket.queue("a").receive(1)[0].bury(wait=True)
    assert world.connect().queues() == ["a", "a-b", "a.b", "b"]


def test_peek_goes_on_behind_what_was_seen(bucket: Any) -> None:
    queue = bucket.queue("jobs", shards=2)
    for start in range(0, 40, 4):
        queue.send_many(range(start, start + 4), key=str)
    first, second, *_ = queue.receive(6)
    first.retry(delay_seconds=100, wait=True)
    second.ack(wait=True)
    whole = [seen.body for seen in queue.peek(1000)]
    paged: list[Any] = []
    after = None
    while page := queue.peek(7, after=after):
        paged += [seen.body for seen in page]
        after = page[-1].place
    assert paged == whole and len(whole) == 39
