"""What to run next: a function of the plan, the rounds before and their results. Pure, so that two planners agree.

| search | a round |
|---|---|
| `grid` | every combination, once |
| `sobol` | the next points of a scrambled Sobol sequence |
| `random` | the next points of a sequence that the first seed decides |
| `halving` | first many points with little, then the best of them with more: seeds, or a parameter of the simulator |
| `optuna` | what Optuna's TPE sampler proposes, told everything that is known so far |

Optuna keeps no record of its own: it is given all results again each time, so the bucket is its memory.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Mapping, Sequence

import msgspec

from bucketmq.apps.research.plan import Parameter, Plan, Settings, Trial, at, canonical, grid, trial_of
from bucketmq.apps.research.record import Result, Round, Why
from bucketmq.apps.research.statistics import Estimate, estimate
from bucketmq.errors import Unsupported

Results = Mapping[str, Result]
"""By the names of their trials."""


class Wanted(msgspec.Struct, frozen=True):
    """A point that is to be run, with these seeds."""

    point: Settings
    seeds: tuple[int, ...]


def next_round(plan: Plan, rounds: Sequence[Round], results: Results) -> Round | Why:
    """The next round, or why there is none. All trials of the rounds before have a result."""
    if rounds and _stops(plan, rounds, results):
        return "stop rule"
    wanted = _wanted(plan, rounds, results)
    if not wanted:
        return "all in"
    known = {trial.id for each in rounds for trial in each.trials}
    left = plan.budget - len(known)
    trials: dict[str, Trial] = {}
    reused: dict[str, None] = {}
    for each in wanted:
        for seed in each.seeds:
            trial = trial_of(plan, each.point, seed)
            if trial.id in known:
                reused[trial.id] = None
            elif trial.id not in trials and len(trials) < left:
                trials[trial.id] = trial
    if not trials and left <= 0:
        return "budget"
    return Round(number=len(rounds), trials=tuple(trials.values()), reused=tuple(reused))


def _wanted(plan: Plan, rounds: Sequence[Round], results: Results) -> list[Wanted]:
    number, search = len(rounds), plan.search
    if search.by == "halving":
        return _rung(plan, rounds, results)
    if number >= (1 if search.by == "grid" else search.rounds_max):
        return []
    match search.by:
        case "grid":
            points = grid(plan)
        case "sobol":
            points = sobol(plan, number * search.points, search.points)
        case "random":
            points = [_random(plan, place) for place in range(number * search.points, (number + 1) * search.points)]
        case "optuna":
            points = _optuna(plan, rounds, results)
    first = [plan.baseline] if plan.baseline is not None and number == 0 else []
    return [Wanted(point, plan.seeds) for point in (*first, *points)]


def sobol(plan: Plan, skip: int, count: int) -> list[Settings]:
    """So many points of the plan's sequence, behind the first `skip`."""
    import warnings

    from scipy.stats import qmc

    sequence = qmc.Sobol(len(plan.parameters), scramble=True, rng=plan.seeds[0])
    if skip:
        sequence.fast_forward(skip)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that a count is not a power of two
        rows = sequence.random(count).tolist()
    return [_at(plan.parameters, row) for row in rows]


def _random(plan: Plan, place: int) -> Settings:
    chance = random.Random(f"{plan.seeds[0]} {place}")
    return _at(plan.parameters, [chance.random() for _ in plan.parameters])


def _at(parameters: Sequence[Parameter], shares: Sequence[float]) -> Settings:
    return {each.name: at(each, share) for each, share in zip(parameters, shares, strict=True)}


def _rung(plan: Plan, rounds: Sequence[Round], results: Results) -> list[Wanted]:
    """The next rung of successive halving: the best of the last one, with `keep` times as much. The baseline stays."""
    search, number = plan.search, len(rounds)
    high = search.resource_high if search.resource else len(plan.seeds)
    amount = min(search.resource_low * search.keep**number, high)
    if number == 0:
        points = sobol(plan, 0, search.points)
    else:
        before = min(search.resource_low * search.keep ** (number - 1), high)
        ranked = ranking(plan, rounds[-1], results)
        if before >= high or len(ranked) <= 1:
            return []
        points = [_searched(plan, each) for each in ranked[: max(1, len(ranked) // search.keep)]]
    if plan.baseline is not None and plan.baseline not in points:
        points = [plan.baseline, *points]
    if search.resource:
        return [Wanted({**point, search.resource: amount}, plan.seeds) for point in points]
    return [Wanted(point, plan.seeds[:amount]) for point in points]


def _searched(plan: Plan, parameters: Settings) -> Settings:
    """The part of a trial's parameters that is searched over."""
    return {each.name: parameters[each.name] for each in plan.parameters}


def ranking(plan: Plan, round: Round, results: Results) -> list[Settings]:
    """The points of a round that had results, the best first; of equal ones that with the smaller spelling."""
    means = {key: each.mean for key, each in estimates(plan, [round], results).items()}
    sign = 1 if plan.metrics[0].goal == "min" else -1
    found = points_of([round], results)
    return [found[key] for key in sorted(means, key=lambda key: (sign * means[key], key))]


def points_of(rounds: Sequence[Round], results: Results) -> dict[str, Settings]:
    """The parameters of every point, in the order of the rounds, by their canonical spelling."""
    found: dict[str, Settings] = {}
    for each in rounds:
        for trial in each.trials:
            found.setdefault(canonical(trial.parameters), trial.parameters)
        for id in each.reused:
            if id in results:
                found.setdefault(canonical(results[id].parameters), results[id].parameters)
    return found


def estimates(plan: Plan, rounds: Sequence[Round], results: Results) -> dict[str, Estimate]:
    """The first metric at each point that has a value."""
    name = plan.metrics[0].name
    ids = sorted({trial.id for each in rounds for trial in each.trials} | {id for each in rounds for id in each.reused})
    values: dict[str, list[float]] = {}
    for id in ids:
        found = results.get(id)
        if found is not None and name in found.metrics:
            values.setdefault(canonical(found.parameters), []).append(found.metrics[name])
    return {
        key: estimate(each, confidence=plan.confidence, how=plan.interval, about=f"{plan.study} {key} {name}")
        for key, each in values.items()
    }


def _best(plan: Plan, rounds: Sequence[Round], results: Results) -> Estimate | None:
    found = estimates(plan, rounds, results)
    sign = 1 if plan.metrics[0].goal == "min" else -1
    return found[min(found, key=lambda key: (sign * found[key].mean, key))] if found else None


def _stops(plan: Plan, rounds: Sequence[Round], results: Results) -> bool:
    stop, sign = plan.stop, 1 if plan.metrics[0].goal == "min" else -1
    best = _best(plan, rounds, results)
    if best is None:
        return False
    if stop.better_than is not None and sign * best.mean <= sign * stop.better_than:
        return True
    if stop.half_width_max is not None and best.half_width <= stop.half_width_max:
        return True
    if stop.rounds_without_gain is not None and len(rounds) > stop.rounds_without_gain:
        before = _best(plan, rounds[: -stop.rounds_without_gain], results)
        return before is not None and sign * best.mean >= sign * before.mean
    return False


def _optuna(plan: Plan, rounds: Sequence[Round], results: Results) -> list[Settings]:
    try:
        import optuna
    except ModuleNotFoundError:
        raise Unsupported("searching by optuna needs it: pip install 'bucketmq[optuna]'") from None
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    def distribution(each: Parameter) -> optuna.distributions.BaseDistribution:
        if each.values:
            return CategoricalDistribution(each.values)
        assert each.low is not None and each.high is not None
        if each.integer:
            return IntDistribution(int(each.low), int(each.high), log=each.log)
        return FloatDistribution(each.low, each.high, log=each.log)

    space = {each.name: distribution(each) for each in plan.parameters}
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=(plan.seeds[0] + len(rounds)) % 2**32, constant_liar=True)
    study = optuna.create_study(sampler=sampler, direction="minimize" if plan.metrics[0].goal == "min" else "maximize")
    found = points_of(rounds, results)
    for key, each in sorted(estimates(plan, rounds, results).items()):
        params = _searched(plan, found[key])
        with contextlib.suppress(ValueError):  # a point that the plan does not search
            study.add_trial(optuna.trial.create_trial(params=params, distributions=space, value=each.mean))
    asked = [study.ask(space).params for _ in range(plan.search.points)]
    return [{each.name: _short(each, params[each.name]) for each in plan.parameters} for params in asked]


def _short(parameter: Parameter, value: object) -> bool | int | float | str:
    """A proposal as points are written: a number within its range, in ten digits."""
    assert isinstance(value, bool | int | float | str)
    if parameter.values or parameter.integer or not isinstance(value, float):
        return value
    assert parameter.low is not None and parameter.high is not None
    return min(max(float(f"{value:.10g}"), parameter.low), parameter.high)
