"""Plans for tests, and carrying them out."""

from __future__ import annotations

from typing import Any

import msgspec

from bucketmq.apps.research import study
from bucketmq.apps.research.plan import Job, Limits, Plan, Trial, job_of, read_job, read_plan, trial_of
from bucketmq.apps.research.pool import result_of
from bucketmq.apps.research.record import TRIALS, Result, result_key
from bucketmq.apps.research.run import Ran
from bucketmq.client import Bucket
from bucketmq.server.place import bus_of, run_now

from . import simulators_here

XS = {"name": "x", "values": [1, 2, 3]}


def plan_of(**changed: Any) -> Plan:
    """Three points, four seeds."""
    given: dict[str, Any] = {
        "study": "s1",
        "simulator": "simulators_here:plain",
        "version": "1",
        "parameters": [XS],
        "metrics": [{"name": "cost"}],
        "seeds": 4,
        "budget": 100,
    }
    return read_plan({**given, **changed})


def job(simulator: str, /, *, limits: Limits | None = None, **parameters: Any) -> Job:
    plan = msgspec.structs.replace(
        plan_of(), simulator=f"simulators_here:{simulator}", limits=limits or Limits(seconds=20.0)
    )
    return job_of(plan, trial_of(plan, parameters, 1))


def result(plan: Plan, trial: Trial) -> Result:
    """What `simulators_here.plain` and `partly` give, without a process."""
    function = getattr(simulators_here, plan.simulator.partition(":")[2])
    try:
        ran = Ran(metrics=function(trial.parameters, trial.seed))
    except ValueError as error:
        from bucketmq.apps.research.record import Failure

        ran = Ran(failure=Failure("raised", f"ValueError: {error}"))
    return result_of(job_of(plan, trial), ran, "test")


def work_off(bucket: Bucket, plan: Plan, *, limit: int = 1000) -> int:
    """Run up to so many trials that wait in the queue; how many were run."""
    count = 0
    while count < limit and (batch := bucket.queue(TRIALS).receive(min(100, limit - count))):
        for delivery in batch:
            given = read_job(delivery.body)
            found = result(plan, Trial(given.id, given.parameters, given.seed))
            key = result_key(plan.study, given.id)
            if bucket.look(key) is None:
                bucket.put(key, msgspec.json.encode(found))
            delivery.ack()
            count += 1
    bucket.queue(TRIALS).flush()
    return count


def advance(bucket: Bucket, plan: Plan, memory: study.Memory | None = None) -> study.State:
    return run_now(bucket, study.advance(bus_of(bucket), plan.study, memory or study.Memory()))


def start(bucket: Bucket, plan: Plan) -> bool:
    return run_now(bucket, study.start(bus_of(bucket), plan))


def carry_out(bucket: Bucket, plan: Plan) -> None:
    """From the plan to the report, in this thread."""
    start(bucket, plan)
    while advance(bucket, plan) == "running":
        assert work_off(bucket, plan), "nothing to run, and not finished"


def report_of(bucket: Bucket, plan: Plan) -> dict[str, bytes]:
    """All files of a report."""
    seen = run_now(bucket, study.look(bus_of(bucket), plan.study))
    wanted = [name for name in seen.names if name.startswith(("report", "figures", "synthesis", "closed"))]
    return {name: bucket.get(f"studies/{plan.study}/{name}").body for name in sorted(wanted)}
