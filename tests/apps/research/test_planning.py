"""The planner's loop: what somebody wrote to one study does not stop the others."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

import bucketmq
from bucketmq import aio
from bucketmq.apps.research.plan import Plan, Trial
from bucketmq.apps.research.planning import Planner
from bucketmq.apps.research.record import PLAN, Result, Round, index_key, result_key, round_key, study_key

from . import studies
from .studies import plan_of

HALVING = {"parameters": [{"name": "x", "low": 0, "high": 1}], "search": {"by": "halving", "points": 4}}


def put_plan(bucket: bucketmq.client.Bucket, plan: Plan, study: str) -> None:
    """As somebody does who writes to the bucket without asking."""
    bucket.put(index_key(study), b"{}")
    bucket.put(study_key(study, PLAN), msgspec.json.encode(plan))


def spoil_a_plan(bucket: bucketmq.client.Bucket) -> None:
    endless = msgspec.structs.replace(plan_of(**HALVING).search, by="sobol", points=10**15)
    put_plan(bucket, msgspec.structs.replace(plan_of(study="a-spoiled", **HALVING), search=endless), "a-spoiled")


def spoil_a_round(bucket: bucketmq.client.Bucket) -> None:
    """Trials of parameters that the plan does not have."""
    plan = plan_of(study="a-spoiled", **HALVING)
    put_plan(bucket, plan, plan.study)
    trials = tuple(Trial(f"{number:024x}", {"y": number}, 1) for number in range(4))
    bucket.put(round_key(plan.study, 0), msgspec.json.encode(Round(number=0, trials=trials)))
    for each in trials:
        found = Result(
            id=each.id, parameters=each.parameters, seed=1, simulator="s", version="1", metrics={"cost": 1.0}
        )
        bucket.put(result_key(plan.study, each.id), msgspec.json.encode(found))


@pytest.mark.parametrize("spoil", [spoil_a_plan, spoil_a_round])
def test_a_study_that_somebody_spoiled_does_not_stop_the_others(url: str, spoil: object) -> None:
    async def look_after() -> list[str]:
        async with aio.connect(url) as bucket:
            return await Planner(bucket).look_after()

    plan = plan_of()
    with bucketmq.connect(url) as bucket:
        spoil(bucket)  # type: ignore[operator]
        studies.start(bucket, plan)
        studies.work_off(bucket, plan)
    assert asyncio.run(look_after()) == ["a-spoiled"]
