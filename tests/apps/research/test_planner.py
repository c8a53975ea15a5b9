"""The next round is a function of the plan and the results before: two planners agree, whatever came first."""

from __future__ import annotations

import random
from typing import Any

import pytest

from bucketmq.apps.research.plan import Plan
from bucketmq.apps.research.planner import next_round, ranking, sobol
from bucketmq.apps.research.record import Failure, Result, Round, Why

from .studies import XS, plan_of, result

RANGE = {"name": "x", "low": 0.0, "high": 1.0}


def played(plan: Plan, rounds_max: int = 20) -> tuple[list[Round], dict[str, Result], Why]:
    """All rounds, with results that come in any order."""
    rounds: list[Round] = []
    results: dict[str, Result] = {}
    for _ in range(rounds_max):
        found = next_round(plan, rounds, results)
        if not isinstance(found, Round):
            return rounds, results, found
        rounds.append(found)
        trials = list(found.trials)
        random.shuffle(trials)
        results |= {trial.id: result(plan, trial) for trial in trials}
        results = dict(random.sample(list(results.items()), len(results)))
    raise AssertionError("it does not end")


@pytest.mark.parametrize("by", ["grid", "sobol", "random", "halving", "optuna"])
def test_two_planners_agree_whatever_the_order_of_results(by: str) -> None:
    plan = plan_of(parameters=[RANGE], search={"by": by, "points": 9, "rounds_max": 3})
    if by == "optuna":
        pytest.importorskip("optuna")
    one, other = played(plan), played(plan)
    assert one[0] == other[0]
    ids = [trial.id for each in one[0] for trial in each.trials]
    assert len(ids) == len(set(ids))


def test_a_grid_is_one_round_of_every_point_with_every_seed() -> None:
    rounds, _, why = played(plan_of())
    assert ([len(each.trials) for each in rounds], why) == ([12], "all in")


def test_a_budget_cuts_the_last_round() -> None:
    rounds, _, why = played(plan_of(budget=7))
    assert ([len(each.trials) for each in rounds], why) == ([7], "all in")
    rounds, _, why = played(
        plan_of(parameters=[RANGE], budget=10, search={"by": "sobol", "points": 2, "rounds_max": 9})
    )
    assert ([len(each.trials) for each in rounds], why) == ([8, 2], "budget")


def test_the_baseline_is_run_first() -> None:
    rounds, _, _ = played(plan_of(baseline={"x": 9}))
    assert [trial.parameters["x"] for trial in rounds[0].trials[:5]] == [9, 9, 9, 9, 1]


def test_rounds_go_on_in_the_sequence() -> None:
    plan = plan_of(parameters=[RANGE, {"name": "n", "low": 1, "high": 64, "log": True, "integer": True}])
    assert sobol(plan, 0, 8) == sobol(plan, 0, 4) + sobol(plan, 4, 4)
    spread = sobol(plan, 0, 64)
    assert abs(sum(float(each["x"]) for each in spread) / 64 - 0.5) < 0.02
    assert {type(each["n"]) for each in spread} == {int}
    assert all(1 <= int(each["n"]) <= 64 for each in spread)


def test_halving_promotes_the_best_third_with_three_times_the_seeds() -> None:
    plan = plan_of(parameters=[RANGE], seeds=9, search={"by": "halving", "points": 9, "keep": 3})
    rounds, _, why = played(plan)
    assert why == "all in"
    assert [len(each.trials) for each in rounds] == [9, 6, 6]
    assert [len(each.reused) for each in rounds] == [0, 3, 3]
    firsts = sorted(float(trial.parameters["x"]) for trial in rounds[0].trials)
    seconds = {float(trial.parameters["x"]) for trial in rounds[1].trials}
    assert seconds == set(firsts[:3])  # cost grows with x
    assert {float(trial.parameters["x"]) for trial in rounds[2].trials} == {firsts[0]}


def test_halving_by_a_parameter_gives_it_more_and_keeps_the_baseline() -> None:
    search = {"by": "halving", "points": 4, "keep": 2, "resource": "n", "resource_low": 10, "resource_high": 40}
    plan = plan_of(parameters=[RANGE], seeds=1, search=search, baseline={"x": 5})
    rounds, _, _ = played(plan)
    assert [{trial.parameters["n"] for trial in each.trials} for each in rounds] == [{10}, {20}, {40}]
    assert [len(each.trials) for each in rounds] == [5, 3, 2]
    assert all(5 in {trial.parameters["x"] for trial in each.trials} for each in rounds)


def test_a_point_whose_trials_all_failed_is_not_promoted() -> None:
    plan = plan_of(parameters=[XS], simulator="simulators_here:partly", metrics=[{"name": "cost", "goal": "max"}])
    rounds, results, _ = played(plan)
    assert [each["x"] for each in ranking(plan, rounds[0], results)] == [2, 1]


@pytest.mark.parametrize(
    ("stop", "rounds"),
    [
        ({"better_than": 100.0}, 1),
        ({"better_than": -100.0}, 8),
        ({"half_width_max": 100.0}, 1),
        ({"rounds_without_gain": 2}, None),
    ],
)
def test_a_stop_rule_ends_the_search(stop: dict[str, Any], rounds: int | None) -> None:
    plan = plan_of(parameters=[RANGE], budget=1000, stop=stop, search={"by": "random", "points": 3, "rounds_max": 8})
    found, _, why = played(plan)
    assert why == ("stop rule" if rounds != 8 else "all in")
    if rounds is not None:
        assert len(found) == rounds
    else:
        assert 2 < len(found) < 8


def test_a_study_in_which_everything_fails_ends() -> None:
    plan = plan_of(parameters=[RANGE], search={"by": "halving", "points": 4})
    first = next_round(plan, [], {})
    assert isinstance(first, Round)
    gone = {
        trial.id: Result(
            id=trial.id, parameters=trial.parameters, seed=trial.seed, simulator="s", version="1",
            failure=Failure("died", "ended by SIGKILL"),
        )
        for trial in first.trials
    }  # fmt: skip
    assert next_round(plan, [first], gone) == "all in"


def test_optuna_gets_better_and_has_the_bucket_as_its_record() -> None:
    pytest.importorskip("optuna")
    plan = plan_of(
        parameters=[RANGE, {"name": "kind", "values": ["a", "b"]}],
        seeds=1,
        search={"by": "optuna", "points": 10, "rounds_max": 4},
    )
    rounds, results, why = played(plan)
    assert (len(rounds), why) == (4, "all in")
    means = [sum(results[t.id].metrics["cost"] for t in each.trials) / len(each.trials) for each in rounds]
    assert means[-1] < means[0]
