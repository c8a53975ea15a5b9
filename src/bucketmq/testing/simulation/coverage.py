"""What a swarm must have met. A run that never met one of these proves nothing about it, and fails."""

from __future__ import annotations

from collections.abc import Mapping

from bucketmq.testing.simulation.faults import KINDS

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


def missing(faults: Mapping[str, int], covered: Mapping[str, int]) -> list[str]:
    """The fault kinds and transitions that were never met."""
    return [kind for kind in KINDS if not faults.get(kind)] + [name for name in TRANSITIONS if not covered.get(name)]
