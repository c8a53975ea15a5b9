"""A study on a real object store: plan, rounds, workers, report, check."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import bucketmq
from bucketmq import aio
from bucketmq.apps.research import study
from bucketmq.apps.research.local import carry_out
from bucketmq.server.place import bus_of, run_now
from bucketmq.testing import servers

from . import studies
from .studies import plan_of, report_of
from .test_worker import PLAIN


@pytest.fixture
def url() -> Iterator[str]:
    try:
        with servers.seaweedfs() as url:
            yield url
    except bucketmq.Unsupported as error:
        servers.skip_or_fail(error)


@pytest.mark.long
def test_a_study_on_an_object_store_has_the_report_that_it_has_in_memory(url: str) -> None:
    search = {"by": "halving", "points": 4, "keep": 2}
    plan = plan_of(parameters=[{"name": "x", "low": 0, "high": 1}], seeds=4, search=search, baseline={"x": 0.5})

    async def work() -> None:
        async with aio.connect(url) as bucket:
            await bucket.run(study.start(bucket.api, plan))
            await carry_out(bucket, plan.study, slots=2, allowed=PLAIN)

    asyncio.run(work())
    with bucketmq.connect(url) as bucket, bucketmq.connect("memory://") as other:
        studies.carry_out(other, plan)
        assert report_of(bucket, plan) == report_of(other, plan)
        assert run_now(bucket, study.check(bus_of(bucket), plan.study)) == []
