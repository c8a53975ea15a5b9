"""Many seeds of the event bus at once, in processes, and what they add up to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from bucketmq.testing.simulation.bus import coverage
from bucketmq.testing.simulation.bus.plan import LEVEL, Tilt
from bucketmq.testing.simulation.bus.run import Report, run_seed
from bucketmq.testing.simulation.swarm import Failure, add_up


class Totals:
    """The sum of many reports."""

    def __init__(self) -> None:
        self.seeds = self.messages = self.requests = self.arrivals = self.repeated = 0
        self.virtual_seconds = 0.0
        self.drain_seconds_max = 0.0
        self.faults: Counter[str] = Counter()
        self.covered: Counter[str] = Counter()
        self.failures: list[Failure] = []

    def add(self, report: Report) -> None:
        self.seeds += 1
        for name in ("messages", "requests", "arrivals", "repeated", "virtual_seconds"):
            setattr(self, name, getattr(self, name) + getattr(report, name))
        self.drain_seconds_max = max(self.drain_seconds_max, report.drain_seconds)
        self.faults.update(report.faults)
        self.covered.update(report.covered)
        if report.problems:
            self.failures.append(Failure(report.seed, report.problems, option=" --bus"))

    @property
    def missing(self) -> list[str]:
        """What should have been met and was not."""
        return coverage.missing(self.faults, self.covered)

    def summary(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {
            "seeds": self.seeds,
            "events": self.messages,
            "arrivals": self.arrivals,
            "repeated": self.repeated,
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
    seeds: Iterable[int], *, jobs: int = 1, tilt: Tilt = LEVEL, progress: Callable[[str], None] = lambda _: None
) -> Totals:
    """Run all of `seeds` in `jobs` processes and add them up. What fails is told to `progress` at once."""
    return add_up(Totals(), list(seeds), partial(run_seed, tilt=tilt), jobs, progress)
