"""The settings of a queue: numbers and switches a user tunes. Stored as `queue.json`."""

from __future__ import annotations

import re

import msgspec
from msgspec import UNSET, UnsetType

from bucketmq.errors import Invalid
from bucketmq.values import Value

FORMAT = 1
"""The format version of everything this release writes; see `docs/format`."""

SHARDS_MAX = 1024
SECONDS_MAX = 3_153_600_000
"""A hundred years. JSON cannot hold infinity, so "for ever" needs a number."""

LEASE_SECONDS_MIN = 0.1
LEASE_SECONDS_MAX = 12 * 3600.0

DEAD_SUFFIX = ".dead"
MAIN = "main"
"""The subscription that `queue.receive()` uses."""
EVERYBODY = "*"
"""Stands for all subscriptions where a pause is noted; no subscription can have this name."""
WHY_CHARS_MAX = 500

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,79}\Z")


class Backoff(Value, msgspec.Struct, frozen=True):
    """How long a failed message waits before its next attempt: `first * factor ** (attempt - 1)`, capped, jittered."""

    first_seconds: float = 1.0
    factor: float = 4.0
    max_seconds: float = 3600.0
    jitter: float = 0.2

    def seconds(self, attempt: int, chance: float) -> float:
        """The wait after `attempt` failed; `chance` is in [0, 1) and moves it by at most `jitter` either way."""
        plain = min(self.max_seconds, self.first_seconds * self.factor ** min(attempt - 1, 60))
        return plain * (1 + self.jitter * (2 * chance - 1))


class Fences(msgspec.Struct, frozen=True):
    """One raise of the shard count of an ordered queue: where in each old shard the raise happened.

    `at` is empty until every old shard has its fence. See `procedures.sending.shards`.
    """

    shards_before: int
    at: tuple[int, ...] = ()


class Settings(Value, msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """What `queue.json` holds."""

    format: int = FORMAT
    shards: int = 1
    shards_max: int = 0
    """Workers may raise `shards` up to this when they collide too often; 0 means never."""
    ordered: bool = False
    """Per key: one message in flight, in the order sent."""
    lease_seconds: float = 60.0
    attempts_max: int = 5
    backoff: Backoff = Backoff()
    dedup_seconds: float = 300.0
    keep_seconds: float = 86400.0
    """Settled messages stay readable for at least this long."""
    expire_seconds: float = 0.0
    """Messages older than this are dropped even if nobody settled them; 0 means never."""
    inline_bytes_max: int = 65536
    """Bodies larger than this get an object of their own."""
    main: bool = True
    """Whether the subscription `main` exists from the beginning, so that nothing goes before it was settled there."""
    in_flight_max: int = 10_000
    """Per shard and subscription: messages handed out or waiting for a retry."""
    fences: tuple[Fences, ...] = ()
    paused: dict[str, str] | UnsetType = UNSET
    """Why nothing is handed out, by subscription, `*` for all of them; absent while nothing is paused."""

    def pause_of(self, subscription: str) -> str | None:
        """Why nothing is handed out to this subscription; None if messages are."""
        paused = self.paused or {}
        return paused.get(EVERYBODY, paused.get(subscription))


TUNABLE = frozenset(
    {
        "shards",
        "shards_max",
        "ordered",
        "lease_seconds",
        "attempts_max",
        "backoff",
        "dedup_seconds",
        "keep_seconds",
        "expire_seconds",
        "inline_bytes_max",
        "in_flight_max",
        "main",
    }
)


def check_name(name: str, what: str) -> str:
    """Raise `Invalid` unless `name` can be part of a key on every store."""
    if not isinstance(name, str) or not _NAME.match(name):
        raise Invalid(f"{what} {str(name)[:100]!r} must be 1 to 80 of A-Z a-z 0-9 _ - . and not begin with a dot")
    return name


def check_settings(settings: Settings) -> Settings:
    """Raise `Invalid` for values that cannot work, saying which and what would."""
    rules = (
        (1 <= settings.shards <= SHARDS_MAX, f"shards must be 1 to {SHARDS_MAX}"),
        (0 <= settings.shards_max <= SHARDS_MAX, f"shards_max must be 0 to {SHARDS_MAX}"),
        (LEASE_SECONDS_MIN <= settings.lease_seconds <= LEASE_SECONDS_MAX, "lease_seconds must be 0.1 to 43200"),
        (1 <= settings.attempts_max <= 1000, "attempts_max must be 1 to 1000"),
        (0 <= settings.dedup_seconds <= SECONDS_MAX, f"dedup_seconds must be 0 to {SECONDS_MAX}"),
        (0 <= settings.keep_seconds <= SECONDS_MAX, f"keep_seconds must be 0 to {SECONDS_MAX}"),
        (0 <= settings.expire_seconds <= SECONDS_MAX, f"expire_seconds must be 0 to {SECONDS_MAX} (0 means never)"),
        (0 <= settings.inline_bytes_max <= 1 << 20, "inline_bytes_max must be 0 to 1048576"),
        (1 <= settings.in_flight_max <= 100_000, "in_flight_max must be 1 to 100000"),
        (0 <= settings.backoff.first_seconds <= SECONDS_MAX, f"backoff.first_seconds must be 0 to {SECONDS_MAX}"),
        (0 <= settings.backoff.max_seconds <= SECONDS_MAX, f"backoff.max_seconds must be 0 to {SECONDS_MAX}"),
        (1 <= settings.backoff.factor <= 100, "backoff.factor must be 1 to 100"),
        (0 <= settings.backoff.jitter <= 1, "backoff.jitter must be 0 to 1"),
    )
    for holds, text in rules:
        if not holds:
            raise Invalid(text)
    return settings
