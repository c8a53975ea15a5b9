"""A queue's settings: given by keyword, kept in the bucket, checked before anything is written."""

from __future__ import annotations

from typing import Any

import pytest

import bucketmq
from procedures.world import World

INVALID = [
    ({"shards": 0}, "shards"),
    ({"shards": 5000}, "shards"),
    ({"shards": "two"}, "setting"),
    ({"shards": 1.5}, "setting"),
    ({"lease_seconds": 0}, "lease_seconds"),
    ({"lease_seconds": 1e9}, "lease_seconds"),
    ({"lease_seconds": float("nan")}, "."),
    ({"lease_seconds": None}, "setting"),
    ({"attempts_max": 0}, "attempts_max"),
    ({"keep_seconds": -1}, "keep_seconds"),
    ({"keep_seconds": float("inf")}, "."),
    ({"dedup_seconds": -1}, "dedup_seconds"),
    ({"expire_seconds": -1}, "expire_seconds"),
    ({"inline_bytes_max": -1}, "inline_bytes_max"),
    ({"in_flight_max": 0}, "in_flight_max"),
    ({"backoff": {"factor": 0}}, "factor"),
    ({"backoff": bucketmq.Backoff(jitter=2)}, "jitter"),
    ({"backoff": 7}, "setting"),
    ({"shard": 4}, "unknown setting 'shard'"),
    ({"format": 2}, "unknown setting 'format'"),
]


@pytest.mark.parametrize(("settings", "told"), INVALID, ids=[str(case[0]) for case in INVALID])
def test_a_setting_that_cannot_work_is_invalid_and_nothing_is_written(
    world: World, bucket: Any, settings: dict[str, Any], told: str
) -> None:
    with pytest.raises(bucketmq.Invalid, match=told):
        bucket.queue("jobs", **settings).send("x")
    assert world.everything() == {}


@pytest.mark.parametrize("name", ["", ".x", "a/b", "../x", "x" * 81, "ü", "jobs.dead", "a b", "a\n", None, 7])
def test_a_queue_name_that_cannot_be_is_invalid(world: World, bucket: Any, name: Any) -> None:
    with pytest.raises(bucketmq.Invalid, match="queue name"):
        bucket.queue(name)
    assert world.everything() == {}


def test_a_new_queue_has_the_defaults(queue: Any) -> None:
    assert queue.settings() == bucketmq.Settings()


def test_settings_are_kept_in_the_bucket_for_every_process(world: World) -> None:
    world.connect().queue("jobs", lease_seconds=7, backoff={"first_seconds": 3}).send("x")
    settings = world.connect().queue("jobs").settings()
    assert settings.lease_seconds == 7
    assert settings.backoff == bucketmq.Backoff(first_seconds=3)


def test_settings_given_later_change_only_what_they_name(world: World) -> None:
    world.connect().queue("jobs", lease_seconds=7, attempts_max=3).send("x")
    world.connect().queue("jobs", attempts_max=9).send("x")
    settings = world.connect().queue("jobs").settings()
    assert (settings.lease_seconds, settings.attempts_max) == (7, 9)


def test_settings_already_so_write_nothing(world: World) -> None:
    world.connect().queue("jobs", lease_seconds=7).settings()
    bucket = world.connect()
    before = bucket.requests
    bucket.queue("jobs", lease_seconds=7).settings()
    made = bucket.requests - before
    assert (made.get, made.writes) == (1, 0)


def test_another_process_follows_within_half_a_minute(world: World) -> None:
    worker = world.connect().queue("jobs", lease_seconds=10)
    worker.send_many([*"ab"])
    worker.receive(1)
    world.connect().queue("jobs", lease_seconds=500).settings()
    world.advance(31)
    (delivery, *_) = worker.receive(1)
    assert worker.settings().lease_seconds == 500
    assert delivery.body == "a"
    (delivery,) = worker.receive(1)
    assert abs(delivery.lease_until - world.now() - 500) < 5


def test_naming_a_queue_makes_no_request(world: World, bucket: Any) -> None:
    before = bucket.requests
    bucket.queue("jobs")
    bucket.existing_queue("other")
    assert bucket.requests == before
    assert bucket.queue("jobs").name == "jobs"


USES = ["settings", "stats", "receive", "peek", "tails", "purge", "trim", "flush"]


@pytest.mark.parametrize("use", USES)
def test_an_existing_queue_that_does_not_exist_is_not_found_and_not_made(world: World, bucket: Any, use: str) -> None:
    with pytest.raises(bucketmq.NotFound, match=r"no queue 'nope'.*init or send"):
        getattr(bucket.existing_queue("nope"), use)()
    assert world.everything() == {}


def test_sending_to_an_existing_queue_that_does_not_exist_is_not_found(world: World, bucket: Any) -> None:
    queue = bucket.existing_queue("nope")
    with pytest.raises(bucketmq.NotFound):
        queue.send("x")
    with pytest.raises(bucketmq.NotFound):
        queue.dead_letters.peek()
    assert world.everything() == {}
    bucket.queue("nope").send("made")
    assert queue.send("now it is there").offset == 1
