"""The third engine: runs the production procedures on virtual time, in processes that can die, freeze and go wrong.

A process here is what an operating system's is to the others: it has its own memory (the procedures' objects), its own
clock, and any number of procedures running at once. A crash drops all of it between two requests.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from inspect import isgenerator
from typing import Any, Protocol

from bucketmq.bucket.port import Written
from bucketmq.engines.clock import StoreClock
from bucketmq.procedures.requests import (
    Call,
    Chance,
    Copy,
    Create,
    Delete,
    Get,
    IfAbandoned,
    List,
    Look,
    NewId,
    Now,
    Pause,
    Post,
    Remove,
    Rename,
    Replace,
    Spawn,
    StoreRequest,
    Together,
    Wait,
)
from bucketmq.testing.simulation.store import SimStore
from bucketmq.testing.simulation.world import World

_STORE = frozenset({Get, Create, Replace, Delete, List, Look, Remove, Rename, Copy})

PREEMPTED = 0.05
"""How often a procedure that asks for the time is kept waiting: other threads of its process run in between."""

Ended = Callable[[Any, BaseException | None], None]
Asked = tuple[str | None, float, Callable[..., None], tuple[Any, ...]]
"""Of a request under way: its process' fate, when it was asked, and what is called with whom when the answer comes."""


class Network(Protocol):
    """Where a `Post` goes: the answer is delivered as a store's is."""

    def submit(self, who: str, request: Any, deliver: Callable[[Any, BaseException | None], None]) -> None: ...


class Task:
    """One procedure running in a process; `stack` has the handlers it called on top."""

    __slots__ = ("ended", "name", "stack")

    def __init__(self, procedure: Generator[Any, Any, Any], name: str, ended: Ended | None) -> None:
        self.stack = [procedure]
        self.name = name
        self.ended = ended


class Process:
    """A simulated operating system process."""

    def __init__(self, world: World, store: SimStore, name: str, *, skew_seconds: float = 0.0) -> None:
        self.world = world
        self.store = store
        self.name = name
        self.alive = True
        self.frozen_until = 0.0
        self.skew_seconds = skew_seconds
        self.clock: StoreClock | None = None
        """The production code's clock, in scenes that set the store's; None for one that is `skew_seconds` off."""
        self.on_request: Callable[[Process], str | None] = lambda _: None
        """Asked at every store request whether the process dies: "before" it leaves or "after" it landed."""
        self.on_death: Callable[[Process], None] = lambda _: None
        self.http: Network | None = None
        """Who answers `Post`; None where nobody posts."""
        self.broken: BaseException | None = None
        """What ended a procedure that nobody waits for."""
        self._tasks: dict[Task, None] = {}
        self._stalled: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        """What waits for the end of a freeze."""

    def start(self, procedure: Generator[Any, Any, Any], name: str, ended: Ended | None = None) -> None:
        """Run a procedure in this process; `ended` is told how it ended, unless the process dies first."""
        task = Task(procedure, name, ended)
        self._tasks[task] = None
        self.world.after(0.0, self._resume, task, None, None)

    def kill(self) -> None:
        """SIGKILL: nothing that was running does anything any more. What is in flight may still land."""
        if not self.alive:
            return
        self.alive = False
        self.world.note(self.name, "dies")
        for task in self._tasks:
            for procedure in reversed(task.stack):
                try:
                    procedure.close()
                except (RuntimeError, ValueError):  # it wanted to ask for something, or is the one that kills
                    pass
        self.on_death(self)

    def freeze(self, seconds: float) -> None:
        """SIGSTOP for a while."""
        self.world.note(self.name, f"freezes for {seconds:.1f} s")
        self.frozen_until = max(self.frozen_until, self.world.now + seconds)
        self.world.after(seconds, self._thaw)

    def thaw(self) -> None:
        """SIGCONT."""
        self.frozen_until = 0.0
        self._thaw()

    def _thaw(self) -> None:
        if self.frozen_until <= self.world.now:
            stalled, self._stalled = self._stalled, []
            for function, arguments in stalled:
                self.world.after(0.0, function, *arguments)

    def _resume(self, task: Task, value: Any, error: BaseException | None) -> None:
        world = self.world
        if not self.alive:
            return
        if self.frozen_until > world.now:
            self._stalled.append((self._resume, (task, value, error)))
            return
        stack = task.stack
        procedure = stack[-1]
        send = procedure.send
        while True:
            try:
                request = send(value) if error is None else procedure.throw(error)
            except StopIteration as end:
                value, error = end.value, None
                if not self._is_called(task, value, None):
                    return
                procedure = stack[-1]
                send = procedure.send
                continue
            except Exception as raised:
                value, error = None, raised
                if not self._is_called(task, None, raised):
                    return
                procedure = stack[-1]
                send = procedure.send
                continue
            error = None
            kind = type(request)
            if kind is Now:
                value = world.now + self.skew_seconds if self.clock is None else self.clock.now()
                if world.chance() < PREEMPTED:
                    world.after(0.0, self._resume, task, value, None)
                    return
            elif kind in _STORE:
                self._ask(self.store, request, self._resume, task)
                return
            elif kind is Wait:
                self._wait(task, request)
                return
            elif kind is Pause:
                world.after(request.seconds, self._resume, task, None, None)
                return
            elif kind is Chance:
                value = world.chance()
            elif kind is Together:
                self._together(task, request.requests)
                return
            elif kind is NewId:
                value = world.new_id()
            elif kind is Post:
                assert self.http is not None, "this process has no network"
                self._ask(self.http, request, self._resume, task)
                return
            elif kind is Spawn:
                value = None
                self.start(request.procedure, request.name)
            elif kind is Call:
                value, error = _call(request)
                if self._is_dead():
                    return
                if isgenerator(value):
                    procedure = value
                    send = procedure.send
                    stack.append(procedure)
                    value = None
            elif kind is IfAbandoned:
                value = None  # callers stay here until their process dies
            else:
                raise AssertionError(request)

    def _is_called(self, task: Task, value: Any, error: BaseException | None) -> bool:
        """Whether the procedure that has just ended was called by another one of its task; if not, the task ends."""
        task.stack.pop()
        if not task.stack:
            self._end(task, value, error)
        return bool(task.stack)

    def _is_dead(self) -> bool:
        return not self.alive

    def _end(self, task: Task, value: Any, error: BaseException | None) -> None:
        del self._tasks[task]
        if task.ended is not None:
            task.ended(value, error)
        elif error is not None:
            self.broken = self.broken or error

    def _ask(self, where: Network, request: StoreRequest | Post, resume: Callable[..., None], *whom: Any) -> None:
        """Send a request off; `resume` is called with `whom`, the answer and the error."""
        fate = self.on_request(self)
        if fate == "before":
            self.kill()
            return
        began = 0.0 if self.clock is None else self.clock.tick()
        where.submit(self.name, request, partial(self._answered, (fate, began, resume, whom)))

    def _answered(self, asked: Asked, answer: Any, error: BaseException | None) -> None:
        if not self.alive:
            return
        fate, began, resume, whom = asked
        if fate == "after":
            self.kill()
            return
        if self.frozen_until > self.world.now:
            self._stalled.append((self._answered, (asked, answer, error)))
            return
        if type(answer) is Written:
            if self.clock is not None and answer.stored_at is not None:
                self.clock.observe(answer.stored_at, began, self.clock.tick())
            self.skew_seconds = max(-1.0, min(1.0, self.skew_seconds))  # it has seen the store's clock now
        resume(*whom, answer, error)

    def _together(self, task: Task, requests: tuple[StoreRequest, ...]) -> None:
        replies: list[Any] = [None] * len(requests)
        left = len(requests)

        def arrived(place: int, answer: Any, error: BaseException | None) -> None:
            nonlocal left
            replies[place] = answer if error is None else error
            left -= 1
            if left == 0:
                self._resume(task, replies, None)

        for place, request in enumerate(requests):
            self._ask(self.store, request, arrived, place)
            if not self.alive:
                return

    def _wait(self, task: Task, wait: Wait) -> None:
        waiting = True

        def wake() -> None:
            nonlocal waiting
            if waiting:
                waiting = False
                wait.latch.forget(wake)
                self.world.after(0.0, self._resume, task, None, None)

        wait.latch.on_open(wake)
        if wait.seconds is not None and waiting:
            self.world.after(wait.seconds, wake)


def _call(request: Call) -> tuple[Any, BaseException | None]:
    try:
        return request.function(request.argument), None
    except Exception as raised:
        return None, raised


def run_alone(world: World, store: SimStore, procedure: Generator[Any, Any, Any]) -> Any:
    """Run one procedure in a process of its own to its end, and return what it returned."""
    ended: list[tuple[Any, BaseException | None]] = []
    process = Process(world, store, "alone")
    process.start(procedure, "alone", lambda value, error: ended.append((value, error)))
    world.run(lambda: bool(ended), world.now + 600)
    value, error = ended[0]
    if error is not None:
        raise error
    return value
