"""Trials on Spark, in a worker of pipelines, and in our own worker: the same results, in one table."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from spark.conftest import java_here, spark  # noqa: F401

import bucketmq
from bucketmq import aio
from bucketmq.apps.research import study
from bucketmq.apps.research.pipeline import Runner, pipeline, simulated
from bucketmq.apps.research.plan import Plan, Trial
from bucketmq.apps.research.record import TRIALS, TRIALS_ON_SPARK
from bucketmq.apps.research.simulators import queueing
from bucketmq.apps.research.worker import Worker
from bucketmq.client import Bucket
from bucketmq.server.place import bus_of, run_now

from . import studies
from .studies import plan_of

Runs = Callable[[Bucket, str, Path], None]


def the_plan(runs_on: str) -> Plan:
    """With a point that cannot be: its trials fail."""
    return plan_of(
        simulator="mmc",
        runs_on=runs_on,
        parameters=[{"name": "load", "values": [0.5, 0.8, 1.5]}],
        fixed={"customers": 200},
        metrics=[{"name": "wait"}],
        seeds=2,
    )


def expected(trial: Trial) -> tuple[dict[str, float], str]:
    """Metrics, or what is wrong."""
    try:
        return dict(sorted(queueing.simulate(trial.parameters, trial.seed).items())), ""
    except bucketmq.Invalid as error:
        return {}, f"Invalid: {error}"


def by_worker(bucket: Bucket, url: str, folder: Path) -> None:
    async def work() -> None:
        async with aio.connect(url) as other:
            await Worker(other, slots=2).run(stop_when_empty=True)

    asyncio.run(work())


def by_pipeline(bucket: Bucket, url: str, folder: Path) -> None:
    queue = bucket.queue(TRIALS_ON_SPARK).subscription("trials")
    queue.run(pipeline().watcher(bucket), stop_when_empty=True, signals=False)


@pytest.fixture
def by_spark(request: pytest.FixtureRequest) -> Runs:
    session: Any = request.getfixturevalue("spark")

    def run(bucket: Bucket, url: str, folder: Path) -> None:
        from bucketmq.spark import start

        query = start(pipeline(), url, session, checkpoint=str(folder / "checkpoint"), once=True)
        query.awaitTermination()

    return run


@pytest.mark.parametrize(
    ("how", "runs_on"),
    [
        ("worker", "workers"),
        ("pipeline", "spark"),
        pytest.param(
            "spark", "spark", marks=[pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.xdist_group("spark")]
        ),
    ],
)
def test_the_same_trials_have_the_same_results_wherever_they_run(
    how: str, runs_on: str, url: str, folder: Path, request: pytest.FixtureRequest
) -> None:
    run: Runs = {"worker": by_worker, "pipeline": by_pipeline}.get(how) or request.getfixturevalue("by_spark")
    plan = the_plan(runs_on)
    with bucketmq.connect(url) as bucket:
        studies.start(bucket, plan)
        other = TRIALS if runs_on == "spark" else TRIALS_ON_SPARK
        assert other not in bucket.queues()
        run(bucket, url, folder)
        if how != "spark":
            run(bucket, url, folder)  # nothing is left to do
        assert studies.advance(bucket, plan) == "finished"
        known = run_now(bucket, study.read_closed(bus_of(bucket), plan.study))
        trials = {trial.id: trial for each in known.rounds for trial in each.trials}
        assert len(known.results) == 6
        for id, found in known.results.items():
            failure = found.failure.reason if found.failure else ""
            assert (found.metrics, failure) == expected(trials[id])
            assert found.worker


def test_what_is_no_trial_is_a_dead_letter_of_the_pipeline(url: str) -> None:
    with bucketmq.connect(url) as bucket:
        bucket.queue(TRIALS_ON_SPARK).send_many([{"study": "s"}, "text"])
        by_pipeline(bucket, url, Path())
        assert ["this is not a trial" in each.reason for each in bucket.queue(TRIALS_ON_SPARK).dead_letters.peek()] == [
            True,
            True,
        ]


def test_what_may_not_be_run_stops_the_query_and_loses_nothing() -> None:
    import pyarrow as pa

    body = msgspec.json.encode(studies.job("plain", x=1)).decode()
    runner = Runner(())
    try:
        with pytest.raises(bucketmq.Denied, match="may not run"):
            simulated(pa.RecordBatch.from_pylist([{"body": body}]), runner)
    finally:
        runner.close()
