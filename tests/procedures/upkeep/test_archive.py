"""The register of an archive: one intent at a time, watermarks that only grow, whatever a request comes to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bucketmq
from bucketmq.procedures.queues import open_queue
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.upkeep.archive import Archive, Intent, begin, finish, intend, read_archive, release
from procedures.objects.world import DEATHS, FAULTS, Killed, World


def on(bucket: Any, step: Any, *args: Any) -> Archive:
    def run() -> Procedure[Archive]:
        queue = yield from open_queue((yield from bucket.api.open()), "jobs", {})
        return (yield from step(queue, *args))

    return bucket.run(run())


def to(end: int) -> Intent:
    return Intent({0: end}, ("main",), 1000, {"main": {0: ((end - 1, end),)}})


def archive_up_to(bucket: Any, end: int) -> Archive:
    """What an archiver does, but for the files: what was left is finished first."""
    archive = on(bucket, begin)
    while archive.watermark[0] < end:
        archive = on(bucket, intend, to(end))
        assert archive.intent is not None
        archive = on(bucket, finish, archive.intent, {}, {})
    return archive


def test_what_is_intended_first_is_finished_first(memory: World) -> None:
    bucket = memory.connect()
    assert on(bucket, read_archive) == Archive()
    assert on(bucket, begin).holds
    first = on(bucket, intend, to(10))
    rival = on(bucket, intend, to(7))
    assert first.intent == rival.intent == to(10)
    assert on(bucket, finish, to(7), {}, {}).watermark == {0: 0}  # nobody's intent
    assert on(bucket, finish, to(10), {0: ((2, 4),)}, {0: ((2, 3),)}).watermark == {0: 10}
    assert on(bucket, finish, to(10), {0: ((2, 4),)}, {}).skipped == {0: ((2, 4),)}  # once
    assert on(bucket, intend, to(9)).intent is None  # nothing to do


def test_a_register_that_was_released_holds_again_when_it_is_begun(memory: World) -> None:
    bucket = memory.connect()
    archive_up_to(bucket, 5)
    assert not on(bucket, begin).lets_go(0, 6)
    assert on(bucket, release).lets_go(0, 6)
    again = on(bucket, begin)
    assert (again.lets_go(0, 5), again.lets_go(0, 6), again.lets_go(1, 1)) == (True, False, False)
    assert again.watermark == {0: 5}


@pytest.mark.parametrize("kind", ["copying", "hashing"])
def test_an_archiver_that_dies_or_is_answered_badly_anywhere_is_followed_by_one_that_goes_on(
    kind: str, tmp_path: Path
) -> None:
    for at in range(100):
        hit = False
        for fault in (*FAULTS, *DEATHS):
            world = World(kind, tmp_path)
            archive_up_to(world.connect(), 5)
            bucket = world.connect(at=at, fault=fault)
            try:
                archive_up_to(bucket, 10)
            except (Killed, bucketmq.Unavailable):
                pass
            hit = hit or bucket.hands.hit
            done = archive_up_to(world.connect(), 20)
            assert (done.watermark, done.since, done.intent) == ({0: 20}, {0: 0}, None), (at, fault)
            world.close()
        if not hit:
            assert at > 5
            return
    raise AssertionError("it never got through")
