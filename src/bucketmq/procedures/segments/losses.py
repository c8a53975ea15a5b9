"""Losses: offsets whose messages are gone, though nobody settled or trimmed them. The register that remembers them.

A loss is recorded by whoever finds it: a receiver that meets a gap in the log, or a person who mends a queue. The
register decides nothing; `stats` and `doctor` show it, so that a loss is known long after its log line scrolled by.
"""

from __future__ import annotations

import msgspec

from bucketmq.log.layout import QueueKeys
from bucketmq.procedures.requests import Now, Procedure
from bucketmq.procedures.verbs import get_state, update_document
from bucketmq.queue.settings import FORMAT

LOSSES_MAX = 1_000
"""How many gaps are remembered, for each shard; the oldest are forgotten first."""


class Lost(msgspec.Struct, frozen=True, array_like=True):
    """Offsets from `start` up to `stop`, not included, and when their loss was found."""

    start: int
    stop: int
    found_at: float


class Losses(msgspec.Struct, frozen=True):
    """`losses.json`. `version` grows by one with every change."""

    version: int = 0
    lost: dict[int, tuple[Lost, ...]] = {}
    """Shard -> gaps, in the order they were found."""
    format: int = FORMAT

    @property
    def count(self) -> int:
        return sum(each.stop - each.start for gaps in self.lost.values() for each in gaps)


def record_loss(keys: QueueKeys, shard: int, start: int, stop: int) -> Procedure[Losses]:
    """Remember a gap, once. One GET and one PUT."""
    now = yield from Now()

    def with_it(before: Losses) -> Losses:
        gaps = before.lost.get(shard, ())
        if any(each.start <= start and stop <= each.stop for each in gaps):
            return before
        after = (*gaps, Lost(start, stop, round(now, 3)))[-LOSSES_MAX:]
        return Losses(before.version + 1, {**before.lost, shard: after})

    return (yield from update_document(Losses, keys.losses, Losses(), with_it))


def read_losses(keys: QueueKeys) -> Procedure[Losses]:
    return (yield from get_state(keys.losses, Losses()))[0]
