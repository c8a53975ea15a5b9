"""Many seeds of the event bus at once, in processes, what they add up to, and what they must have met."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from bucketmq.testing.simulation.bus.plan import LEVEL, WEATHERS, Tilt
from bucketmq.testing.simulation.bus.run import run_seed
from bucketmq.testing.simulation.faults import KINDS
from bucketmq.testing.simulation.swarm import Sum, add_up

STATES = (
    "echo by id (1)",
    "echo of an exact version (2a)",
    "echo of an observed state (2b)",
    "echo of a telling (2c)",
    "echo of a deletion",
    "stale",
    "put recovered from a note",
    "delete recovered from a note",
    "move recovered from a note",
    "put not seen behind a note",
    "put together",
    "delete together",
    "move together",
    "move together contended",
    "move together not_found",
    "part of a batch recovered",
    "posts routed together",
    "move undone",
    "another object in the way",
    "same bytes again",
    "notification repeated",
    "notification given up",
    "breaker opened",
    "breaker tried and failed",
    "breaker closed again",
    "per-event ack",
    "paused by 410",
    "dead letter",
    "sweep superseded",
    "sweep resumed",
    "sweep in several ranges",
    "rule late",
    "rule existing",
    "rule pause",
    "rule remove",
    "rule replay",
    "removed rule tidied",
    "replayed",
    "set complete",
    "set left to another worker",
    "right to fire renewed",
    "deadline fired",
    "audited",
)
"""Counted by the workload, the auditor and the spies under these names."""


class Totals(Sum):
    """Of the event bus."""

    counted = ("events", "requests", "arrivals", "repeated")
    states = STATES
    kinds = (*KINDS, *WEATHERS)
    option = " --bus"


def swarm(
    seeds: Iterable[int], *, jobs: int = 1, tilt: Tilt = LEVEL, progress: Callable[[str], None] = lambda _: None
) -> Totals:
    """Run all of `seeds` in `jobs` processes and add them up. What fails is told to `progress` at once."""
    return add_up(Totals(), list(seeds), partial(run_seed, tilt=tilt), jobs, progress)
