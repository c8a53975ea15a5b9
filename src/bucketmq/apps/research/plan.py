"""What a study is: parameters, a simulator, seeds, a budget, metrics, when to stop. Pure.

A plan never changes: whatever is edited is another plan, and needs another study. A trial is named by the hash of what
it is (simulator, version, parameters, seed), so that nothing counts twice. How trials are chosen is `planner`'s.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from bucketmq.apps.research import simulators
from bucketmq.errors import Invalid

Setting = bool | int | float | str
"""The value of a parameter."""
Settings = dict[str, Setting]
"""Values of parameters, by name: a point of the space."""

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}\Z")
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")
"""Names of parameters and metrics."""

BUDGET_MAX = 200_000
SEEDS_MAX = 10_000
POINTS_MAX = 100_000
ID_DIGITS = 24
TEXT_CHARS_MAX = 2_000

COMMAND = "command"
"""What the simulator of a plan is called whose simulator is a command."""


class Parameter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One axis: `values` to choose from, or a range from `low` to `high`."""

    name: str
    values: tuple[Setting, ...] = ()
    low: float | None = None
    high: float | None = None
    integer: bool = False
    log: bool = False
    """Spread evenly by ratio instead of by difference."""


class Metric(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A number that the simulator returns. The first one of a plan is what is searched for."""

    name: str
    goal: Literal["min", "max"] = "min"


class Search(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How points are chosen: `planner` says what each of them means."""

    by: Literal["grid", "sobol", "random", "halving", "optuna"] = "grid"
    points: int = 16
    """In a round; in the first rung of halving. Of a grid: all, and for each range so many steps as `steps` says."""
    steps: int = 5
    rounds_max: int = 1
    keep: int = 3
    """Of so many points halving promotes one, with so many times the resource."""
    resource: str = ""
    """What halving gives more of: a parameter of the simulator, or seeds if this is empty."""
    resource_low: int = 1
    resource_high: int = 0


class Stop(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """When no further round is worth it. Looked at between rounds; whichever holds first."""

    better_than: float | None = None
    """The mean of the first metric at the best point is at least this good."""
    half_width_max: float | None = None
    """Its interval is at most so wide, to either side."""
    rounds_without_gain: int | None = None


class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What one trial may use. One that uses more is a failed result."""

    seconds: float = 60.0
    memory_bytes: int = 1 << 30
    output_bytes: int = 1 << 20


class Plan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A study, as it is stored."""

    study: str
    simulator: str
    version: str
    parameters: tuple[Parameter, ...]
    metrics: tuple[Metric, ...]
    seeds: tuple[int, ...]
    budget: int
    """Trials at most."""
    about: str = ""
    command: tuple[str, ...] = ()
    """What to run, if the simulator is a command."""
    fixed: Settings = {}
    """Parameters that are the same everywhere."""
    search: Search = Search()
    stop: Stop = Stop()
    baseline: Settings | None = None
    """A point to compare with. It is run too."""
    limits: Limits = Limits()
    deadline_seconds: float | None = None
    """From the start; then the report is written of what is there."""
    confidence: float = 0.95
    interval: Literal["t", "bootstrap"] = "t"
    runs_on: Literal["workers", "spark"] = "workers"


class Trial(msgspec.Struct, frozen=True):
    """One run of the simulator."""

    id: str
    parameters: Settings
    seed: int


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message to the workers: everything that is needed for one."""

    study: str
    id: str
    simulator: str
    version: str
    parameters: Settings
    seed: int
    metrics: tuple[str, ...] = ()
    """What it must return, at least."""
    command: tuple[str, ...] = ()
    limits: Limits = Limits()
    again: bool = False
    """It may have been sent before: look for its result first."""


def read_plan(raw: object) -> Plan:
    """The plan that somebody wrote. `Invalid` says what is wrong with it, and what would be right.

    `seeds` may be a number of seeds; they then follow from `seed` (0 if it is not given), not from any order.
    """
    if not isinstance(raw, Mapping):
        raise Invalid("a plan is an object with study, simulator, parameters, metrics, seeds and budget")
    given = dict(raw)
    base, seeds = given.pop("seed", 0), given.get("seeds", 1)
    if not isinstance(base, int) or isinstance(base, bool):
        raise Invalid(f"seed must be a whole number, not {base!r}")
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        if not 1 <= seeds <= SEEDS_MAX:
            raise Invalid(f"seeds must be 1 to {SEEDS_MAX:,}, not {seeds}")
        given["seeds"] = [seed_of(base, number) for number in range(seeds)]
    if "command" in given:
        if not given["command"]:
            raise Invalid("a command has at least one word")
        given.setdefault("simulator", COMMAND)
        if not given.get("version"):
            raise Invalid(
                "a command needs a version, which is part of every trial's name; change it when the command does"
            )
    given.setdefault("version", "")
    try:
        found = msgspec.convert(given, Plan)
    except (msgspec.ValidationError, RecursionError) as error:
        raise Invalid(f"the plan cannot be read: {error}") from None
    return check_plan(found)


def with_version(plan: Plan, version: str) -> Plan:
    """The plan for this version of its simulator."""
    if plan.version and version and plan.version != version:
        raise Invalid(
            f"the plan is for version {plan.version!r} of {plan.simulator!r}, and version {version!r} is installed "
            "here; change the plan and its study's name, or install the other version"
        )
    return msgspec.structs.replace(plan, version=plan.version or version or "0")


def seed_of(base: int, number: int) -> int:
    """A seed that depends on its number and on nothing else."""
    return int.from_bytes(hashlib.sha256(f"seed {base} {number}".encode()).digest()[:6])


def check_plan(plan: Plan) -> Plan:
    """The plan itself, if it can be carried out."""
    if not NAME.match(plan.study):
        raise Invalid(
            f"study must be 1 to 64 of a-z, 0-9, dot, dash and underline, beginning with a letter or digit, not "
            f"{plan.study[:80]!r}"
        )
    if (plan.simulator == COMMAND) != bool(plan.command):
        raise Invalid("a plan has either a simulator or a command, with at least one word")
    if plan.simulator != COMMAND:
        simulators.where_of(plan.simulator)
    if len(plan.about) > TEXT_CHARS_MAX or len(plan.version) > 64:
        raise Invalid(f"about may have {TEXT_CHARS_MAX:,} characters, and version 64")
    if not 1 <= plan.budget <= BUDGET_MAX:
        raise Invalid(f"budget must be 1 to {BUDGET_MAX:,} trials, not {plan.budget}")
    if not plan.metrics:
        raise Invalid("a plan needs a metric: what the simulator returns that matters")
    if not plan.seeds or len(plan.seeds) > SEEDS_MAX:
        raise Invalid(f"a plan needs 1 to {SEEDS_MAX:,} seeds")
    _distinct([each.name for each in plan.parameters] + list(plan.fixed), "parameters")
    _distinct([each.name for each in plan.metrics], "metrics")
    _distinct([str(each) for each in plan.seeds], "seeds")
    for parameter in plan.parameters:
        _check_parameter(parameter)
    for name, value in plan.fixed.items():
        _check_value(value, f"fixed {name}")
    _check_baseline(plan)
    _check_numbers(plan)
    _check_search(plan)
    return plan


def _distinct(names: list[str], what: str) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise Invalid(f"{what} must be different, and {twice!r} is there twice")
    odd = next((name for name in names if what != "seeds" and not WORD.match(name)), None)
    if odd is not None:
        raise Invalid(f"names of {what} are letters, digits and underlines, not {odd[:80]!r}")


def _check_value(value: Setting, what: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise Invalid(f"{what} must be a number that JSON has, not {value}")
    if isinstance(value, str) and len(value) > 200:
        raise Invalid(f"{what} may have 200 characters, not {len(value)}")


def _check_parameter(parameter: Parameter) -> None:
    what = f"parameter {parameter.name!r}"
    low, high = parameter.low, parameter.high
    if parameter.values:
        if low is not None or high is not None:
            raise Invalid(f"{what} has values and a range; give one of them")
        for value in parameter.values:
            _check_value(value, what)
        if len({canonical(value) for value in parameter.values}) < len(parameter.values):
            raise Invalid(f"{what} has a value twice")
        return
    if low is None or high is None:
        raise Invalid(f"{what} has nothing to choose from: give it values, or low and high")
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise Invalid(f"{what} needs a low that is less than its high, not {low} and {high}")
    if parameter.log and low <= 0:
        raise Invalid(f"{what} is spread by ratio, so its low must be more than 0, not {low}")
    if parameter.integer and (low != int(low) or high != int(high)):
        raise Invalid(f"{what} is a whole number, so its low and high must be, too")


def _check_baseline(plan: Plan) -> None:
    if plan.baseline is None:
        return
    wanted = {each.name for each in plan.parameters}
    if set(plan.baseline) != wanted:
        raise Invalid(f"the baseline must have a value for each parameter: {', '.join(sorted(wanted))}")
    for name, value in plan.baseline.items():
        _check_value(value, f"baseline {name}")


def _check_numbers(plan: Plan) -> None:
    _check_limits(plan.limits)
    if plan.deadline_seconds is not None and not 0 < plan.deadline_seconds <= 366 * 86_400:
        raise Invalid(f"deadline_seconds must be more than 0 and at most a year, not {plan.deadline_seconds}")
    if not 0.5 <= plan.confidence < 1:
        raise Invalid(f"confidence must be from 0.5 to below 1, not {plan.confidence}")
    for name in ("better_than", "half_width_max"):
        value = getattr(plan.stop, name)
        if value is not None and not math.isfinite(value):
            raise Invalid(f"stop.{name} must be a number that JSON has, not {value}")


def _check_limits(limits: Limits) -> None:
    if not (0 < limits.seconds <= 86_400 and limits.memory_bytes >= 1 << 20 and limits.output_bytes >= 1):
        raise Invalid("limits: seconds up to 86,400, memory_bytes from 1 MiB, output_bytes from 1")


def _check_search(plan: Plan) -> None:
    search = plan.search
    if not plan.parameters and search.by != "grid":
        raise Invalid(f"there is nothing to search by {search.by} without parameters")
    for name in ("points", "steps", "rounds_max"):
        if not 1 <= getattr(search, name) <= POINTS_MAX:
            raise Invalid(f"search.{name} must be 1 to {POINTS_MAX:,}, not {getattr(search, name)}")
    if search.by == "grid":
        size = math.prod(len(each.values) or search.steps for each in plan.parameters)
        if size > POINTS_MAX:
            raise Invalid(f"the grid has {size:,} points, and {POINTS_MAX:,} are allowed; use fewer steps, or sobol")
    if search.by == "halving":
        if search.keep < 2:
            raise Invalid("search.keep must be 2 or more: of so many points halving promotes one")
        if search.resource and not 1 <= search.resource_low <= search.resource_high:
            raise Invalid("halving by a parameter needs resource_low from 1 and a resource_high of at least that")
        if search.resource in {each.name for each in plan.parameters} | set(plan.fixed):
            raise Invalid(f"halving sets {search.resource!r} itself; take it out of the parameters")


def canonical(value: object) -> str:
    """JSON with one spelling: keys in order, no white space."""
    return msgspec.json.encode(value, order="sorted").decode()


def trial_id(what: Plan | Job, parameters: Settings, seed: int) -> str:
    """The name of a trial: the hash of simulator, version, parameters and seed, and of nothing else."""
    named = [what.simulator, list(what.command), what.version, parameters, seed]
    return hashlib.sha256(canonical(named).encode()).hexdigest()[:ID_DIGITS]


def read_job(body: object) -> Job:
    """The job that a message holds. `Invalid` if it is not one, or not what its name says."""
    try:
        job = msgspec.convert(body, Job)
    except (msgspec.ValidationError, RecursionError) as error:
        raise Invalid(f"this is not a trial: {error}") from None
    if not NAME.match(job.study):
        raise Invalid(f"this is not a trial: {job.study[:80]!r} is not a study")
    if job.id != trial_id(job, job.parameters, job.seed):
        raise Invalid(f"this is not a trial: its name {job.id[:80]!r} is not the hash of what it is")
    try:
        _check_limits(job.limits)
    except Invalid as error:
        raise Invalid(f"this is not a trial: {error}") from None
    return job


def trial_of(plan: Plan, point: Settings, seed: int) -> Trial:
    parameters = dict(sorted({**plan.fixed, **point}.items()))
    return Trial(trial_id(plan, parameters, seed), parameters, seed)


def job_of(plan: Plan, trial: Trial, *, again: bool = False) -> Job:
    return Job(
        study=plan.study,
        id=trial.id,
        simulator=plan.simulator,
        version=plan.version,
        parameters=trial.parameters,
        seed=trial.seed,
        metrics=tuple(each.name for each in plan.metrics),
        command=plan.command,
        limits=plan.limits,
        again=again,
    )


def grid(plan: Plan) -> list[Settings]:
    """Every combination, the last parameter changing fastest."""
    axes = [each.values or tuple(spread(each, plan.search.steps)) for each in plan.parameters]
    return [
        dict(zip((each.name for each in plan.parameters), values, strict=True)) for values in itertools.product(*axes)
    ]


def spread(parameter: Parameter, steps: int) -> list[Setting]:
    """So many values over the range of a parameter, both ends included; fewer if it has no more whole numbers."""
    found = [at(parameter, number / (steps - 1) if steps > 1 else 0.5) for number in range(steps)]
    return list(dict.fromkeys(found))


def at(parameter: Parameter, share: float) -> Setting:
    """The value of a parameter at a share, 0 to 1, of its range or of its list."""
    if parameter.values:
        return parameter.values[min(int(share * len(parameter.values)), len(parameter.values) - 1)]
    assert parameter.low is not None and parameter.high is not None
    if parameter.log:
        value = math.exp(math.log(parameter.low) + share * (math.log(parameter.high) - math.log(parameter.low)))
    else:
        value = parameter.low + share * (parameter.high - parameter.low)
    value = min(max(value, parameter.low), parameter.high)
    return round(value) if parameter.integer else float(f"{value:.10g}")
