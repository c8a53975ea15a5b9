"""The cases beside one another: posts a second, latencies, CPU by part, and the ratios of the same round."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from bench.moderation.running import Case, Took, run
from bench.moderation.sizes import Sizes
from bench.results import Measurement, measured
from bench.table import progress

SCENARIO = "whole"


def compared(sizes: Sizes) -> Iterator[Measurement]:
    """Every case in every round, beginning with another one each time."""
    cases = [Case(classifier, cores) for cores in sizes.cores for classifier in sizes.classifiers]
    found: dict[Case, list[Took]] = {case: [] for case in cases}
    for turn in range(sizes.rounds):
        for case in cases[turn % len(cases) :] + cases[: turn % len(cases)]:
            progress(f"  round {turn + 1}: {case.text} ...")
            found[case].append(run(case, sizes))
    yield from compared_rounds(found, per_second=sizes.per_second)


def compared_rounds(found: Mapping[Case, Sequence[Took]], *, per_second: float) -> Iterator[Measurement]:
    """What was found of each case, one after the other round, and how the cases compare."""
    for case, runs in found.items():
        load = max(each.load for each in runs)
        for each in _about(case, runs, per_second):
            yield msgspec.structs.replace(each, load=load)  # of the case, which ended long ago
    for low, high, what in _pairs(list(found)):
        times = [b.posts_per_second / a.posts_per_second for a, b in zip(found[low], found[high], strict=True)]
        yield measured(SCENARIO, what, times, "×")


def _about(case: Case, runs: Sequence[Took], per_second: float) -> Iterator[Measurement]:
    yield measured(SCENARIO, f"throughput, {case.text}", [each.posts_per_second for each in runs], "posts/s")
    yield measured(SCENARIO, f"cores in use, {case.text}", [each.cores_used for each in runs], "cores")
    for step in runs[0].latencies:
        for share in (0.5, 0.99):
            values = [quantile(each.latencies[step], share) * 1000 for each in runs if each.latencies[step]]
            if values:
                what = f"{step}, p{share * 100:.0f} at {per_second:g} posts/s, {case.text}"
                yield measured(SCENARIO, what, values, "ms")
    for part in runs[0].cpu:
        spent = [each.cpu.get(part, 0.0) * 1000 for each in runs]
        yield measured(SCENARIO, f"CPU of {part}, {case.text}", spent, "ms/post")


def _pairs(cases: Sequence[Case]) -> Iterator[tuple[Case, Case, str]]:
    """What is divided by what."""
    for low in cases:
        for high in cases:
            if low.classifier == high.classifier and low.cores < high.cores:
                yield low, high, f"{high.cores} cores beside {low.cores}, {low.classifier}"
            if low.cores == high.cores and low.classifier == "none" != high.classifier:
                yield low, high, f"{high.classifier} beside none, {low.text.partition(', ')[2]}"


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of the sorted values does not exceed; the nearest one that was measured."""
    return values[max(0, math.ceil(share * len(values)) - 1)]
