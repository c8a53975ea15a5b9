"""Workers: trials in, results out, whoever is killed when."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

import bucketmq
from bucketmq import aio
from bucketmq.apps.research import study
from bucketmq.apps.research.local import carry_out
from bucketmq.apps.research.plan import Plan, job_of, trial_of
from bucketmq.apps.research.record import TRIALS, Result, result_key
from bucketmq.apps.research.worker import Worker
from bucketmq.crew import Crew
from bucketmq.server.place import bus_of, run_now

from . import studies
from .simulators_here import FOLDER
from .studies import plan_of, report_of

PLAIN = ("simulators_here:plain", "simulators_here:slow")


def run_worker(url: str, **options: Any) -> list[Result]:
    """Work until the queue is empty; what was run."""
    told: list[Result] = []

    async def work() -> None:
        async with aio.connect(url) as bucket:
            await Worker(bucket, slots=2, told=told.append, **options).run(stop_when_empty=True)

    asyncio.run(work())
    return told


def result_of(bucket: bucketmq.client.Bucket, plan: Plan, id: str) -> Result:
    return msgspec.json.decode(bucket.get(result_key(plan.study, id)).body, type=Result)


def test_a_worker_runs_what_waits_and_writes_results_together(url: str) -> None:
    plan = plan_of(parameters=[{"name": "x", "values": list(range(50))}], budget=200)
    with bucketmq.connect(url) as bucket:
        studies.start(bucket, plan)

        async def work() -> Any:
            async with aio.connect(url) as other:
                before = other.requests
                await Worker(other, slots=2, allowed=PLAIN).run(stop_when_empty=True)
                return other.requests - before

        spent = asyncio.run(work())
        # A PUT for each result; what is shared (notes, events, claims) stays below a third of that.
        assert 200 <= spent.create + spent.replace <= 270, spent
        assert spent.get <= 80, spent
        assert spent.look <= 20, spent
        assert bucket.queue(TRIALS).stats().ready == 0
        assert studies.advance(bucket, plan) == "finished"
        found = run_now(bucket, study.read_closed(bus_of(bucket), plan.study)).results
        assert {id: each.metrics for id, each in found.items()} == {
            id: studies.result(plan, trial).metrics
            for point in ({"x": x} for x in range(50))
            for seed in plan.seeds
            for trial in [trial_of(plan, point, seed)]
            for id in [trial.id]
        }
        assert all(each.worker and each.python for each in found.values())


def test_a_trial_that_has_a_result_is_not_run_again(url: str) -> None:
    plan = plan_of()
    with bucketmq.connect(url) as bucket:
        studies.start(bucket, plan)
        assert len(run_worker(url, allowed=PLAIN)) == 12
        trial = trial_of(plan, {"x": 1}, plan.seeds[0])
        first = bucket.get(result_key(plan.study, trial.id)).body
        jobs = [job_of(plan, trial, again=True), job_of(plan, trial)]
        bucket.queue(TRIALS).send_many(msgspec.to_builtins(each) for each in jobs)
        assert len(run_worker(url, allowed=PLAIN)) == 1  # the one that does not say that it was sent before
        assert bucket.get(result_key(plan.study, trial.id)).body == first
        assert bucket.queue(TRIALS).stats().ready == 0


def test_what_a_worker_may_not_run_is_left_to_others_and_never_a_result(url: str) -> None:
    plan = plan_of()
    with bucketmq.connect(url) as bucket:
        studies.start(bucket, plan)
        assert run_worker(url) == []
        assert run_now(bucket, study.status(bus_of(bucket), plan.study)).results == 0
        assert bucket.queue(TRIALS).stats().delayed == 12


def test_a_message_that_is_no_trial_is_a_dead_letter(url: str) -> None:
    with bucketmq.connect(url) as bucket:
        bucket.queue(TRIALS).send_many([{"hello": 1}, "text", {"study": "../x", "id": "1"}])
        assert run_worker(url) == []
        letters = bucket.queue(TRIALS).dead_letters.peek()
        assert len(letters) == 3
        assert all("this is not a trial" in each.reason for each in letters)


def test_a_trial_with_limits_that_no_plan_may_have_is_a_dead_letter(url: str) -> None:
    plan = plan_of(simulator="mmc", parameters=[{"name": "load", "values": [0.5]}])
    job = msgspec.to_builtins(job_of(plan, trial_of(plan, {"load": 0.5}, 1)))
    with bucketmq.connect(url) as bucket:
        bucket.queue(TRIALS).send({**job, "limits": {"seconds": 1e308}})
        assert run_worker(url) == []
        (letter,) = bucket.queue(TRIALS).dead_letters.peek()
        assert "seconds up to 86,400" in letter.reason


def test_trials_of_a_study_that_was_closed_are_not_run(url: str) -> None:
    plan = plan_of()
    with bucketmq.connect(url) as bucket:
        studies.start(bucket, plan)
        run_now(bucket, study.stop(bus_of(bucket), plan.study))
        assert run_worker(url, allowed=PLAIN) == []
        assert bucket.queue(TRIALS).stats().ready == 0


def test_failures_of_all_kinds_are_results_and_the_study_ends(url: str) -> None:
    plan = plan_of(simulator="simulators_here:partly")
    with bucketmq.connect(url) as bucket:
        studies.start(bucket, plan)
        told = run_worker(url, allowed=("simulators_here:partly",))
        assert sorted(each.failure.kind for each in told if each.failure) == ["raised"] * 4
        assert studies.advance(bucket, plan) == "finished"


def test_a_worker_that_is_asked_to_stop_gives_back_what_it_has_not_begun(url: str) -> None:
    plan = plan_of(simulator="simulators_here:slow", seeds=40, budget=120)

    async def work() -> int:
        async with aio.connect(url) as bucket:
            count = itertools.count(1)
            worker = Worker(bucket, slots=2, allowed=PLAIN, told=lambda _: next(count) < 4 or worker.stop())
            await worker.run()
            return next(count) - 1

    with bucketmq.connect(url) as bucket:
        studies.start(bucket, plan)
        done = asyncio.run(work())
        stats = bucket.queue(TRIALS).stats()
        assert 4 <= done < 120
        assert (stats.ready, stats.in_flight) == (120 - done, 0)
        assert run_now(bucket, study.status(bus_of(bucket), plan.study)).results == done


def test_a_worker_and_a_planner_in_one_process_finish_a_study(url: str) -> None:
    plan = plan_of(parameters=[{"name": "x", "low": 0, "high": 1}], seeds=9, search={"by": "halving", "points": 9})

    async def work() -> None:
        async with aio.connect(url) as bucket:
            await bucket.run(study.start(bucket.api, plan))
            await carry_out(bucket, plan.study, slots=2, allowed=PLAIN)

    asyncio.run(work())
    with bucketmq.connect(url) as bucket, bucketmq.connect("memory://") as other:
        studies.carry_out(other, plan)
        assert report_of(bucket, plan) == report_of(other, plan)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1])
def test_the_report_is_the_same_byte_for_byte_whoever_is_killed(url: str, folder: Path, seed: int) -> None:
    """Two workers and two planners as processes of their own; every half second one of them is killed."""
    search = {"by": "halving", "points": 18, "keep": 3, "resource_low": 2}
    plan = plan_of(
        simulator="simulators_here:slow",
        parameters=[{"name": "x", "low": 0, "high": 1}],
        metrics=[{"name": "cost"}, {"name": "gain", "goal": "max"}],
        seeds=18,
        budget=500,
        search=search,
        baseline={"x": 0.5},
    )
    chance = random.Random(seed)
    kills = 0
    with bucketmq.connect(url) as bucket:
        studies.start(bucket, plan)
        environment = {"BUCKETMQ_URL": url, "PYTHONPATH": FOLDER, "RESEARCH_SIMULATORS": " ".join(PLAIN)}
        with Crew(folder, environment) as crew:
            for name in ("worker", "worker", "planner", "planner"):
                part = f"{name}{len(crew.members)}"
                words = ["--json", "apps", "run", "research", "--only", name, "--slots", "1", "--look-seconds", "1"]
                crew.start(part, *words)
            by = time.monotonic() + 100
            state = None
            while state != "finished":
                assert time.monotonic() < by, [each.last_words() for each in crew.members.values()]
                time.sleep(chance.uniform(0.3, 1.2))
                found = run_now(bucket, study.status(bus_of(bucket), plan.study))
                state = found.state
                if found.results > 0 and kills < 6:
                    victim = chance.choice(list(crew.members.values()))
                    victim.kill()
                    victim.restart()
                    kills += 1
        assert kills >= 3
        assert run_now(bucket, study.check(bus_of(bucket), plan.study)) == []
        with bucketmq.connect("memory://") as other:
            studies.carry_out(other, plan)
            assert report_of(bucket, plan) == report_of(other, plan)
