"""Many seeds of the event bus at once, in processes, and what they add up to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from bucketmq.testing.simulation.bus import coverage
from bucketmq.testing.simulation.bus.plan import LEVEL, Tilt
from bucketmq.testing.simulation.bus.run import run_seed
from bucketmq.testing.simulation.swarm import Sum, add_up


class Totals(Sum):
    """Of the event bus."""

    counted = ("events", "requests", "arrivals", "repeated")
    option = " --bus"

    @property
    def missing(self) -> list[str]:
        """What should have been met and was not."""
        return coverage.missing(self.faults, self.covered)


def swarm(
    seeds: Iterable[int], *, jobs: int = 1, tilt: Tilt = LEVEL, progress: Callable[[str], None] = lambda _: None
) -> Totals:
    """Run all of `seeds` in `jobs` processes and add them up. What fails is told to `progress` at once."""
    return add_up(Totals(), list(seeds), partial(run_seed, tilt=tilt), jobs, progress)
