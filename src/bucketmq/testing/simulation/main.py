"""What `bucketmq sim` calls: one seed with its trace, many seeds, or the planted bugs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from bucketmq.testing.simulation.mutants import MUTANTS, hunt
from bucketmq.testing.simulation.plan import draw
from bucketmq.testing.simulation.run import run_seed
from bucketmq.testing.simulation.swarm import swarm

COVERAGE_SEEDS = 1_000
"""With this many seeds or more, something never met is a failure."""


def trace(seed: int) -> list[str]:
    """One history line by line: the plan, then every request as it lands, every fault, and what the auditor said."""
    return [_plan(seed), *(run_seed(seed, traced=True).trace or [])]


def _plan(seed: int) -> str:
    return msgspec.json.format(msgspec.json.encode(draw(seed)), indent=1).decode()


def main_run(
    *,
    seed: int | None = None,
    seeds: int = 1_000,
    first_seed: int = 0,
    jobs: int = 1,
    trace: bool = False,
    mutants: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Run the simulator and sum up. `failures` in the answer is empty if and only if all is well."""
    began = time.monotonic()
    if seed is not None and trace:
        progress(_plan(seed))
        for line in run_seed(seed, traced=True).trace or []:
            progress(line)
    chosen = range(first_seed, first_seed + seeds) if seed is None else [seed]
    totals = swarm(chosen if not mutants else [], jobs=jobs, progress=progress)
    summary = totals.summary()
    if len(chosen) >= COVERAGE_SEEDS and not mutants:
        summary["failures"] += [{"seed": None, "problems": [f"never met: {name}"]} for name in totals.missing]
    if mutants:
        summary["mutants"] = _mutants(progress)
        missed = [name for name, seen in summary["mutants"]["by_name"].items() if seen is None]
        summary["failures"] += [{"seed": None, "problems": [f"planted bug not seen: {name}"]} for name in missed]
    summary["wall_seconds"] = round(time.monotonic() - began, 2)
    return summary


def _mutants(progress: Callable[[str], None]) -> dict[str, Any]:
    seen: dict[str, int | None] = {}
    for mutant in MUTANTS:
        found = hunt(mutant)
        seen[mutant.name] = found.seed
        progress(f"{'MISSED' if found.seed is None else f'seed {found.seed}':>9}  {mutant.name}: {found.problem}")
    caught = sum(seed is not None for seed in seen.values())
    return {"score": f"{caught}/{len(seen)}", "by_name": seen}
