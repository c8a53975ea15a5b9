"""The store's clock, carried forward by a local one.

Workers' wall clocks need not agree: leases are judged by the time the store stamps on what is written to it. Each own
write whose stamp we see narrows where the store's clock can be. In between, a local clock counts on: a monotonic one
for a store elsewhere, the wall clock for a store on this machine, because the store itself goes by it. A correction of
the machine's clock is then followed at once, also by a process that only reads.
"""

from __future__ import annotations

import threading
import time


def monotonic() -> float:
    """Seconds that also pass while the machine sleeps, where the system has such a clock."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.clock_gettime(boot) if boot is not None else time.monotonic()


WRITE_SECONDS_MAX = 60.0
"""A local write that seems to take longer, or less than no time, was under way when the wall clock was set."""


class StoreClock:
    """An interval in which (store time - local time) must lie; `now` takes its middle."""

    def __init__(self, *, precision_seconds: float, local: bool) -> None:
        self._local = local
        self._lock = threading.Lock()
        self._precision = precision_seconds
        wall = time.time() - self.tick()
        self._low, self._high = wall, wall
        self._learnt = False

    def tick(self) -> float:
        """The local clock that carries this one."""
        return time.time() if self._local else monotonic()

    def now(self) -> float:
        return self.tick() + (self._low + self._high) / 2

    @property
    def learnt(self) -> bool:
        return self._learnt

    @property
    def skew_seconds(self) -> float:
        """How far this machine's wall clock is ahead of the store's."""
        return time.time() - self.now()

    def observe(self, stored_at: float, before: float, after: float) -> None:
        """A write that began at `before` and returned at `after`, by `tick`, was stamped `stored_at` by the store."""
        if self._local and not 0 <= after - before <= WRITE_SECONDS_MAX:
            return
        low, high = stored_at - after, stored_at + self._precision - before
        with self._lock:
            narrowed = max(low, self._low), min(high, self._high)
            if self._learnt and narrowed[0] <= narrowed[1]:
                self._low, self._high = narrowed
            else:
                self._low, self._high = low, high
            self._learnt = True
