"""Dead letters: how messages get there, what they tell, and how they come back."""

from __future__ import annotations

from typing import Any

import pytest

import bucketmq
from procedures.world import Killed, World, drain


def die(queue: Any, body: Any = "x", reason: str = "no") -> str:
    """Send a message and bury it; its id."""
    sent: str = queue.send(body).id
    queue.receive(1)[0].bury(reason, wait=True)
    return sent


def test_a_message_out_of_attempts_is_dead_with_every_failure(world: World, bucket: Any) -> None:
    queue = bucket.queue("jobs", attempts_max=3)
    sent = queue.send("x", key="k", headers={"h": "v"})
    for n in (1, 2, 3):
        queue.receive(1, wait_seconds=5)[0].retry(f"failure {n}", delay_seconds=0, wait=True)
    assert not queue.receive(1)
    (letter,) = queue.dead_letters.peek()
    assert (letter.id, letter.body, letter.key, letter.headers) == (sent.id, "x", "k", {"h": "v"})
    assert [(failure["attempt"], failure["error"]) for failure in letter.failures] == [
        (1, "failure 1"),
        (2, "failure 2"),
        (3, "failure 3"),
    ]
    assert all(failure["at"] and failure["holder"] for failure in letter.failures)
    assert letter.reason == "failure 3"
    assert letter.message.died.attempts == 3
    assert (letter.message.died.shard, letter.message.died.offset) == (0, 0)


def test_a_traceback_is_kept_whole_and_its_last_line_is_the_reason(blocking: World) -> None:
    queue = blocking.connect().queue("jobs", attempts_max=1)
    queue.send("x")

    def fails(delivery: Any) -> None:
        raise KeyError(f"no such thing as {delivery.body}")

    queue.run(fails, stop_when_empty=True)
    (letter,) = queue.dead_letters.peek()
    (failure,) = letter.failures
    assert failure["error"].startswith("Traceback (most recent call last)")
    assert "in fails" in failure["error"]
    assert letter.reason == "KeyError: 'no such thing as x'"


def test_failures_of_a_batch_go_to_the_right_messages(world: World, bucket: Any) -> None:
    queue = bucket.queue("jobs", attempts_max=2)
    queue.send_many([*"abc"])
    for attempt in (1, 2):
        for delivery in queue.receive(3, wait_seconds=5):
            delivery.retry(f"{delivery.body}{attempt}", delay_seconds=0)
        queue.flush()
    letters = queue.dead_letters.peek()
    assert {letter.body: [failure["error"] for failure in letter.failures] for letter in letters} == {
        body: [f"{body}1", f"{body}2"] for body in "abc"
    }


def test_peek_touches_nothing(world: World, queue: Any) -> None:
    for n in range(5):
        die(queue, n)
    before = world.everything()
    assert [letter.body for letter in queue.dead_letters.peek(3)] == [0, 1, 2]
    assert [letter.body for letter in queue.dead_letters.peek(100)] == [0, 1, 2, 3, 4]
    assert world.everything() == before


def test_there_are_none_in_a_new_queue(queue: Any) -> None:
    assert queue.dead_letters.peek() == []
    assert queue.dead_letters.redrive() == bucketmq.Redriven(0, 0)
    assert queue.dead_letters.purge() == 0


def test_redrive_all(queue: Any) -> None:
    ids = {die(queue, n) for n in range(5)}
    assert queue.dead_letters.redrive() == bucketmq.Redriven(5, 5)
    assert queue.dead_letters.peek() == []
    assert queue.stats().dead == 0
    batch = queue.receive(10)
    assert {delivery.id for delivery in batch} == ids
    assert {delivery.attempt for delivery in batch} == {1}


def test_redrive_by_id(queue: Any) -> None:
    ids = [die(queue, n) for n in range(5)]
    assert queue.dead_letters.redrive(ids=[ids[1], ids[3], "unknown"]) == bucketmq.Redriven(2, 2)
    assert sorted(drain(queue)) == [1, 3]
    assert [letter.body for letter in queue.dead_letters.peek()] == [0, 2, 4]


def test_redrive_by_filter(queue: Any) -> None:
    for n in range(6):
        die(queue, n, reason="timeout" if n % 2 else "bad input")
    redriven = queue.dead_letters.redrive(where=lambda letter: letter.reason == "timeout")
    assert redriven == bucketmq.Redriven(3, 3)
    assert sorted(drain(queue)) == [1, 3, 5]
    assert queue.stats().dead == 3


def test_all_that_match_are_found_behind_more_letters_than_a_head_can_list(blocking: World) -> None:
    queue = blocking.connect().queue("jobs")
    large, count = "x" * 70_000, 2_500  # every second one matches: the others are more spans than a head may list
    queue.send_many([{"n": n, "text": large if n == 0 else ""} for n in range(count)])
    while batch := queue.receive(1_000):
        for delivery in batch:
            delivery.bury("disk is full" if delivery.body["n"] % 2 else "no such user")
        queue.flush()
    assert queue.dead_letters.redrive(where=lambda letter: "disk" in letter.reason) == bucketmq.Redriven(1_250, 1_250)
    left = queue.dead_letters.peek(count)
    assert sorted(letter.body["n"] for letter in left if letter.body is not None) == list(range(2, count, 2))
    assert {(letter.reason, letter.message.died.attempts) for letter in left} == {("no such user", 1)}
    assert queue.dead_letters.delete(where=lambda letter: letter.body is not None and letter.body["n"] % 4 == 2) == 625
    assert queue.dead_letters.redrive().redriven == 625
    assert sorted(body["n"] for body in drain(queue)) == sorted([*range(1, count, 2), *range(0, count, 4)])
    assert queue.stats().dead == 0


def test_redrive_up_to_a_limit(queue: Any) -> None:
    for n in range(5):
        die(queue, n)
    assert queue.dead_letters.redrive(limit=2) == bucketmq.Redriven(2, 2)
    assert drain(queue) == [0, 1]
    assert queue.dead_letters.redrive() == bucketmq.Redriven(3, 3)


def test_a_dry_run_says_how_many_and_changes_nothing(world: World, queue: Any) -> None:
    for n in range(5):
        die(queue, n)
    before = world.everything()
    assert queue.dead_letters.redrive(dry_run=True) == bucketmq.Redriven(5, 0)
    assert queue.dead_letters.redrive(where=lambda letter: letter.body > 2, dry_run=True) == bucketmq.Redriven(2, 0)
    assert world.everything() == before


def test_letters_that_do_not_match_can_be_redriven_at_once_and_burn_no_attempts(queue: Any) -> None:
    for n in range(3):
        die(queue, n)
    for _ in range(5):
        assert queue.dead_letters.redrive(ids=["nobody"]).redriven == 0
    assert queue.dead_letters.redrive().redriven == 3


def test_a_redriven_message_goes_only_to_the_subscription_it_died_in(queue: Any) -> None:
    audit, other = queue.subscription("audit"), queue.subscription("other")
    queue.send("x")
    assert drain(queue) == ["x"]
    assert drain(other) == ["x"]
    audit.receive(1)[0].bury("no", wait=True)
    (letter,) = queue.dead_letters.peek()
    assert letter.subscription == "audit"
    assert queue.dead_letters.redrive().redriven == 1
    assert not queue.receive(10)
    assert not other.receive(10)
    assert drain(audit) == ["x"]
    queue.send("y")
    assert (drain(queue), drain(audit), drain(other)) == (["y"], ["y"], ["y"])


def test_a_message_can_die_again_and_again(queue: Any) -> None:
    die(queue, "x", "first")
    for n in range(3):
        assert queue.dead_letters.redrive().redriven == 1
        queue.receive(1)[0].bury(f"again {n}", wait=True)
    (letter,) = queue.dead_letters.peek()
    assert letter.reason == "again 2"
    assert [failure["error"] for failure in letter.failures] == ["first", "again 0", "again 1", "again 2"]


def test_many_letters_come_back(queue: Any) -> None:
    queue.send_many(range(450))
    while batch := queue.receive(100):
        for delivery in batch:
            delivery.bury("no")
    queue.flush()
    assert queue.stats().dead == 450
    assert queue.dead_letters.redrive() == bucketmq.Redriven(450, 450)
    assert sorted(drain(queue)) == list(range(450))


def test_purge_forgets_all(queue: Any) -> None:
    for n in range(3):
        die(queue, n)
    assert queue.dead_letters.purge() == 3
    assert queue.dead_letters.peek() == []
    assert queue.stats().dead == 0


@pytest.mark.parametrize("lives", range(1, 16))
def test_a_worker_that_dies_while_it_buries_leaves_one_letter_or_the_message(blocking: World, lives: int) -> None:
    queue = blocking.connect().queue("jobs", lease_seconds=30)
    queue.send("x")
    try:
        dying = blocking.mortal(lives).queue("jobs")
        dying.receive(1)[0].bury("no", wait=True)
    except Killed:
        pass
    blocking.advance(31)
    for delivery in queue.receive(1):
        delivery.bury("no", wait=True)
    blocking.advance(11)  # then whoever sees a move finishes it
    queue.receive(1)
    assert [letter.body for letter in queue.dead_letters.peek()] == ["x"]
    assert queue.stats().depth == 0


def test_looking_for_dead_letters_makes_no_queue(world: World, bucket: Any) -> None:
    queue = bucket.queue("jobs")
    queue.send("x")
    before = world.everything()
    assert queue.dead_letters.peek() == []
    assert queue.dead_letters.purge() == 0
    assert queue.dead_letters.redrive().matched == queue.dead_letters.redrive(dry_run=True).matched == 0
    assert world.everything() == before
    queue.receive(1)[0].bury("no", wait=True)
    assert len(queue.dead_letters.peek()) == 1
    with pytest.raises(bucketmq.NotFound, match="'nope'"):
        bucket.existing_queue("nope").dead_letters.peek()


@pytest.mark.parametrize("lives", range(1, 20))
def test_a_redrive_that_dies_loses_and_doubles_nothing(blocking: World, lives: int) -> None:
    queue = blocking.connect().queue("jobs")
    die(queue, "x")
    try:
        blocking.mortal(lives).queue("jobs").dead_letters.redrive()
    except Killed:
        pass
    blocking.advance(75)  # the dead one's lease and its unfinished moves are over
    queue.dead_letters.redrive()
    assert drain(queue) == ["x"]
    assert queue.stats().dead == 0


def test_dead_letters_are_deleted_by_id_or_by_what_they_say(world: World, queue: Any) -> None:
    ids = [die(queue, n, "disk is full" if n % 2 else "no such user") for n in range(5)]
    assert queue.dead_letters.delete(ids=[ids[0], "no-such-id"]) == 1
    assert queue.dead_letters.delete(where=lambda letter: "disk" in letter.reason) == 2
    other = world.connect().queue("jobs")
    assert [letter.body for letter in other.dead_letters.peek()] == [2, 4], "the others are as they were"
    assert other.dead_letters.redrive().redriven == 2
    with pytest.raises(bucketmq.Invalid, match="purge"):
        queue.dead_letters.delete()
    assert world.connect().queue("other").dead_letters.delete(ids=["x"]) == 0
