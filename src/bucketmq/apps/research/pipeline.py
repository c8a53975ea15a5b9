"""Trials on Spark, for thousands at once: messages of their own queue in, results out.

The stage runs each trial as a worker does (`pool`), in processes of the executor, so that the same limits hold and the
same metrics come out. Results are created if they are absent. What is not a trial is a dead letter; what this place
cannot run stops the query, and no trial is lost.
"""

from __future__ import annotations

import os
import platform

import msgspec
import pyarrow as pa

from bucketmq.apps.research.plan import Job, read_job
from bucketmq.apps.research.pool import Pool, may_run, result_of
from bucketmq.apps.research.record import TRIALS_ON_SPARK, result_key
from bucketmq.errors import Invalid, Unsupported
from bucketmq.pipeline import FromQueue, Outcomes, Pipeline, ToObjects, stage

NAME = "trials"
RESULT = "`key` string, result string"

TASK_ROWS = 8
"""Trials that are worth a task of their own."""
ROWS_MAX = 64


class Runner:
    """One process for trials in each process of Spark: Spark itself makes as many as there are cores."""

    def __init__(self, allowed: tuple[str, ...]) -> None:
        self.allowed = allowed
        self.pool = Pool(1)

    def close(self) -> None:
        self.pool.close()


class Runners(msgspec.Struct, frozen=True):
    """Makes the runner of a process, and may be sent to one."""

    allowed: tuple[str, ...] = ()

    def __call__(self) -> Runner:
        return Runner(self.allowed)


def simulated(batch: pa.RecordBatch, runner: Runner) -> Outcomes:
    """The function of the stage: a batch of trials in, a result for each out."""
    jobs: dict[int, Job] = {}
    failed: dict[int, str] = {}
    for place, body in enumerate(batch.column("body").to_pylist()):
        try:
            job = read_job(msgspec.json.decode(body or ""))
            may_run(job, runner.allowed)
            jobs[place] = job
        except (Invalid, msgspec.DecodeError) as error:
            failed[place] = str(error)
    name = f"{platform.node()}:{os.getpid()}:spark"
    results = []
    for job, ran in zip(jobs.values(), runner.pool.run(jobs.values()), strict=True):
        if ran.misfit:
            raise Unsupported(f"a trial cannot be run on this executor: {ran.misfit}")
        results.append(msgspec.json.encode(result_of(job, ran, name)).decode())
    keys = [result_key(job.study, job.id) for job in jobs.values()]
    return Outcomes(rows={"key": keys, "result": results}, failed=failed, of=list(jobs))


def pipeline(*, simulators: tuple[str, ...] = ()) -> Pipeline:
    """The pipeline; `simulators` names what it may run beside the built-in ones."""
    return Pipeline(
        name=NAME,
        about="Run the trials of studies that ask for Spark.",
        source=FromQueue(TRIALS_ON_SPARK),
        stages=(
            stage(
                name="simulate", takes="body string", gives=RESULT, uses=Runners(tuple(simulators)), rows_max=ROWS_MAX
            )(simulated),
        ),
        target=ToObjects(template="{+key}", body="result", if_exists="keep"),
        task_rows=TASK_ROWS,
    )
