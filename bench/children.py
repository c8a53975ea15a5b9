"""Processes of a scenario: started together, each reporting one value. What they do is in the scenarios' modules."""

from __future__ import annotations

import multiprocessing
import queue as queues
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.synchronize import Barrier
from typing import Any

START_SECONDS = 60.0
POLL_SECONDS = 1.0

Job = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function of a module, and its arguments. It is called with a function `go` first, see `together`."""


class ChildFailed(Exception):
    """A process of a scenario raised or died; the text has its traceback."""


def together(jobs: Sequence[Job], *, seconds_max: float = 600.0) -> list[Any]:
    """Run each job in a process of its own and return what they return, in order.

    A job gets everything ready, then calls its first argument, `go()`, which returns in all of them at the same time.
    Times taken with `time.monotonic` can be compared between the processes.
    """
    context = multiprocessing.get_context("spawn")  # a store does not survive a fork
    barrier = context.Barrier(len(jobs))
    answers: Any = context.Queue()
    processes = [
        context.Process(target=_child, args=(barrier, answers, place, *job), daemon=True)
        for place, job in enumerate(jobs)
    ]
    for process in processes:
        process.start()
    try:
        found = _gather(processes, answers, time.monotonic() + seconds_max)
        for process in processes:
            process.join(START_SECONDS)
        return found
    finally:
        for process in processes:
            if process.is_alive():
                process.terminate()
                process.join()


def alone(function: Callable[..., Any], *arguments: Any) -> Any:
    """One job in a fresh process, so that nothing that ran before is in its way or in its memory."""
    return together([(function, arguments)])[0]


def _gather(processes: Sequence[Any], answers: Any, deadline: float) -> list[Any]:
    found: dict[int, Any] = {}
    while len(found) < len(processes):
        try:
            place, answer, error = answers.get(timeout=POLL_SECONDS)
        except queues.Empty:
            dead = [place for place, each in enumerate(processes) if each.exitcode and place not in found]
            if dead:
                raise ChildFailed(f"process {dead[0]} ended with code {processes[dead[0]].exitcode}") from None
            if time.monotonic() > deadline:
                raise ChildFailed("the processes took too long and were ended") from None
            continue
        if error:
            raise ChildFailed(error)
        found[place] = answer
    return [found[place] for place in range(len(processes))]


def _child(
    barrier: Barrier, answers: Any, place: int, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    try:
        answer = function(lambda: barrier.wait(START_SECONDS), *arguments)
    except BaseException:
        barrier.abort()
        answers.put((place, None, traceback.format_exc()))
        return
    answers.put((place, answer, ""))
