"""Stopping workers by signal, in a program that may have signal handlers of its own.

Signals belong to the whole process, so what is known about them here does too: the workers to stop, and the handlers
that were there before the first of them began.
"""

from __future__ import annotations

import asyncio
import functools
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Protocol, Self

SIGNALS = (signal.SIGTERM, signal.SIGINT)

_active: list[StopOnSignal] = []
_before: dict[int, Any] = {}
"""What handled a signal before we did, for the signals that we handle now. Changed by the main thread only."""


class Stoppable(Protocol):
    """A worker or a notifier."""

    def stop(self) -> None: ...


class StopOnSignal:
    """While it lasts, SIGTERM and SIGINT ask the worker to stop instead of ending the process.

    Only in the main thread. A handler that the program has installed is called as well, and is put back at the end.
    Inside an event loop such a handler is somebody's way to stop the whole program, as a web server's is: there the
    signal is left alone, and the program stops the worker by cancelling it or closing the bucket.
    """

    def __init__(self, *, active: bool) -> None:
        self._active = active and threading.current_thread() is threading.main_thread()
        self._work: Stoppable | None = None
        self._told = False

    def watch(self, work: Stoppable) -> None:
        """The worker to stop; at once, if the signal came while it was being set up."""
        self._work = work
        if self._told:
            work.stop()

    def tell(self) -> None:
        self._told = True
        if self._work is not None:
            # Latches take locks that the interrupted code may hold, so another thread opens them.
            threading.Thread(target=self._work.stop, name="bucketmq-stop").start()

    def __enter__(self) -> Self:
        if self._active:
            _active.append(self)
            for number in SIGNALS:
                _take(number)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._active:
            _active.remove(self)
            if not _active:
                _put_back()


def _take(number: int) -> None:
    """Handle this signal from now on, unless somebody does who must not be disturbed."""
    before = signal.getsignal(number)
    if before == _on_signal or (number in _before and len(_active) > 1):
        return  # we do already, perhaps below somebody who came later
    if before is None or (not _is_default(before) and _is_in_event_loop()):
        return  # None: installed by something that is not Python, so it could not be put back
    _before[number] = before
    signal.signal(number, _on_signal)


def _put_back() -> None:
    for number in list(_before):
        if signal.getsignal(number) == _on_signal:  # otherwise somebody came later, and stays
            signal.signal(number, _before.pop(number))


def _on_signal(number: int, frame: FrameType | None) -> None:
    if not _active:  # somebody who came later has put us back, after our last worker had ended
        signal.signal(number, _before.pop(number, signal.SIG_DFL))
        signal.raise_signal(number)
        return
    for each in _active:
        each.tell()
    before = _before.get(number)
    if callable(before) and not _is_default(before):
        before(number, frame)


def _is_default(handler: Any) -> bool:
    """Whether this is what Python or its event loop does if nobody says otherwise: end the process, or interrupt."""
    if isinstance(handler, functools.partial):
        return isinstance(getattr(handler.func, "__self__", None), asyncio.Runner)
    return handler in (signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler)


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
