"""A lane: many callers of one process, one write at a time, all that wait share the next.

This is the group commit. There is no thread of its own: the caller that finds the lane free carries what has gathered,
the others wait, and when the carrier is done the next one that waits takes over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from bucketmq.errors import Unavailable
from bucketmq.procedures.requests import Latch, Now, Pause, Procedure, Wait

GATHER_PART = 0.15
GATHER_STEP_SECONDS = 0.002
"""A carrier waits for company up to this part of what the last carry took, looking up every so often."""


class Item:
    """Something to be carried. `done` is set by the carrier, or `error`."""

    __slots__ = ("done", "error", "latch")

    def __init__(self) -> None:
        self.done = False
        self.error: BaseException | None = None
        self.latch = Latch()


Cargo = TypeVar("Cargo", bound=Item)
Thing = TypeVar("Thing")


class Lane(Generic[Cargo]):
    """What waits to be carried. Each carrier takes what `fits` allows, from the front."""

    def __init__(self, fits: Callable[[list[Cargo]], int]) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Cargo] = []
        self._busy = False
        self._fits = fits
        self.crowd = 0
        """How many rode together last time."""
        self.seconds = 0.0
        """How long carrying them took."""

    def add(self, item: Cargo) -> None:
        with self._lock:
            self._waiting.append(item)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def begin(self) -> bool:
        """Become the carrier, if nobody is."""
        with self._lock:
            if self._busy:
                return False
            self._busy = True
            return True

    def take(self) -> list[Cargo]:
        with self._lock:
            count = self._fits(self._waiting)
            items, self._waiting = self._waiting[:count], self._waiting[count:]
            self.crowd = len(items)
            return items

    def end(self) -> None:
        """Stop being the carrier and wake the next one."""
        with self._lock:
            self._busy = False
            latch = self._heir()
        latch.open()

    def leave(self, item: Cargo) -> None:
        """Stop waiting. If it was this item's turn to take over, wake another."""
        with self._lock:
            self._waiting = [other for other in self._waiting if other is not item]
            latch = Latch() if self._busy else self._heir()
        latch.open()

    def _heir(self) -> Latch:
        if not self._waiting:
            return Latch()
        heir = self._waiting[0]
        latch, heir.latch = heir.latch, Latch()
        return latch


def share(lane: Lane[Cargo], item: Cargo, carry: Callable[[list[Cargo]], Procedure[None]]) -> Procedure[None]:
    """Have `item` carried, by this caller or another. Raises what the carrying raised."""
    lane.add(item)
    while not item.done:
        latch = item.latch
        if not lane.begin():
            yield from _wait(lane, item, latch)
            continue
        try:
            if not item.done:
                yield from _carry_once(lane, carry)
        finally:
            lane.end()
    if item.error is not None:
        raise item.error


def _wait(lane: Lane[Cargo], item: Cargo, latch: Latch) -> Procedure[None]:
    """Wait to be carried or to take over; a waiter that is stopped hands its place on."""
    try:
        yield from Wait(latch)
    except BaseException:
        lane.leave(item)
        raise


def _carry_once(lane: Lane[Cargo], carry: Callable[[list[Cargo]], Procedure[None]]) -> Procedure[None]:
    began = yield from _gather(lane)
    items = lane.take()
    error: BaseException | None = None
    try:
        yield from carry(items)
    except Exception as raised:
        error = raised
    except BaseException:
        error = Unavailable("the call that carried this one was stopped, so its outcome is unknown")
        raise
    finally:
        for item in items:
            item.error = item.error or error
            item.done = True
            item.latch.open()
    lane.seconds = (yield from Now()) - began


def _gather(lane: Lane[Cargo]) -> Procedure[float]:
    """Wait for company: for those who rode together last time to come back, but only a small part of a carry's time.

    Without it they split into two groups that take turns, each carry half empty.
    """
    now = yield from Now()
    company = lane.crowd + lane.waiting if lane.crowd > 1 else 0
    until = now + GATHER_PART * lane.seconds
    while lane.waiting < company and now < until:
        yield from Pause(min(GATHER_STEP_SECONDS, until - now))
        now = yield from Now()
    return now


class Once(Generic[Thing]):
    """Something made once, however many callers want it at the same time. A failed making is tried again."""

    def __init__(self, make: Callable[[], Procedure[Thing]]) -> None:
        self._make = make
        self._made: list[Thing] = []
        self._lane: Lane[Item] = Lane(len)

    def get(self) -> Procedure[Thing]:
        if not self._made:
            yield from share(self._lane, Item(), self._carry)
        return self._made[0]

    def _carry(self, _: list[Item]) -> Procedure[None]:
        if not self._made:
            self._made.append((yield from self._make()))
