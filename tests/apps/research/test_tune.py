"""BucketMQ's own settings as a study: the simulator is a function of its seed, and says what is known to be true."""

from __future__ import annotations

import pytest

import bucketmq
from bucketmq.apps.research.demo import waits_plan
from bucketmq.apps.research.plan import grid
from bucketmq.apps.research.tune import tuning_plan
from bucketmq.testing.simulation.tuning import simulate

FEW = {"messages": 60, "workers": 3}


def test_the_simulator_is_a_function_of_its_seed() -> None:
    given = {**FEW, "batch": 10, "deaths": 0.02}
    assert simulate(given, 1) == simulate(given, 1)
    assert simulate(given, 1) != simulate(given, 2)


def test_larger_batches_cost_fewer_requests() -> None:
    one, ten = (simulate({**FEW, "batch": batch, "deaths": 0.0}, 1) for batch in (1, 10))
    assert ten["requests"] < one["requests"] / 3
    assert one["repeated"] == ten["repeated"] == 0.0


def test_a_long_lease_makes_others_wait_for_the_dead() -> None:
    short, long = (simulate({**FEW, "batch": 5, "lease_seconds": lease, "deaths": 0.05}, 3) for lease in (5.0, 60.0))
    assert short["seconds"] < long["seconds"]


def test_a_lease_that_ends_before_the_work_does_brings_nothing_to_an_end() -> None:
    with pytest.raises(TimeoutError, match="not settled"):
        simulate({**FEW, "batch": 30, "lease_seconds": 3.0, "deaths": 0.0}, 1)


def test_parameters_that_cannot_be_are_refused() -> None:
    with pytest.raises(bucketmq.Invalid, match="batch, workers and messages"):
        simulate({"batch": 0}, 1)


def test_the_plans_that_come_along_can_be_carried_out() -> None:
    plan = tuning_plan()
    assert (len(grid(plan)) * len(plan.seeds), plan.version) == (plan.budget, "1")
    assert plan.baseline in grid(plan)
    assert waits_plan().study == "waits"
