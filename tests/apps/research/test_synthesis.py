"""What results say: intervals that are right, effects by seed, the Pareto front, and no trace of any order."""

from __future__ import annotations

import math
import random

import msgspec
import pytest
from scipy import stats

from bucketmq.apps.research import report
from bucketmq.apps.research.plan import Plan, job_of
from bucketmq.apps.research.planner import next_round
from bucketmq.apps.research.pool import result_of
from bucketmq.apps.research.record import Closed, Result, Round
from bucketmq.apps.research.run import run_job
from bucketmq.apps.research.simulators import epidemic, queueing
from bucketmq.apps.research.statistics import estimate
from bucketmq.apps.research.synthesis import Findings, synthesise

from .studies import plan_of, result

TWO = [{"name": "cost"}, {"name": "gain", "goal": "max"}]


def closed_study(plan: Plan, results: dict[str, Result] | None = None) -> tuple[Round, Closed, dict[str, Result]]:
    first = next_round(plan, [], {})
    assert isinstance(first, Round)
    found = results if results is not None else {trial.id: result(plan, trial) for trial in first.trials}
    return first, Closed(why="all in", rounds=1, counted=tuple(sorted(found))), found


def findings(plan: Plan) -> Findings:
    first, closed, results = closed_study(plan)
    return synthesise(plan, [first], closed, results)


def test_the_t_interval_is_that_of_scipy() -> None:
    values = [1.0, 4.0, 2.5, 8.0, 3.0]
    found = estimate(values, confidence=0.9)
    low, high = stats.t.interval(0.9, 4, loc=sum(values) / 5, scale=stats.sem(values))
    assert (found.mean, found.count) == (3.7, 5)
    assert found.low == pytest.approx(low, rel=1e-12)
    assert found.high == pytest.approx(high, rel=1e-12)


def test_the_bootstrap_is_the_same_each_time_and_near_that_of_scipy() -> None:
    chance = random.Random(1)
    values = [chance.expovariate(1) for _ in range(60)]
    one = estimate(values, confidence=0.95, how="bootstrap", about="a")
    assert one == estimate(values, confidence=0.95, how="bootstrap", about="a")
    assert one != estimate(values, confidence=0.95, how="bootstrap", about="b")
    theirs = stats.bootstrap((values,), lambda x, axis: x.mean(axis), method="percentile", rng=1).confidence_interval
    assert one.low == pytest.approx(theirs.low, abs=0.05)
    assert one.high == pytest.approx(theirs.high, abs=0.05)


def test_one_value_has_a_mean_and_no_interval() -> None:
    found = estimate([2.0], confidence=0.95)
    assert (found.mean, found.low, found.high, found.half_width) == (2.0, None, None, math.inf)


@pytest.mark.parametrize("servers", [1, 2, 5])
def test_the_queueing_model_agrees_with_erlang(servers: int) -> None:
    """The truth lies in the interval of every metric, at a confidence at which a miss would be a mistake."""
    parameters = {"load": 0.7, "servers": servers, "customers": 20_000}
    exact = queueing.exact(parameters)
    runs = [queueing.simulate(parameters, seed) for seed in range(12)]
    for name, truth in exact.items():
        found = estimate([each[name] for each in runs], confidence=0.999)
        assert found.low is not None and found.high is not None
        assert found.low < truth < found.high, (name, truth, found)
        assert found.half_width < 0.2 * truth


def test_the_exact_answers_are_the_textbooks() -> None:
    assert queueing.exact({"load": 0.8, "servers": 1}) == pytest.approx({"wait": 4.0, "stay": 5.0, "waited": 0.8})
    # M/M/2 at load 1/2: P(wait) = 1/3, W = 4/3.
    assert queueing.exact({"load": 0.5, "servers": 2}) == pytest.approx({"wait": 1 / 3, "stay": 4 / 3, "waited": 1 / 3})


def test_an_epidemic_dies_out_below_one_and_spreads_above() -> None:
    few = [epidemic.simulate({"contacts": 0.05, "recovery_days": 7}, seed) for seed in range(10)]
    many = [epidemic.simulate({"contacts": 0.4, "recovery_days": 7}, seed) for seed in range(10)]
    assert max(each["attacked"] for each in few) < 0.1
    # The final size z of the deterministic model solves z = 1 - exp(-R z): 0.926 for R = 2.8.
    assert sum(each["attacked"] for each in many) / 10 == pytest.approx(0.926, abs=0.03)
    vaccinated = epidemic.simulate({"contacts": 0.4, "recovery_days": 7, "vaccinated": 0.9}, 1)
    assert vaccinated["attacked"] < 0.1


@pytest.mark.parametrize("bad", [{"load": 1.0}, {"servers": 0}, {"customers": 1}, {"load": math.nan}])
def test_parameters_that_cannot_be_are_a_failed_trial(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="M/M/c needs"):
        queueing.simulate(bad, 1)


def test_effects_are_taken_seed_by_seed() -> None:
    found = findings(plan_of(baseline={"x": 1}))
    two = next(each for each in found.points if each.label == "x=2")
    effect = two.effects["cost"]
    # cost is 10 x + noise of the seed: by seed there is no noise left.
    assert (effect.difference.mean, effect.difference.low, effect.difference.high) == (10.0, 10.0, 10.0)
    assert effect.is_clear
    assert len(effect.results) == 8
    baseline = next(each for each in found.points if each.label == found.baseline)
    assert baseline.effects == {}


def test_the_pareto_front_has_what_no_other_point_beats() -> None:
    one_way = findings(plan_of(metrics=[{"name": "cost"}, {"name": "gain", "goal": "min"}]))
    assert [each.label for each in one_way.points if each.on_front] == ["x=1", "x=2", "x=3"]
    both = findings(plan_of(metrics=TWO))
    assert [each.label for each in both.points if each.on_front] == ["x=1"]


def test_failures_are_counted_and_named() -> None:
    found = findings(plan_of(simulator="simulators_here:partly"))
    assert found.failures_by_kind == {"raised": 4}
    assert {(each.point, each.reason) for each in found.failures} == {("x=3", "ValueError: x is 3")}
    assert next(each for each in found.points if each.label == "x=3").metrics == {}
    assert found.best == "x=1"


def test_results_that_do_not_count_change_nothing() -> None:
    plan = plan_of()
    first, closed, results = closed_study(plan)
    without = dict(list(results.items())[:-1])
    less = msgspec.structs.replace(closed, counted=tuple(sorted(without)), missing=(list(results)[-1],))
    assert report.make(plan, [first], less, results).files == report.make(plan, [first], less, without).files


def test_the_order_of_results_and_who_ran_them_leave_no_trace() -> None:
    plan = plan_of(metrics=TWO, baseline={"x": 1}, interval="bootstrap")
    first, closed, results = closed_study(plan)
    files = report.make(plan, [first], closed, results).files
    for seed in range(5):
        mixed = random.Random(seed).sample(list(results.items()), len(results))
        others = {
            id: msgspec.structs.replace(each, worker=f"w{seed}", seconds=seed * 1.0, log=str(seed), python="3.99")
            for id, each in mixed
        }
        assert report.make(plan, [first], closed, others).files == files


def test_a_trial_gives_the_same_metrics_wherever_it_runs() -> None:
    plan = plan_of(simulator="mmc", parameters=[{"name": "load", "values": [0.5]}], metrics=[{"name": "wait"}])
    first = next_round(plan, [], {})
    assert isinstance(first, Round)
    trial = first.trials[0]
    here = result_of(job_of(plan, trial), run_job(job_of(plan, trial)), "here")
    assert here.metrics == queueing.simulate(trial.parameters, trial.seed)
