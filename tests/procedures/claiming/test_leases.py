"""Leases: they end by the store's clock, can be made longer, and whoever is late is told."""

from __future__ import annotations

from typing import Any

import pytest

import bucketmq
from bucketmq.procedures.claiming import claim
from procedures.world import World, drain


def test_a_lease_that_is_over_gives_the_message_to_another_with_the_next_attempt(world: World) -> None:
    first, second = world.connect().queue("jobs", lease_seconds=30), world.connect().queue("jobs")
    first.send("x")
    first.receive(1)
    world.advance(29)
    assert not second.receive(1)
    world.advance(2)
    (delivery,) = second.receive(1)
    assert (delivery.body, delivery.attempt) == ("x", 2)


def test_a_receiver_that_slept_while_another_took_its_messages_is_not_handed_them(
    blocking: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It falls asleep when its claim has landed, before it has read what it claimed."""
    first, second = blocking.connect().queue("jobs", lease_seconds=30), blocking.connect().queue("jobs")
    first.send("x")
    read, taken = claim.read_held, list[Any]()

    def sleep(*args: Any) -> Any:
        monkeypatch.setattr(claim, "read_held", read)
        blocking.advance(31)
        taken.extend(second.receive(1))
        return read(*args)

    monkeypatch.setattr(claim, "read_held", sleep)
    assert not first.receive(1)
    assert [each.attempt for each in taken] == [2]


def test_lease_seconds_can_be_given_to_receive(world: World, queue: Any) -> None:
    queue.send("x")
    (delivery,) = queue.receive(1, lease_seconds=1000)
    assert abs(delivery.lease_until - world.now() - 1000) < 5
    world.advance(900)
    assert not world.connect().queue("jobs").receive(1)


def lose(world: World, *, bodies: int = 1) -> tuple[Any, list[Any], list[Any]]:
    """A queue, deliveries whose lease is lost, and the deliveries of who has them now."""
    first, second = world.connect().queue("jobs", lease_seconds=30), world.connect().queue("jobs")
    first.send_many(range(bodies))
    late = list(first.receive(bodies))
    world.advance(31)
    taken = list(second.receive(bodies))
    assert len(taken) == bodies
    return first, late, taken


@pytest.mark.parametrize("how", ["ack", "retry", "bury", "release"])
def test_settling_too_late_with_wait_raises_and_changes_nothing(world: World, how: str) -> None:
    queue, (late,), (taken,) = lose(world)
    head = world.json(world.key("heads/main/0.json"))
    with pytest.raises(bucketmq.LeaseLost, match="lease"):
        getattr(late, how)(wait=True)
    after = world.json(world.key("heads/main/0.json"))
    assert {**after, "version": 0, "holders": {}} == {**head, "version": 0, "holders": {}}
    taken.ack(wait=True)
    assert queue.stats().depth == 0
    assert queue.stats().dead == 0


def test_settling_too_late_is_told_by_flush_once(world: World) -> None:
    queue, late, _ = lose(world, bodies=3)
    for delivery in late:
        delivery.ack()
    with pytest.raises(bucketmq.LeaseLost, match="came too late"):
        queue.flush()
    queue.flush()
    assert queue.stats().in_flight == 3


def test_a_delivery_whose_lease_is_known_to_be_lost_says_so_at_once(world: World) -> None:
    queue, (first, second), _ = lose(world, bodies=2)
    assert not first.lost
    with pytest.raises(bucketmq.LeaseLost):
        first.ack(wait=True)
    assert second.lost
    for how in ("ack", "retry", "bury", "release", "extend"):
        with pytest.raises(bucketmq.LeaseLost):
            getattr(second, how)()
    queue.receive(1)


def test_extending_too_late_raises(world: World) -> None:
    _, (late,), _ = lose(world)
    with pytest.raises(bucketmq.LeaseLost, match="raise lease_seconds"):
        late.extend()


def test_a_lease_that_is_over_but_not_taken_can_still_be_settled(world: World, queue: Any) -> None:
    queue.send("x")
    (delivery,) = queue.receive(1)
    world.advance(1000)
    delivery.ack(wait=True)
    assert not queue.receive(1)


def test_a_part_of_a_batch_that_was_settled_in_time_stays_settled(world: World) -> None:
    first, second = world.connect().queue("jobs", lease_seconds=30), world.connect().queue("jobs")
    first.send_many([*"ab"])
    a, b = first.receive(2)
    a.ack(wait=True)
    world.advance(31)
    assert [delivery.body for delivery in second.receive(2)] == ["b"]
    with pytest.raises(bucketmq.LeaseLost):
        b.ack(wait=True)


def test_extend_keeps_the_message(world: World) -> None:
    first, second = world.connect().queue("jobs", lease_seconds=30), world.connect().queue("jobs")
    first.send("x")
    (delivery,) = first.receive(1)
    for _ in range(5):
        world.advance(25)
        until = delivery.extend()
        assert abs(until - world.now() - 30) < 5
        assert delivery.lease_until == until
    assert not second.receive(1)
    world.advance(31)
    assert second.receive(1)[0].attempt == 2


def test_extend_by_a_time_of_ones_own_and_never_shorter(world: World, queue: Any) -> None:
    queue.send("x")
    (delivery,) = queue.receive(1)
    far = delivery.extend(3600)
    assert abs(far - world.now() - 3600) < 5
    assert delivery.extend(1) == far


@pytest.mark.parametrize("seconds", [-1, float("inf"), float("nan"), 1e9, "x"])
def test_extend_by_an_impossible_time_is_invalid(queue: Any, seconds: Any) -> None:
    queue.send("x")
    (delivery,) = queue.receive(1)
    with pytest.raises(bucketmq.Invalid, match="seconds"):
        delivery.extend(seconds)
    delivery.ack(wait=True)


def test_a_message_that_kills_its_worker_runs_out_of_attempts(world: World) -> None:
    queue = world.connect().queue("jobs", attempts_max=3, lease_seconds=30)
    queue.send("poison")
    for attempt in (1, 2, 3):
        (delivery,) = world.connect().queue("jobs").receive(1)
        assert delivery.attempt == attempt
        world.advance(31)
    assert not world.connect().queue("jobs").receive(1)
    (letter,) = queue.dead_letters.peek()
    assert letter.body == "poison"
    assert [failure["attempt"] for failure in letter.failures] == [1, 2, 3]
    assert all("lease expired" in failure["error"] for failure in letter.failures)
    assert len({failure["holder"] for failure in letter.failures}) == 3


def test_workers_whose_own_clocks_are_wrong_agree_on_leases(blocking: World, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    real = time.time
    first = blocking.connect().queue("jobs", lease_seconds=30)
    blocking.store._clock = lambda: real() + blocking.ahead  # the store keeps its own time
    first.send("x")
    first.receive(1)
    monkeypatch.setattr(time, "time", lambda: real() + 3600)
    second = blocking.connect()
    assert abs(second.clock_skew_seconds - 3600) < 5
    assert not second.queue("jobs").receive(1)
    assert drain(second.queue("jobs")) == []


def test_what_a_purge_leaves_of_a_lease_can_be_settled(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    queue, other = world.connect().queue("jobs"), world.connect().queue("jobs")
    queue.send("first")
    queue.receive(1)[0].ack(wait=True)
    queue.send("old")
    replace, claimed = world.store.replace, []

    def claim_first(key: str, *rest: Any) -> Any:
        if "/heads/" in key:
            monkeypatch.setattr(world.store, "replace", replace)
            queue.send("new")
            claimed.extend(queue.receive(2))
        return replace(key, *rest)

    monkeypatch.setattr(world.store, "replace", claim_first)
    other.purge()
    old, new = claimed
    with pytest.raises(bucketmq.LeaseLost, match="purged"):
        old.ack(wait=True)
    assert (old.lost, new.lost) == (True, False)
    new.ack(wait=True)
    assert queue.stats().in_flight == queue.stats().depth == 0
