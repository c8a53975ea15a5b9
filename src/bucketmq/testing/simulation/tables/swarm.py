"""Many seeds of tables at once, in processes, what they add up to, and what they must have met."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from bucketmq.testing.simulation.faults import Faults
from bucketmq.testing.simulation.swarm import Sum, add_up
from bucketmq.testing.simulation.tables.run import run_seed

STATES = (
    "already applied",
    "commit unavailable",
    "committed again after a death",
    "file removed",
    "numbered",
    "read",
    "rode together",
    "several shards",
    "shard split",
    "snapshot read",
    "stale",
)


class Totals(Sum):
    """Of tables."""

    counted = ("commits", "requests")
    states = STATES
    option = " --tables"


def swarm(
    seeds: Iterable[int],
    *,
    jobs: int = 1,
    faults: Faults | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Totals:
    """Run all of `seeds` in `jobs` processes and add them up. What fails is told to `progress` at once."""
    return add_up(Totals(), list(seeds), partial(run_seed, faults=faults), jobs, progress)
