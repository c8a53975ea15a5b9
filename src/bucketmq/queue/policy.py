"""The part of a queue's settings that the rules need."""

from __future__ import annotations

import msgspec

from bucketmq.queue.settings import Settings


class Policy(msgspec.Struct, frozen=True):
    attempts_max: int
    in_flight_max: int
    ordered: bool


def policy_of(settings: Settings) -> Policy:
    return Policy(settings.attempts_max, settings.in_flight_max, settings.ordered)
