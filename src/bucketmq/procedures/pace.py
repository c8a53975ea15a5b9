"""Going no faster than asked: for procedures that put many things into a log where others wait."""

from __future__ import annotations

from bucketmq.errors import Invalid
from bucketmq.procedures.requests import Now, Pause, Procedure

RATE_PER_SECOND = 1_000.0
RATE_MAX = 1_000_000.0
BATCH = 500


class Pace:
    """So many a second, at most. `batch` is how many are worth a write at this pace."""

    def __init__(self, rate_per_second: float) -> None:
        if not 0 < rate_per_second <= RATE_MAX:
            raise Invalid(f"rate_per_second must be more than 0, at most {RATE_MAX:.0f}, not {rate_per_second}")
        self._rate = rate_per_second
        self._next_at = 0.0
        self.batch = max(1, min(BATCH, int(rate_per_second)))

    def take(self, count: int) -> Procedure[None]:
        """Wait until this many may go."""
        now = yield from Now()
        if now < self._next_at:
            yield from Pause(self._next_at - now)
        self._next_at = max(now, self._next_at) + count / self._rate
