"""Many seeds at once, in processes, what they add up to, and what they must have met.

A swarm that never met something proves nothing about it, and fails.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any, ClassVar, TypeVar

import msgspec

from bucketmq.testing.simulation.faults import KINDS, Faults
from bucketmq.testing.simulation.plan import LEVEL, Tilt
from bucketmq.testing.simulation.run import run_seed

TRANSITIONS = (
    "fresh to held",
    "fresh to waiting",
    "waiting to held",
    "held to settled by ack",
    "held to waiting by retry",
    "held to waiting by release",
    "held to waiting by expired",
    "held to moving by retry",
    "held to moving by bury",
    "held to moving by expired",
    "held to moving by redrive",
    "moving to gone",
    "extended",
    "aimed",
    "aimed again",
    "move taken over",
    "jump",
    "skipped",
    "fence",
    "fence crossed",
    "shards raised",
    "dedup entry",
    "dedup split",
    "dedup retry",
    "dedup takeover",
    "later group",
    "later group aimed again",
    "later group or redrive taken over",
    "redriven",
    "segment trimmed",
    "dead name created",
    "lane shared",
    "conflict",
    "lease lost",
    "poison",
    "closed",
    "settled by receipt",
    "receipt too late",
    "send unknown",
    "cold send",
    "published",
    "published already",
    "publish unknown",
    "segment of parts",
    "fresh to purged",
    "waiting to purged",
    "held to purged",
)
"""Counted by the auditor and the workload under these names."""

AnyReport = TypeVar("AnyReport")
AnySum = TypeVar("AnySum", bound="Sum")

CHUNK = 20
PROGRESS_SECONDS = 5.0


class Failure(msgspec.Struct, frozen=True):
    """A seed that showed something wrong."""

    seed: int
    problems: list[str]
    option: str = ""
    """Which simulator: ` --bus`, ` --tables` or none."""

    @property
    def replay(self) -> str:
        return f"bucketmq sim{self.option} --seed {self.seed} --trace"

    def __str__(self) -> str:
        return f"seed {self.seed}: {'; '.join(self.problems)}\n  replay: {self.replay}"


class Sum:
    """The sum of many reports. What a simulator counts of its own, its reports have under the same names."""

    counted: ClassVar[tuple[str, ...]]
    states: ClassVar[tuple[str, ...]]
    """What it must have met besides every fault. The auditor and the workload count it under these names."""
    kinds: ClassVar[tuple[str, ...]] = KINDS
    """Of faults."""
    option: ClassVar[str] = ""
    """Of `bucketmq sim`, to replay a seed."""

    def __init__(self) -> None:
        self.seeds = 0
        self.counts: Counter[str] = Counter()
        self.virtual_seconds = 0.0
        self.drain_seconds_max = 0.0
        self.faults: Counter[str] = Counter()
        self.covered: Counter[str] = Counter()
        self.failures: list[Failure] = []

    def __getattr__(self, name: str) -> int:
        if name not in self.counted:
            raise AttributeError(name)
        return self.counts[name]

    @property
    def missing(self) -> list[str]:
        """What should have been met and was not."""
        unmet = [kind for kind in self.kinds if not self.faults[kind]]
        return unmet + [name for name in self.states if not self.covered[name]]

    def add(self, report: Any) -> None:
        self.seeds += 1
        self.counts.update({name: getattr(report, name) for name in self.counted})
        self.virtual_seconds += report.virtual_seconds
        self.drain_seconds_max = max(self.drain_seconds_max, report.drain_seconds)
        self.faults.update(report.faults)
        self.covered.update(report.covered)
        if report.problems:
            self.failures.append(Failure(report.seed, report.problems, self.option))

    def summary(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {
            "seeds": self.seeds,
            **{name: self.counts[name] for name in self.counted},
            "virtual_hours": round(self.virtual_seconds / 3600, 2),
            "drain_seconds_max": round(self.drain_seconds_max, 1),
            "faults": dict(sorted(self.faults.items())),
            "covered": dict(sorted(self.covered.items())),
            "failures": [
                {"seed": each.seed, "problems": each.problems, "replay": each.replay} for each in self.failures
            ],
        }


class Totals(Sum):
    """Of queues."""

    counted = ("messages", "requests", "lost", "unexpected", "duplicated", "recovered", "redeliveries")
    states = TRANSITIONS


def swarm(
    seeds: Iterable[int],
    *,
    jobs: int = 1,
    faults: Faults | None = None,
    tilt: Tilt = LEVEL,
    progress: Callable[[str], None] = lambda _: None,
) -> Totals:
    """Run all of `seeds` in `jobs` processes and add them up. What fails is told to `progress` at once."""
    return add_up(Totals(), list(seeds), partial(run_seed, faults=faults, tilt=tilt), jobs, progress)


def add_up(
    totals: AnySum, seeds: list[int], run: Callable[[int], Any], jobs: int, progress: Callable[[str], None]
) -> AnySum:
    """Run the seeds, add their reports to the totals and tell how far it is, what fails at once."""
    told = time.monotonic()
    for report in reports(seeds, run, jobs):
        totals.add(report)
        if report.problems:
            progress(str(totals.failures[-1]))
        if time.monotonic() - told > PROGRESS_SECONDS:
            told = time.monotonic()
            progress(f"{totals.seeds} seeds, {sum(totals.faults.values())} faults, {len(totals.failures)} failures")
    return totals


def reports(seeds: list[int], run: Callable[[int], AnyReport], jobs: int) -> Iterator[AnyReport]:
    """What `run` says of each seed, in `jobs` processes."""
    run = partial(_uncollected, run)
    if jobs <= 1:
        yield from map(run, seeds)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(run, seeds, chunksize=CHUNK)


def _uncollected(run: Callable[[int], AnyReport], seed: int) -> AnyReport:
    """One seed, with the garbage collector off until it is over: it takes a seventh of the time, and finds nothing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        return run(seed)
    finally:
        if was_on:
            gc.enable()
