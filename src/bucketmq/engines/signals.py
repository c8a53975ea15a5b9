"""Stopping a worker by signal."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Protocol, Self


class Stoppable(Protocol):
    """A worker or a notifier."""

    def stop(self) -> None: ...


class StopOnSignal:
    """While it lasts, SIGTERM and SIGINT ask the worker to stop instead of ending the process."""

    def __init__(self, *, active: bool) -> None:
        self._active = active and threading.current_thread() is threading.main_thread()
        self._before: dict[signal.Signals, Any] = {}
        self._work: Stoppable | None = None
        self._told = False

    def watch(self, work: Stoppable) -> None:
        """The worker to stop; at once, if the signal came while it was being set up."""
        self._work = work
        if self._told:
            work.stop()

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self._told = True
        if self._work is not None:
            # Latches take locks that the interrupted code may hold, so another thread opens them.
            threading.Thread(target=self._work.stop, name="bucketmq-stop").start()

    def __enter__(self) -> Self:
        if self._active:
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._stop)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
