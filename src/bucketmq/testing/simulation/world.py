"""Virtual time and the scheduler: one heap of events, ordered by time and then by chance.

Nothing here waits, and nothing reads a real clock. All chance comes from one seeded generator, so a seed is a history.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

EPOCH = 1_800_000_000.0
"""What the store's clock says when a run begins."""


ASK_EVERY = 8
"""A run asks whether it is over after so many events: asking costs as much as an event."""


class World:
    """Time, chance, what is to happen, and what was counted and traced."""

    def __init__(self, seed: str, *, traced: bool = False) -> None:
        self.now = EPOCH
        self.random = random.Random(seed)
        self.chance = self.random.random
        self.faults: Counter[str] = Counter()
        self.covered: Counter[str] = Counter()
        self.lines: list[str] | None = [] if traced else None
        self.pushed = 0
        self.popped = 0
        self._heap: list[tuple[float, float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._ids = 0

    def after(self, seconds: float, function: Callable[..., None], *arguments: Any) -> None:
        """Call `function` in `seconds`. Events of one moment come in an order that the seed decides."""
        self.pushed = pushed = self.pushed + 1
        heappush(self._heap, (self.now + seconds, self.chance(), pushed, function, arguments))

    def run(self, until: Callable[[], bool], limit: float) -> bool:
        """Let things happen until `until()` holds (asked every few events) or virtual time passes `limit`.

        An event beyond the limit stays in the heap.
        """
        heap = self._heap
        while True:
            if not self.popped % ASK_EVERY and until():
                return True
            if not heap or heap[0][0] > limit:
                over = until()
                self.now = self.now if over else max(self.now, limit)
                return over
            self.now, _, _, function, arguments = heappop(heap)
            self.popped += 1
            function(*arguments)

    @property
    def pending(self) -> int:
        return len(self._heap)

    def new_id(self) -> str:
        self._ids += 1
        return f"{self._ids:06}"

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.chance()

    def note(self, who: str, what: str) -> None:
        """One line of the trace, if there is one."""
        if self.lines is not None:
            self.lines.append(f"{self.now - EPOCH:11.4f}  {who:10}  {what}")
