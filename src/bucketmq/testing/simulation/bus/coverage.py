"""What a swarm of the event bus must have met. A run that never met one of these proves nothing about it, and fails."""

from __future__ import annotations

from collections.abc import Mapping

from bucketmq.testing.simulation.bus.plan import WEATHERS
from bucketmq.testing.simulation.faults import KINDS

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


def missing(faults: Mapping[str, int], covered: Mapping[str, int]) -> list[str]:
    """The faults and states that were never met."""
    return [kind for kind in (*KINDS, *WEATHERS) if not faults.get(kind)] + [
        name for name in STATES if not covered.get(name)
    ]
