"""The numbers of the demo."""

from __future__ import annotations

from typing import Any

QUEUE = "demo"
PRODUCERS = 2
WORKERS = 4
CONCURRENCY = 4

LEASE_SECONDS = 3.0
SETTINGS: dict[str, Any] = {
    "shards": 2,
    "lease_seconds": LEASE_SECONDS,
    "attempts_max": 4,
    "backoff": {"first_seconds": 0.3, "factor": 2.0, "max_seconds": 2.0},
}

SEND_SECONDS = 12.0
SEND_MESSAGES_MAX = 2_000
"""Of each producer, which stops at this or when its time is over."""
SEND_BATCH = 25
SEND_EVERY_SECONDS = 0.15

WORK_SECONDS = 0.04
SLOW_SECONDS = 4.0
"""Longer than the lease: the heartbeat keeps it."""
POISON_EVERY = 97
SLOW_EVERY = 211

FREEZE_AT = 0.25
"""Parts of the sending time."""
KILL_AT = 0.6
FREEZE_SECONDS = 2 * LEASE_SECONDS
FROZEN = "worker-2"
KILLED = "worker-3"

GIVE_UP_SECONDS = 60.0
"""After the last send: a queue that is not empty by then is a failure."""


def kind_of(number: int) -> str:
    """What a producer's message number `number` is like."""
    if number % POISON_EVERY == 0:
        return "poison"
    return "slow" if number % SLOW_EVERY == 0 else "plain"
