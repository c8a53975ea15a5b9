"""Figures over time: bounded rings, several writers, gaps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bucketmq.log import documents
from bucketmq.log.figures import ALL, HOURS, MINUTES, QUEUES_MAX, Sample, Stretch, added, fresh, rolled, summed
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.upkeep import figures
from procedures.world import World

NOW = 1_790_000_000.0
HOUR = 3600


def sample(ready: int = 0, sent: int = 0, **more: Any) -> Sample:
    return Sample(
        **{"ready": ready, "in_flight": 0, "delayed": 0, "dead": 0, "oldest_ready_seconds": 0.0, "sent": sent, **more}
    )


@pytest.fixture
def bucket(blocking: World) -> Any:
    return blocking.connect()


def run(bucket: Any, work: Callable[[Any], Procedure[Any]]) -> Any:
    def opened() -> Procedure[Any]:
        return (yield from work((yield from bucket.api.open())))

    return bucket.run(opened())


def note(bucket: Any, at: float, ready: int) -> Stretch:
    found: Stretch = run(bucket, lambda opened: figures.note(opened, MINUTES, at, summed({"jobs": sample(ready)})))
    return found


def test_of_two_writers_in_one_minute_the_first_counts(bucket: Any) -> None:
    note(bucket, NOW, 1)
    assert note(bucket, NOW + 5, 2).samples[MINUTES.slot(NOW)]["jobs"].ready == 1
    found = note(bucket, NOW + 60, 3)
    assert [each["jobs"].ready for each in found.samples.values()] == [1, 3]


def test_a_year_of_samples_is_a_bounded_number_of_small_documents(bucket: Any, blocking: World) -> None:
    for hour in range(0, 365 * 24, 5):
        at = NOW + hour * HOUR
        note(bucket, at, hour)
        run(bucket, lambda opened, at=at: figures.roll_up(opened, at + HOUR))
    keys = [key for key in blocking.everything() if "/bucketmq/" in key]
    assert len(keys) <= MINUTES.count + HOURS.count


def test_a_document_is_small_however_many_queues_there_are() -> None:
    many = summed({f"queue-{number:04}-with-a-long-name-{'x' * 40}": sample(number, number) for number in range(2_000)})
    stretch = fresh(MINUTES, NOW)
    start = MINUTES.start(NOW)
    for slot in range(60):
        stretch = added(stretch, MINUTES, start + 60 * slot, many)
    assert len(stretch.samples) == 60 and {len(each) for each in stretch.samples.values()} == {QUEUES_MAX + 1}
    assert stretch.samples[0][ALL].ready == sum(range(2_000)), "the sum has all of them"
    assert len(documents.encode(stretch)) < 256 << 10


def test_a_writer_whose_clock_is_behind_destroys_nothing() -> None:
    stretch = added(fresh(MINUTES, NOW), MINUTES, NOW, {ALL: sample(7)})
    late = NOW - MINUTES.count * HOUR
    assert MINUTES.key("", late) == MINUTES.key("", NOW)
    assert added(stretch, MINUTES, late, {ALL: sample(1)}) == stretch
    again = added(stretch, MINUTES, NOW + MINUTES.count * HOUR, {ALL: sample(2)})
    assert [each[ALL].ready for each in again.samples.values()] == [2], "the last time round is gone"


def test_an_hour_is_rolled_up_once_and_hours_that_were_missed_are_made_up_for(bucket: Any) -> None:
    start = MINUTES.start(NOW) + 12 * HOUR
    for back in (1, 2, 5):
        for minute, ready in ((0, 3), (30, 9), (59, 4)):
            note(bucket, start - back * HOUR + 60 * minute, ready + back)
    assert run(bucket, lambda opened: figures.roll_up(opened, start)) == 3
    before = bucket.requests
    assert run(bucket, lambda opened: figures.roll_up(opened, start)) == 0
    assert (bucket.requests - before).get == 1
    found = run(bucket, lambda opened: figures.read(opened, HOURS, start - HOUR))
    assert found.samples[HOURS.slot(start - HOUR)]["jobs"].ready == 10, "the most there was"


def test_rolling_up_keeps_the_most_of_each() -> None:
    stretch = Stretch(0, 60, {0: {ALL: sample(3, sent=5, dead=1)}, 1: {ALL: sample(1, sent=9), "jobs": sample(4)}})
    assert rolled(stretch) == {ALL: sample(3, sent=9, dead=1), "jobs": sample(4)}


def test_a_sample_costs_a_get_and_a_put(bucket: Any) -> None:
    note(bucket, NOW, 1)
    before = bucket.requests
    note(bucket, NOW + 60, 1)
    used = bucket.requests - before
    assert (used.get, used.replace, used.create, used.list) == (1, 1, 0, 0)


def test_what_cannot_be_read_is_a_gap(bucket: Any, blocking: World) -> None:
    note(bucket, NOW, 1)
    key = next(key for key in blocking.everything() if "/bucketmq/" in key)
    found = blocking.store.get(key)
    blocking.store.replace(key, b"{not json", found.version)  # type: ignore[union-attr]
    assert run(bucket, lambda opened: figures.read(opened, MINUTES, NOW)) is None
