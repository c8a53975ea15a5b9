"""A plan that cannot be carried out is refused with what is wrong; a trial is named by what it is."""

from __future__ import annotations

import math
from typing import Any

import pytest

import bucketmq
from bucketmq.apps.research.plan import Parameter, at, grid, job_of, read_job, read_plan, seed_of, spread, trial_of

from .studies import XS, plan_of


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"simulator": "bogus"}, "there is no simulator 'bogus'"),
        ({"simulator": "os.path"}, "there is no simulator"),
        ({"simulator": "command"}, "either a simulator or a command"),
        ({"command": []}, "at least one word"),
        ({"budget": 0}, "budget must be 1"),
        ({"budget": 10**9}, "budget must be 1"),
        ({"budget": "many"}, "budget"),
        ({"seeds": 0}, "seeds must be 1"),
        ({"seeds": []}, "needs 1 to"),
        ({"seeds": [1, 1]}, "'1' is there twice"),
        ({"seed": "x"}, "seed must be a whole number"),
        ({"metrics": []}, "needs a metric"),
        ({"metrics": [{"name": "cost", "goal": "least"}]}, "goal"),
        ({"metrics": [{"name": "a b"}]}, "letters, digits and underlines"),
        ({"study": "../x"}, "study must be"),
        ({"study": ""}, "study must be"),
        ({"study": "A"}, "study must be"),
        ({"parameters": [{"name": "x"}]}, "nothing to choose from"),
        ({"parameters": [{"name": "x", "values": []}]}, "nothing to choose from"),
        ({"parameters": [{"name": "x", "values": [1], "low": 1, "high": 2}]}, "one of them"),
        ({"parameters": [{"name": "x", "values": [1, 1]}]}, "twice"),
        ({"parameters": [{"name": "x", "values": [math.nan]}]}, "not nan"),
        ({"parameters": [{"name": "x", "low": 1, "high": 1}]}, "less than its high"),
        ({"parameters": [{"name": "x", "low": 0, "high": math.inf}]}, "less than its high"),
        ({"parameters": [{"name": "x", "low": 0, "high": 1, "log": True}]}, "more than 0"),
        ({"parameters": [{"name": "x", "low": 0.5, "high": 2, "integer": True}]}, "whole number"),
        ({"parameters": [XS, XS]}, "'x' is there twice"),
        ({"fixed": {"x": 1}}, "'x' is there twice"),
        ({"fixed": {"y": math.nan}}, "not nan"),
        ({"baseline": {"y": 1}}, "a value for each parameter: x"),
        ({"search": {"by": "luck"}}, "by"),
        ({"search": {"by": "sobol"}, "parameters": []}, "nothing to search"),
        ({"search": {"points": 0}}, "search.points"),
        ({"search": {"by": "halving", "keep": 1}}, "keep must be 2"),
        ({"search": {"by": "halving", "resource": "x", "resource_high": 9}}, "sets 'x' itself"),
        ({"search": {"by": "halving", "resource": "n"}}, "resource_high"),
        ({"parameters": [{"name": c, "low": 0, "high": 1} for c in "abcdefgh"]}, "the grid has 390,625 points"),
        ({"limits": {"seconds": 0}}, "limits"),
        ({"limits": {"memory_bytes": 1}}, "limits"),
        ({"deadline_seconds": -1}, "deadline_seconds"),
        ({"deadline_seconds": math.nan}, "deadline_seconds"),
        ({"confidence": 1.0}, "confidence"),
        ({"stop": {"better_than": math.nan}}, "stop.better_than"),
        ({"typo": 1}, "typo"),
        ({"about": "x" * 3000}, "about may have"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_with_the_reason(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(bucketmq.Invalid, match=why):
        plan_of(**changed)


@pytest.mark.parametrize("raw", [None, [], "plan", {}, {"study": "x"}])
def test_what_is_no_plan_at_all_is_refused(raw: object) -> None:
    with pytest.raises(bucketmq.Invalid):
        read_plan(raw)


def test_a_command_needs_a_version() -> None:
    with pytest.raises(bucketmq.Invalid, match="a command needs a version"):
        read_plan({"study": "a", "command": ["true"], "parameters": [], "metrics": [{"name": "m"}], "budget": 1})


def test_a_trial_is_named_by_simulator_version_parameters_and_seed_alone() -> None:
    plan = plan_of()
    name = trial_of(plan, {"x": 1}, 5).id
    assert name == trial_of(plan_of(study="other", budget=7, about="!"), {"x": 1}, 5).id
    others = [
        trial_of(plan, {"x": 2}, 5),
        trial_of(plan, {"x": 1}, 6),
        trial_of(plan_of(version="2"), {"x": 1}, 5),
        trial_of(plan_of(simulator="simulators_here:slow"), {"x": 1}, 5),
        trial_of(plan_of(fixed={"y": 0}), {"x": 1}, 5),
    ]
    assert len({name, *(each.id for each in others)}) == 6
    two = plan_of(parameters=[XS, {"name": "a", "values": [1]}])
    assert trial_of(two, {"x": 1, "a": 2}, 5).id == trial_of(two, {"a": 2, "x": 1}, 5).id


def test_seeds_depend_on_their_number_and_on_no_order() -> None:
    few, many = plan_of(seeds=3), plan_of(seeds=10)
    assert few.seeds == many.seeds[:3] == tuple(seed_of(0, number) for number in range(3))
    assert plan_of(seeds=3, seed=1).seeds != few.seeds
    assert len(set(many.seeds)) == 10


def test_a_message_that_is_not_what_its_name_says_is_refused() -> None:
    import msgspec

    plan = plan_of()
    good = msgspec.to_builtins(job_of(plan, trial_of(plan, {"x": 1}, 5)))
    assert read_job(good).seed == 5
    for bad in ({**good, "seed": 6}, {**good, "study": "../x"}, {**good, "id": "0"}, {"id": 1}, None, "text"):
        with pytest.raises(bucketmq.Invalid, match="this is not a trial"):
            read_job(bad)


def test_the_grid_has_every_combination_once() -> None:
    plan = plan_of(
        parameters=[XS, {"name": "low", "low": 1, "high": 100, "log": True}, {"name": "s", "values": ["a"]}],
        search={"steps": 3},
    )
    points = grid(plan)
    assert len(points) == 9
    assert [each["low"] for each in points[:3]] == [1.0, 10.0, 100.0]


def test_whole_numbers_are_spread_without_repeats() -> None:
    assert spread(Parameter(name="n", low=1, high=3, integer=True), 7) == [1, 2, 3]
    assert at(Parameter(name="n", values=("a", "b")), 1.0) == "b"
