"""Reports of programs: bounded, several writers, faults, and processes that were forgotten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bucketmq.log import documents
from bucketmq.log.reports import PROCESSES_MAX, Done, Process, Report, Spent, key_of, noted
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.upkeep import reports
from procedures.test_faults import FlakyStore
from procedures.world import World

NOW = 1_790_000_000.0
EMPTY = Report("pipeline", "classify", "posts")


def process(rows: int, at: float = NOW, **more: Any) -> Process:
    return Process("host:1", NOW, at, Done(rows=rows, batches=1, spent=Spent(rows, 2 * rows, 1)), **more)


@pytest.fixture
def bucket(blocking: World) -> Any:
    return blocking.connect()


def run(bucket: Any, work: Callable[[Any], Procedure[Any]]) -> Any:
    def opened() -> Procedure[Any]:
        return (yield from work((yield from bucket.api.open())))

    return bucket.run(opened())


def note(bucket: Any, process_id: str, done: Process, *, listed: bool = False) -> bool:
    found: bool = run(bucket, lambda opened: reports.note(opened, EMPTY, process_id, done, listed=listed))
    return found


def read(bucket: Any, known: reports.Known | None = None) -> reports.Known:
    found: reports.Known = run(bucket, lambda opened: reports.read_all(opened, known or {}))
    return found


def only(bucket: Any) -> Report:
    ((_, _, report),) = read(bucket).values()
    return report


def test_processes_of_one_program_add_up(bucket: Any) -> None:
    for process_id, rows in (("a", 5), ("b", 7), ("a", 6)):
        note(bucket, process_id, process(rows))
    report = only(bucket)
    assert (report.kind, report.name, report.queue, report.began) == ("pipeline", "classify", "posts", NOW)
    assert (report.done.rows, report.done.spent) == (13, Spent(13, 26, 2))


def test_a_program_that_is_started_ten_thousand_times_has_one_small_report() -> None:
    report = EMPTY
    for number in range(10_000):
        report = noted(report, f"p{number}", process(1, NOW + number))
    assert len(report.processes) == PROCESSES_MAX and report.done.rows == 10_000
    assert len(documents.encode(report)) < 4_000


def test_noting_the_same_again_changes_nothing() -> None:
    report = noted(noted(EMPTY, "a", process(1)), "b", process(2))
    assert noted(report, "b", process(2)) == report


def test_one_that_was_forgotten_is_told_so_and_writes_nothing(bucket: Any) -> None:
    note(bucket, "old", process(3, NOW))
    for number in range(PROCESSES_MAX):
        note(bucket, f"p{number}", process(1, NOW + 1 + number))
    before = only(bucket)
    assert "old" not in before.processes and before.done.rows == 3 + PROCESSES_MAX
    assert note(bucket, "old", process(4, NOW + 100), listed=True) is False
    assert only(bucket) == before


@pytest.mark.parametrize("seed", range(4))
def test_lost_replies_and_refusals_count_nothing_twice(seed: int) -> None:
    world = World(store=FlakyStore(seed, 0.3))
    try:
        bucket = world.connect()
        for step in range(1, 6):
            for process_id in ("a", "b"):
                note(bucket, process_id, process(step))
        assert only(bucket).done.rows == 10
    finally:
        world.close()


def test_a_damaged_report_is_begun_anew_and_hides_no_other(bucket: Any, blocking: World) -> None:
    note(bucket, "a", process(1))
    key = next(key for key in blocking.everything() if key.endswith(key_of("", "pipeline", "classify")))
    blocking.overwrite(key, b"{not json")
    assert read(bucket) == {}
    note(bucket, "a", process(2))
    assert only(bucket).done.rows == 2


def test_only_reports_that_changed_are_read_again(bucket: Any) -> None:
    for name in ("one", "two", "three"):
        empty = Report("worker", name)
        run(bucket, lambda opened, empty=empty: reports.note(opened, empty, "a", process(1), listed=False))
    before = bucket.requests
    known = read(bucket)
    assert ((bucket.requests - before).list, (bucket.requests - before).get) == (1, 3)
    run(bucket, lambda opened: reports.note(opened, Report("worker", "two"), "b", process(5), listed=False))
    before = bucket.requests
    assert sum(report.done.rows for _, _, report in read(bucket, known).values()) == 8
    assert ((bucket.requests - before).list, (bucket.requests - before).get) == (1, 1)
