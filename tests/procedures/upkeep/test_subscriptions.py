"""Removing a subscription: it is gone, trimming forgets it, and nothing else changes, whatever fails on the way."""

from __future__ import annotations

from typing import Any

import pytest

from bucketmq.errors import Invalid, NotFound, Unavailable
from bucketmq.procedures.requests import Remove, StoreRequest
from bucketmq.procedures.segments.tail import TRIM_GUARD_SECONDS
from procedures.objects.world import DEATHS, FAULTS, Killed, World
from procedures.world import drain

LONG = TRIM_GUARD_SECONDS + 400


def remove(bucket: Any, name: str, *, queue: str = "jobs", force: bool = False) -> int:
    removed: int = bucket.existing_queue(queue).remove_subscription(name, force=force)
    return removed


def listed(bucket: Any) -> list[str]:
    return [each.name for each in bucket.existing_queue("jobs").subscriptions()]


def heads(world: World) -> list[str]:
    prefix = "queues/jobs/heads/"
    return [key.removeprefix(prefix) for key in world.everything() if key.startswith(prefix)]


@pytest.fixture
def bucket(memory: World) -> Any:
    """A queue of three shards whose messages `main` has settled and `typo` has not."""
    made = memory.connect()
    queue = made.queue("jobs", shards=3, keep_seconds=0)
    queue.subscription("typo")
    for n in range(9):
        queue.send(n)
    drain(queue)
    return made


def test_a_removed_subscription_keeps_nothing_any_more(memory: World, bucket: Any) -> None:
    memory.advance(LONG)
    assert bucket.queue("jobs").trim().segments == 0
    assert listed(bucket) == ["main", "typo"]
    assert remove(bucket, "typo") == 3
    assert listed(bucket) == ["main"]
    assert heads(memory) == ["main/0.json", "main/1.json", "main/2.json"]
    assert bucket.queue("jobs").trim().segments == 6  # all but the last of each shard


def test_the_asyncio_facade_has_the_same_verbs(memory: World, bucket: Any) -> None:
    queue = memory.connect_async().existing_queue("jobs")
    assert [each.name for each in queue.subscriptions()] == ["main", "typo"]
    assert queue.remove_subscription("typo") == 3


def test_what_is_removed_may_be_made_again_from_where_its_maker_says(bucket: Any) -> None:
    remove(bucket, "typo")
    again = bucket.queue("jobs").subscription("typo", start="latest")
    bucket.queue("jobs").send("new")
    assert drain(again) == ["new"]


def test_messages_in_flight_refuse_it_and_leave_all_of_it(memory: World, bucket: Any) -> None:
    bucket.queue("jobs").subscription("typo").receive(1, lease_seconds=30)
    before = memory.everything()
    with pytest.raises(Invalid, match=r"'typo' of queue 'jobs' has 1 message in flight.*force"):
        remove(memory.connect(), "typo")
    assert memory.everything() == before
    memory.advance(31)
    assert remove(memory.connect(), "typo") == 3


def test_a_forced_removal_takes_what_is_in_flight_with_it(memory: World, bucket: Any) -> None:
    bucket.queue("jobs").subscription("typo").receive(1)
    assert remove(memory.connect(), "typo", force=True) == 3
    assert listed(memory.connect()) == ["main"]


def test_a_claim_between_the_look_and_the_removal_is_noticed(memory: World, bucket: Any) -> None:
    """Found out by the condition of the removal, not by looking twice."""
    slow, claimed = memory.connect(), []

    def meddle(_number: int, request: StoreRequest) -> None:
        if isinstance(request, Remove) and not claimed:
            claimed.extend(bucket.queue("jobs").subscription("typo").receive(9, lease_seconds=30))

    slow.hands.meddle = meddle
    with pytest.raises(Invalid, match="in flight"):
        remove(slow, "typo")
    assert claimed
    claimed[0].ack(wait=True)  # the lease that was given stands


def test_a_subscription_that_is_not_there_is_not_found(bucket: Any) -> None:
    with pytest.raises(NotFound, match=r"no subscription 'tpyo'; there are: main, typo"):
        remove(bucket, "tpyo")


def test_main_is_removed_only_from_a_queue_without_it(memory: World, bucket: Any) -> None:
    before = memory.everything()
    with pytest.raises(Invalid, match=r"bucketmq purge jobs.*--no-main"):
        remove(bucket, "main")
    assert memory.everything() == before
    bucket.queue("jobs", main=False).settings()
    assert remove(bucket, "main") == 3


def test_the_subscription_of_a_rule_goes_with_its_rule(memory: World) -> None:
    bucket = memory.connect()
    rule = bucket.rules.add("inbox", to="queue:inbox")
    with pytest.raises(Invalid, match="bucketmq rules rm inbox"):
        remove(bucket, rule.subscription, queue="events", force=True)


@pytest.mark.parametrize("fault", [*FAULTS, *DEATHS])
@pytest.mark.parametrize("at", range(12))
def test_whatever_fails_on_the_way_removing_again_finishes(memory: World, bucket: Any, at: int, fault: str) -> None:
    troubled = memory.connect(at=at, fault=fault)
    try:
        assert remove(troubled, "typo") == 3
    except (Killed, Unavailable):
        memory.advance(1)
        if listed(memory.connect()) != ["main"]:
            assert remove(memory.connect(), "typo") > 0
    assert listed(memory.connect()) == ["main"]
    assert len(heads(memory)) == 3
    assert drain(memory.connect().queue("jobs")) == []


def test_removing_costs_two_reads_and_a_delete_for_each_shard(memory: World, bucket: Any) -> None:
    fresh = memory.connect()
    fresh.existing_queue("jobs").settings()
    before = fresh.requests
    remove(fresh, "typo")
    made = fresh.requests - before
    assert (made.list, made.get, made.remove, made.writes) == (1, 6, 3, 0)
