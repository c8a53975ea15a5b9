"""What the results of a study say: estimates at each point, effects against the baseline, the Pareto front, failures.

Pure: a function of the plan, the rounds, the end of the study and the results that count, and of nothing else. How it
reads is `report`'s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from bucketmq.apps.research.plan import Plan, Settings, canonical
from bucketmq.apps.research.planner import points_of
from bucketmq.apps.research.record import Closed, Kind, Result, Round
from bucketmq.apps.research.statistics import Estimate, estimate


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """A combination of parameters, and what came of it."""

    label: str
    parameters: Settings
    results: tuple[str, ...]
    """Its trials that have a result, failed ones included, in the order of their names."""
    failed: tuple[str, ...]
    metrics: dict[str, Estimate]
    effects: dict[str, Effect] = {}
    on_front: bool = False


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """The difference to the baseline, seed by seed."""

    difference: Estimate
    percent: float | None
    """Of the baseline's mean over the same seeds; None where that is zero."""
    results: tuple[str, ...]
    """Of both points: those of the seeds that both have."""

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out zero."""
        low, high = self.difference.low, self.difference.high
        return low is not None and high is not None and (low > 0 or high < 0)


class FailedTrial(msgspec.Struct, frozen=True):
    id: str
    point: str
    kind: Kind
    reason: str


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a report says."""

    plan: Plan
    closed: Closed
    points: tuple[Point, ...]
    best: str | None
    """The label of the point with the best mean of the first metric."""
    baseline: str | None
    planned: int
    results: tuple[str, ...]
    failures: tuple[FailedTrial, ...]
    failures_by_kind: dict[str, int]


def synthesise(plan: Plan, rounds: Sequence[Round], closed: Closed, results: Mapping[str, Result]) -> Findings:
    """What is known in the end. Only results that the end of the study counts are looked at."""
    counted = {id: results[id] for id in sorted(closed.counted)}
    by_point: dict[str, list[Result]] = {}
    for each in counted.values():
        by_point.setdefault(canonical(each.parameters), []).append(each)
    found = points_of(rounds[: closed.rounds], counted)
    baselines = {key: _baseline_of(plan, parameters) for key, parameters in found.items()}
    points = [
        _point(plan, parameters, by_point.get(key, []), by_point.get(baselines[key] or "", []), key == baselines[key])
        for key, parameters in found.items()
    ]
    front = _front(plan, points)
    points = [msgspec.structs.replace(each, on_front=each.label in front) for each in points]
    failures = tuple(
        FailedTrial(each.id, label_of(plan, each.parameters), each.failure.kind, plain_text(each.failure.reason))
        for each in counted.values()
        if each.failure is not None
    )
    return Findings(
        plan=plan,
        closed=closed,
        points=tuple(points),
        best=_best(plan, points),
        baseline=_baseline_label(plan, found),
        planned=len({trial.id for each in rounds[: closed.rounds] for trial in each.trials}),
        results=tuple(counted),
        failures=failures,
        failures_by_kind=dict(sorted(Counter(each.kind for each in failures).items())),
    )


def label_of(plan: Plan, parameters: Settings) -> str:
    """A point as people read it: what is the same everywhere is left out."""
    shown = {name: value for name, value in parameters.items() if name not in plan.fixed}
    return ", ".join(f"{name}={_plain(value)}" for name, value in shown.items()) or "the only point"


def _plain(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.10g}"
    return plain_text(value if isinstance(value, str) else canonical(value))


def plain_text(text: str) -> str:
    """A text of others on one line, without what a page or a terminal could take for its own."""
    return "".join(each if each.isprintable() and each not in "`|<>[]\\" else "?" for each in text)


def _baseline_of(plan: Plan, parameters: Settings) -> str | None:
    """The spelling of the point that a point is compared with: the baseline, with the same resource."""
    if plan.baseline is None:
        return None
    resource = plan.search.resource
    same = {resource: parameters[resource]} if resource and resource in parameters else {}
    return canonical(dict(sorted({**plan.fixed, **plan.baseline, **same}.items())))


def _baseline_label(plan: Plan, found: Mapping[str, Settings]) -> str | None:
    """Where halving grows a resource there are several; the one with most of it."""
    labels = [label_of(plan, each) for key, each in found.items() if key == _baseline_of(plan, each)]
    return labels[-1] if labels else None


def _point(
    plan: Plan, parameters: Settings, results: Sequence[Result], baseline: Sequence[Result], is_baseline: bool
) -> Point:
    label = label_of(plan, parameters)
    metrics: dict[str, Estimate] = {}
    effects: dict[str, Effect] = {}
    for metric in plan.metrics:
        values = [each.metrics[metric.name] for each in results if metric.name in each.metrics]
        if values:
            metrics[metric.name] = _estimate(plan, values, f"{label} {metric.name}")
        if baseline and not is_baseline:
            effect = _effect(plan, metric.name, results, baseline, label)
            if effect is not None:
                effects[metric.name] = effect
    return Point(
        label=label,
        parameters=parameters,
        results=tuple(each.id for each in results),
        failed=tuple(each.id for each in results if each.failure is not None),
        metrics=metrics,
        effects=effects,
    )


def _estimate(plan: Plan, values: Sequence[float], about: str) -> Estimate:
    return estimate(values, confidence=plan.confidence, how=plan.interval, about=f"{plan.study} {about}")


def _effect(
    plan: Plan, metric: str, results: Sequence[Result], baseline: Sequence[Result], label: str
) -> Effect | None:
    by_seed = {each.seed: each for each in baseline if metric in each.metrics}
    pairs = [(each, by_seed[each.seed]) for each in results if metric in each.metrics and each.seed in by_seed]
    if not pairs:
        return None
    difference = _estimate(
        plan, [ours.metrics[metric] - theirs.metrics[metric] for ours, theirs in pairs], f"effect {label} {metric}"
    )
    # In the order of the baseline's own names: the same sum wherever the same seeds are compared.
    theirs = sorted((each for _, each in pairs), key=lambda each: each.id)
    mean = _estimate(plan, [each.metrics[metric] for each in theirs], "").mean
    return Effect(
        difference=difference,
        percent=100 * difference.mean / mean if mean else None,
        results=tuple(sorted({each.id for pair in pairs for each in pair})),
    )


def _best(plan: Plan, points: Sequence[Point]) -> str | None:
    metric = plan.metrics[0]
    sign = 1 if metric.goal == "min" else -1
    having = [each for each in points if metric.name in each.metrics]
    if plan.search.resource and having:  # a long run and a short one are not compared
        most = max(float(each.parameters.get(plan.search.resource, 0)) for each in having)
        having = [each for each in having if float(each.parameters.get(plan.search.resource, 0)) == most]
    if not having:
        return None
    return min(having, key=lambda each: (sign * each.metrics[metric.name].mean, each.label)).label


def _front(plan: Plan, points: Sequence[Point]) -> set[str]:
    """The points that no other is at least as good as in all metrics, and better in one."""
    if len(plan.metrics) < 2:
        return set()
    signs = [1 if each.goal == "min" else -1 for each in plan.metrics]
    names = [each.name for each in plan.metrics]
    rows = {
        each.label: tuple(sign * each.metrics[name].mean for sign, name in zip(signs, names, strict=True))
        for each in points
        if all(name in each.metrics for name in names)
    }
    return {
        label
        for label, row in rows.items()
        if not any(
            other != row and all(theirs <= ours for theirs, ours in zip(other, row, strict=True))
            for other in rows.values()
        )
    }
