"""How much of everything: `tiny` for the smoke test, `quick` for a minute, `full` for the real numbers."""

from __future__ import annotations

import msgspec


class Sizes(msgspec.Struct, frozen=True):
    """One set of amounts. Times are in seconds."""

    name: str
    repeats: int
    messages: int
    """Sent through a folder end to end, and the backlog that is drained."""
    messages_remote: int
    """The same on SeaweedFS."""
    singles: int
    depths: tuple[int, ...]
    """For both queues."""
    depths_ours: tuple[int, ...]
    """For ours only."""
    cell_seconds: float
    """The longest one cell of the comparison may take."""
    cell_operations: int
    senders: int
    sends_each: int
    workers: int
    shards: int
    contention_seconds: float
    segments: int
    """One-message segments of the queue whose tail is sought."""
    memory_depths: tuple[int, ...]
    memory_batches: int
    idle_seconds: float
    notifications: int
    """Received one by one; ten times as many events come in batches."""
    callers: int
    """Who hand them over at the same time."""
    webhooks: int
    """Requests with one event each; twenty times as many events travel in batches."""
    sweep_keys: tuple[int, ...]
    sweep_keys_remote: tuple[int, ...]
    """The same on SeaweedFS, where filling takes some milliseconds for each key."""
    rules: int
    rules_events: int
    """In the log that so many rules read."""


TINY = Sizes(
    name="tiny",
    repeats=1,
    messages=2_000,
    messages_remote=2_000,
    singles=20,
    depths=(100,),
    depths_ours=(1_000,),
    cell_seconds=0.2,
    cell_operations=10,
    senders=10,
    sends_each=2,
    workers=3,
    shards=2,
    contention_seconds=1.0,
    segments=1_000,
    memory_depths=(1_000, 5_000),
    memory_batches=5,
    idle_seconds=0.5,
    notifications=40,
    callers=4,
    webhooks=30,
    sweep_keys=(300,),
    sweep_keys_remote=(300,),
    rules=10,
    rules_events=200,
)

QUICK = Sizes(
    name="quick",
    repeats=1,
    messages=100_000,
    messages_remote=50_000,
    singles=300,
    depths=(0, 10_000),
    depths_ours=(100_000,),
    cell_seconds=0.6,
    cell_operations=100,
    senders=100,
    sends_each=10,
    workers=8,
    shards=4,
    contention_seconds=6.0,
    segments=50_000,
    memory_depths=(1_000, 200_000),
    memory_batches=100,
    idle_seconds=3.0,
    notifications=2_000,
    callers=64,
    webhooks=1_000,
    sweep_keys=(20_000,),
    sweep_keys_remote=(5_000,),
    rules=100,
    rules_events=2_000,
)

FULL = Sizes(
    name="full",
    repeats=3,
    messages=200_000,
    messages_remote=100_000,
    singles=2_000,
    depths=(0, 1_000, 10_000, 100_000),
    depths_ours=(1_000_000,),
    cell_seconds=4.0,
    cell_operations=500,
    senders=100,
    sends_each=20,
    workers=8,
    shards=4,
    contention_seconds=20.0,
    segments=1_000_000,
    memory_depths=(1_000, 1_000_000),
    memory_batches=400,
    idle_seconds=40.0,
    notifications=20_000,
    callers=64,
    webhooks=5_000,
    sweep_keys=(100_000, 1_000_000),
    sweep_keys_remote=(100_000, 1_000_000),
    rules=100,
    rules_events=20_000,
)

ALL = {sizes.name: sizes for sizes in (TINY, QUICK, FULL)}
BATCH = 1_000
BACKLOG = 100_000
"""Messages whose draining is timed, unless the sizes say fewer."""
