"""Many seeds of tables at once, in processes, and what they add up to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from bucketmq.testing.simulation.faults import KINDS, Faults
from bucketmq.testing.simulation.swarm import Failure, add_up
from bucketmq.testing.simulation.tables.run import Report, run_seed

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
    "snapshot too old",
    "stale",
)
"""What a swarm must have met besides every fault. Counted by the workload and the auditor under these names."""


class Totals:
    """The sum of many reports."""

    def __init__(self) -> None:
        self.seeds = self.commits = self.requests = 0
        self.virtual_seconds = 0.0
        self.drain_seconds_max = 0.0
        self.faults: Counter[str] = Counter()
        self.covered: Counter[str] = Counter()
        self.failures: list[Failure] = []

    def add(self, report: Report) -> None:
        self.seeds += 1
        self.commits += report.commits
        self.requests += report.requests
        self.virtual_seconds += report.virtual_seconds
        self.drain_seconds_max = max(self.drain_seconds_max, report.drain_seconds)
        self.faults.update(report.faults)
        self.covered.update(report.covered)
        if report.problems:
            self.failures.append(Failure(report.seed, report.problems, option=" --tables"))

    @property
    def missing(self) -> list[str]:
        """What should have been met and was not."""
        return [kind for kind in KINDS if not self.faults[kind]] + [name for name in STATES if not self.covered[name]]

    def summary(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {
            "seeds": self.seeds,
            "commits": self.commits,
            "requests": self.requests,
            "virtual_hours": round(self.virtual_seconds / 3600, 2),
            "drain_seconds_max": round(self.drain_seconds_max, 1),
            "faults": dict(sorted(self.faults.items())),
            "covered": dict(sorted(self.covered.items())),
            "failures": [
                {"seed": each.seed, "problems": each.problems, "replay": each.replay} for each in self.failures
            ],
        }


def swarm(
    seeds: Iterable[int],
    *,
    jobs: int = 1,
    faults: Faults | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Totals:
    """Run all of `seeds` in `jobs` processes and add them up. What fails is told to `progress` at once."""
    return add_up(Totals(), list(seeds), partial(run_seed, faults=faults), jobs, progress)
