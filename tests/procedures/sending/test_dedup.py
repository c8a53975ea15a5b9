"""Idempotent sends: one message for a key, whoever repeats, dies or races."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import msgspec
import pytest

import bucketmq
from bucketmq.procedures.sending.dedup import ENTRIES_MAX
from bucketmq.queue.routing import digits_of
from bucketmq.queue.settings import FORMAT
from procedures.world import Killed, World, drain


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
    sent = blocking.connect().queue("jobs", **options).send("a", dedup_key="d")
    again = blocking.connect().queue("jobs", **options).send("a", dedup_key="d")
    assert (again.id, again.duplicate) == (sent.id, True)
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
    sent: list[Any] = []

    def race(n: int) -> None:
        start.wait()
        sent.append(queues[n % 4].send("a", dedup_key="d"))

    threads = [threading.Thread(target=race, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({each.id for each in sent}) == 1
    assert sum(not each.duplicate for each in sent) == 1
    assert drain(queues[0]) == ["a"]


# Registers that are full split


def keys_of(digits: str, count: int) -> list[str]:
    """Deduplication keys whose hash goes on with these digits after the first, which decides nothing: the slot, and
    then two for each register below it."""
    found = (f"k{number}" for number in itertools.count() if digits_of(f"k{number}").startswith(digits, 1))
    return list(itertools.islice(found, count))


def fill(world: World, keys: list[str]) -> None:
    """Write the register of slot 0 with these keys in it, as if others had entered them a moment ago."""
    sent = {digits_of(key): [f"id-{place}", world.now(), 0, 0] for place, key in enumerate(keys)}
    world.store.create(
        world.key("dedup/0.json"), msgspec.json.encode({"version": 7, "sent": sent, "format": 1}) + b"\n"
    )


FULL = keys_of("0", ENTRIES_MAX + 8)
"""Keys of slot 0, more than one register holds."""


def test_a_full_register_splits_and_every_key_still_counts(world: World, queue: Any) -> None:
    first = {key: queue.send(key, dedup_key=key).id for key in FULL}
    assert world.json(world.key("dedup/0.json"))["split"] is True
    below = world.keys("dedup/0-")
    assert 1 <= len(below) <= 8
    for sender in (queue, world.connect().queue("jobs")):
        for key in FULL:
            again = sender.send("again", dedup_key=key)
            assert (again.id, again.duplicate) == (first[key], True)
    assert sorted(drain(queue)) == sorted(FULL)


def test_a_register_below_another_splits_too(world: World, queue: Any) -> None:
    crowd = keys_of("000", ENTRIES_MAX * 2 + 4)  # slot 0, then 00
    for key in crowd:
        assert not queue.send(key, dedup_key=key).duplicate
    assert world.json(world.key("dedup/0-00.json"))["split"] is True
    assert all(key.startswith(world.key("dedup/0-00")) for key in world.keys("dedup/0-"))
    assert all(world.connect().queue("jobs").send("again", dedup_key=key).duplicate for key in crowd[::7])
    assert sorted(drain(queue)) == sorted(crowd)


def test_what_a_split_register_holds_counts_until_the_window_has_passed(world: World, bucket: Any) -> None:
    queue = bucket.queue("jobs", dedup_seconds=60)
    for key in FULL:
        queue.send("first", dedup_key=key)
    world.advance(55)
    assert queue.send("x", dedup_key=FULL[0]).duplicate
    assert world.connect().queue("jobs").send("x", dedup_key=FULL[0]).duplicate
    world.advance(6)
    assert not queue.send("second", dedup_key=FULL[0]).duplicate
    assert queue.send("third", dedup_key=FULL[0]).duplicate
    assert world.connect().queue("jobs").send("third", dedup_key=FULL[0]).duplicate
    assert drain(queue) == ["first"] * len(FULL) + ["second"]


def test_a_split_register_whose_keys_have_left_the_window_is_emptied_and_stays_split(world: World, bucket: Any) -> None:
    queue = bucket.queue("jobs", dedup_seconds=60)
    for key in FULL:
        queue.send("first", dedup_key=key)
    world.advance(61)
    world.connect().queue("jobs").send("second", dedup_key=FULL[0])
    assert world.json(world.key("dedup/0.json")) == {"version": 34, "sent": {}, "format": 2, "split": True}
    assert queue.send("third", dedup_key=FULL[0]).duplicate


def test_an_old_register_of_thousands_of_keys_counts_and_gets_no_more(world: World) -> None:
    queue = world.connect().queue("jobs")
    sent = queue.send("first", dedup_key=FULL[0])
    (register,) = world.keys("dedup/")
    grown = world.json(register)
    grown["sent"] |= {f"00{number:022x}": ["other", world.now(), 0, 0] for number in range(5_000)}
    world.overwrite(register, msgspec.json.encode(grown) + b"\n")
    again = world.connect().queue("jobs").send("again", dedup_key=FULL[0])
    assert (again.id, again.duplicate) == (sent.id, True)
    assert len(world.json(register)["sent"]) == 5_001
    assert not queue.send("second", dedup_key=FULL[1]).duplicate
    assert world.json(register)["split"] is True
    assert world.connect().queue("jobs").send("again", dedup_key=FULL[0]).duplicate
    assert world.connect().queue("jobs").send("again", dedup_key=FULL[1]).duplicate
    assert drain(queue) == ["first", "second"]


def test_until_it_splits_a_register_is_what_older_releases_write_and_then_it_has_a_format_they_refuse(
    world: World, queue: Any
) -> None:
    for key in FULL[:ENTRIES_MAX]:
        queue.send("x", dedup_key=key)
        assert world.json(world.key("dedup/0.json")).keys() == {"version", "sent", "format"}
        assert world.json(world.key("dedup/0.json"))["format"] == FORMAT
    queue.send("x", dedup_key=FULL[ENTRIES_MAX])
    assert world.json(world.key("dedup/0.json"))["format"] == FORMAT + 1


def requests_of_a_split() -> int:
    world = World()
    fill(world, FULL[1 : ENTRIES_MAX + 1])
    bucket = world.connect()
    before = bucket.requests
    bucket.queue("jobs").send("a", dedup_key=FULL[0])
    made = bucket.requests - before
    world.close()
    return made.get + made.create + made.replace + made.list


@pytest.mark.parametrize("taken", [False, True], ids=["", "its place is taken"])
@pytest.mark.parametrize("lives", range(1, requests_of_a_split() + 1))
def test_a_sender_that_dies_while_it_splits_a_register_and_its_repetition_send_one_message(
    blocking: World, lives: int, taken: bool
) -> None:
    fill(blocking, FULL[1 : ENTRIES_MAX + 1])
    with pytest.raises(Killed):
        blocking.mortal(lives).queue("jobs").send("a", dedup_key=FULL[0])
    if taken:
        blocking.connect().queue("jobs").send("plain")
    sent = blocking.connect().queue("jobs").send("a", dedup_key=FULL[0])
    again = blocking.connect().queue("jobs").send("a", dedup_key=FULL[0])
    assert (again.id, again.duplicate) == (sent.id, True)
    assert sorted(drain(blocking.connect().queue("jobs"))) == ["a", *["plain"] * taken]


def test_a_key_that_was_entered_before_a_split_and_lost_its_place_is_sent_once(blocking: World) -> None:
    fill(blocking, FULL[2 : ENTRIES_MAX + 1])
    lives = 0
    while digits_of(FULL[0]) not in blocking.json(blocking.key("dedup/0.json"))["sent"]:
        lives += 1
        with pytest.raises(Killed):
            blocking.mortal(lives).queue("jobs").send("a", dedup_key=FULL[0])
    assert blocking.keys("log/") == []
    sender = blocking.connect().queue("jobs")
    sender.send("b", dedup_key=FULL[1])  # takes its place, and splits the register
    assert blocking.json(blocking.key("dedup/0.json"))["split"] is True
    sent = sender.send("a", dedup_key=FULL[0])
    again = blocking.connect().queue("jobs").send("a", dedup_key=FULL[0])
    assert sent.duplicate  # the key stands for the message of the one that died
    assert (again.id, again.offset) == (sent.id, sent.offset)
    assert drain(sender) == ["b", "a"]


def test_threads_that_race_with_many_keys_of_one_register_send_each_once(blocking: World) -> None:
    queues = [blocking.connect().queue("jobs") for _ in range(4)]
    queues[0].settings()
    start = threading.Barrier(8)
    fresh: list[str] = []

    def race(n: int) -> None:
        start.wait()
        for key in FULL[n % 4 :: 4]:
            if not queues[n // 2].send(key, dedup_key=key).duplicate:
                fresh.append(key)

    threads = [threading.Thread(target=race, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(fresh) == sorted(FULL)
    assert sorted(drain(queues[0])) == sorted(FULL)


def test_a_shorter_window_counts_from_the_next_send_on(world: World, bucket: Any) -> None:
    queue = bucket.queue("jobs", dedup_seconds=600)
    for key in FULL:
        queue.send("first", dedup_key=key)
    world.advance(61)
    assert queue.send("x", dedup_key=FULL[0]).duplicate
    shorter = world.connect().queue("jobs", dedup_seconds=60)
    assert not shorter.send("second", dedup_key=FULL[0]).duplicate
    assert queue.send("x", dedup_key=FULL[0]).duplicate
