"""A process reports what it does: few writes, none while idle, the end with its reason, nothing twice."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from server.running import sync_on, until

from bucketmq import Bury
from bucketmq.bucket.memory import MemoryStore
from bucketmq.bucket.port import PLAIN, Attributes, Refused, Unknown, Written
from bucketmq.client import Bucket
from bucketmq.errors import Denied
from bucketmq.log.reports import PROCESSES_MAX, Report
from bucketmq.metrics import Reporter
from bucketmq.outcomes import Done
from bucketmq.procedures.observers import Handed
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.upkeep import reports
from bucketmq.queue.message import Message


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def bucket(store: MemoryStore) -> Iterator[Bucket]:
    with sync_on(store) as opened:
        yield opened


def read(bucket: Bucket) -> list[Report]:
    def work() -> Procedure[reports.Known]:
        return (yield from reports.read_all((yield from bucket.api.open()), {}))

    return [report for _, _, report in bucket.run(work()).values()]


def test_what_a_worker_handles_is_in_its_report(store: MemoryStore, bucket: Bucket) -> None:
    jobs = bucket.queue("jobs")
    jobs.send_many(range(10))
    with Reporter(bucket, "worker", "jobs", queue="jobs"):
        jobs.run(lambda delivery: Bury("odd") if delivery.body % 2 else None, stop_when_empty=True, signals=False)
    (report,) = read(bucket)
    (process,) = report.processes.values()
    assert (process.done.rows, process.done.dead, process.done.retried) == (10, 5, 0)
    assert process.ended is not None and process.error == ""
    assert sum(point.rows for point in process.recent) == 10 and sum(point.failed for point in process.recent) == 5
    assert process.done.spent is not None and process.done.spent.writes > 0


def test_the_time_of_short_messages_adds_up(bucket: Bucket) -> None:
    reporter = Reporter(bucket, "worker", "jobs", queue="jobs")
    message = Message(id="m", at="2026-01-01T00:00:00.000Z")
    with reporter:
        for _ in range(10_000):
            reporter.on_handled("jobs", "main", Handed(message, 0, 0, 1), Done(), 0.0004)
    (report,) = read(bucket)
    assert report.done.seconds == pytest.approx(4.0)


def test_the_error_that_ended_it_is_kept(bucket: Bucket) -> None:
    with pytest.raises(ValueError, match="schema"), Reporter(bucket, "pipeline", "classify"):
        raise ValueError("the schema does not fit")
    (report,) = read(bucket)
    (process,) = report.processes.values()
    assert process.error == "ValueError: the schema does not fit"


def test_ten_thousand_messages_are_two_writes_and_idling_is_none(store: MemoryStore, bucket: Bucket) -> None:
    with Reporter(bucket, "pipeline", "classify", every_seconds=3600, counts_requests=False) as reporter:
        until(lambda: reporter.id and read(bucket))
        before = bucket.requests
        for _ in range(10_000):
            reporter.batch(1, dead=0, seconds=0.001, lag=3)
        for _ in range(1_000):
            reporter.batch(0, dead=0, seconds=0.001, lag=0)
        assert bucket.requests == before, "nothing before the next write is due"
    made = bucket.requests - before
    assert (made.writes, made.get) == (1, 1)
    (report,) = read(bucket)
    assert report.done.rows == 10_000 and report.done.spent is None


class Away(MemoryStore):
    """Whose reports are refused."""

    def create(self, key: str, body: bytes, attributes: Attributes = PLAIN) -> Written | Refused | Unknown:
        if "figures" in key:
            raise Denied("you may not write there")
        return super().create(key, body, attributes)


def test_a_bucket_that_takes_no_reports_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    with sync_on(Away()) as bucket, caplog.at_level(logging.WARNING, "bucketmq"):
        bucket.queue("jobs").send(1)
        with Reporter(bucket, "worker", "jobs"):
            bucket.queue("jobs").run(lambda delivery: None, stop_when_empty=True, signals=False)
        assert bucket.queue("jobs").stats().depth == 0
    assert "action=report_failed name=jobs" in caplog.text


def test_one_that_was_forgotten_goes_on_without_counting_anything_twice(bucket: Bucket) -> None:
    with Reporter(bucket, "pipeline", "classify", every_seconds=0.0) as reporter:
        reporter.batch(5, dead=0, seconds=0.1, lag=None)
        until(lambda: read(bucket) and read(bucket)[0].done.rows == 5)
        for _ in range(PROCESSES_MAX + 1):  # others come and go, while this one is quiet
            with Reporter(bucket, "pipeline", "classify") as other:
                other.batch(1, dead=0, seconds=0.1, lag=None)
        (report,) = read(bucket)
        assert reporter.id not in report.processes and report.done.rows == 5 + PROCESSES_MAX + 1
        reporter.batch(2, dead=0, seconds=0.1, lag=None)
    (report,) = read(bucket)
    assert report.done.rows == 5 + PROCESSES_MAX + 1 + 2
