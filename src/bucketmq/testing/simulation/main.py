"""What `bucketmq sim` calls: one seed with its trace, many seeds, or the planted bugs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from bucketmq.testing.simulation.hunting import Mutant, hunt
from bucketmq.testing.simulation.mutants import MUTANTS, SEEDS_MAX
from bucketmq.testing.simulation.plan import draw
from bucketmq.testing.simulation.run import run_seed
from bucketmq.testing.simulation.swarm import swarm

COVERAGE_SEEDS = 1_000
"""With this many seeds or more, something never met is a failure."""


class Kit(NamedTuple):
    """One simulator: how a seed becomes a plan, a run, a swarm, and what bugs can be planted."""

    draw: Callable[[int], Any]
    run_seed: Callable[..., Any]
    swarm: Callable[..., Any]
    mutants: Iterable[Mutant]
    seeds_max: int
    """How many seeds a mutant may survive before it counts as missed."""


QUEUES = Kit(draw, run_seed, swarm, MUTANTS, SEEDS_MAX)


def trace(seed: int, *, kit: Kit = QUEUES) -> list[str]:
    """One history line by line: the plan, then every request as it lands, every fault, and what the auditor said."""
    plan = msgspec.json.format(msgspec.json.encode(kit.draw(seed)), indent=1).decode()
    return [plan, *(kit.run_seed(seed, traced=True).trace or [])]


def main_run(
    *,
    seed: int | None = None,
    seeds: int = 1_000,
    first_seed: int = 0,
    jobs: int = 1,
    trace: bool = False,
    mutants: bool = False,
    progress: Callable[[str], None] = lambda _: None,
    kit: Kit = QUEUES,
) -> dict[str, Any]:
    """Run the simulator and sum up. `failures` in the answer is empty if and only if all is well."""
    began = time.monotonic()
    if seed is not None and trace:
        for line in _trace(seed, kit=kit):
            progress(line)
    chosen = range(first_seed, first_seed + seeds) if seed is None else [seed]
    totals = kit.swarm(chosen if not mutants else [], jobs=jobs, progress=progress)
    summary: dict[str, Any] = totals.summary()
    if len(chosen) >= COVERAGE_SEEDS and not mutants:
        summary["failures"] += [{"seed": None, "problems": [f"never met: {name}"]} for name in totals.missing]
    if mutants:
        summary["mutants"] = _mutants(kit, progress)
        missed = [name for name, seen in summary["mutants"]["by_name"].items() if seen is None]
        summary["failures"] += [{"seed": None, "problems": [f"planted bug not seen: {name}"]} for name in missed]
    summary["wall_seconds"] = round(time.monotonic() - began, 2)
    return summary


_trace = trace


def _mutants(kit: Kit, progress: Callable[[str], None]) -> dict[str, Any]:
    seen: dict[str, int | None] = {}
    for mutant in kit.mutants:
        found = hunt(mutant, kit.seeds_max)
        seen[mutant.name] = found.seed
        progress(f"{'MISSED' if found.seed is None else f'seed {found.seed}':>9}  {mutant.name}: {found.problem}")
    caught = sum(seed is not None for seed in seen.values())
    return {"score": f"{caught}/{len(seen)}", "by_name": seen}
