"""Running many procedures abreast: what they ask of the store at the same time travels together.

This is how a verb for one object becomes one for many. Each procedure runs until it asks the store for something; when
all have, their requests go out as one `Together`, and each is given its own reply. Nothing is started: it is one
procedure that runs the others in turn, so it is the same in a thread, in a task and in the simulator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

from bucketmq.errors import BucketMQError
from bucketmq.procedures.requests import Latch, Now, Pause, Procedure, StoreRequest, Together, Wait

Result = TypeVar("Result")


class _Runner:
    """One of the procedures, and what it waits for."""

    __slots__ = ("asks", "latch", "outcome", "over", "procedure", "several", "until")

    def __init__(self, procedure: Procedure[Any]) -> None:
        self.procedure = procedure
        self.over = False
        self.outcome: Any = None
        self.asks: tuple[StoreRequest, ...] = ()
        self.several = False
        """Whether it wants a list of replies: it asked for requests together itself."""
        self.latch: Latch | None = None
        self.until = math.inf

    @property
    def rests(self) -> bool:
        return not self.over and not self.asks

    def answered(self, replies: list[Any]) -> Procedure[None]:
        """The store's replies to what it asked, errors among them."""
        if self.several:
            yield from self.go_on(replies)
        else:
            yield from self.go_on(replies[0], raised=isinstance(replies[0], BucketMQError))

    def go_on(self, reply: Any, *, raised: bool = False) -> Procedure[None]:
        """Run until it asks the store for something, has to wait, or is over. What else it asks is asked at once."""
        self.asks, self.latch, self.until = (), None, math.inf
        while True:
            try:
                request = self.procedure.throw(reply) if raised else self.procedure.send(reply)
            except StopIteration as end:
                self.over, self.outcome = True, end.value
                return
            except BucketMQError as error:
                self.over, self.outcome = True, error
                return
            if isinstance(request, Pause | Wait):
                seconds = math.inf if request.seconds is None else request.seconds
                self.until = (yield from Now()) + seconds
                self.latch = request.latch if isinstance(request, Wait) else None
                return
            if isinstance(request, Together):
                self.asks, self.several = request.requests, True
                return
            if isinstance(request, StoreRequest):
                self.asks, self.several = (request,), False
                return
            raised = False
            try:
                reply = yield request
            except BucketMQError as error:
                reply, raised = error, True


def abreast(procedures: Sequence[Procedure[Result]]) -> Procedure[list[Result | BucketMQError]]:
    """Run all of them to their ends; returns what each returned, or the error of ours that ended it, in the same order.

    Any other exception ends all of them. One that pauses or waits holds up nobody but itself.
    """
    runners = [_Runner(each) for each in procedures]
    try:
        for runner in runners:
            yield from runner.go_on(None)
        while not all(runner.over for runner in runners):
            asking = [runner for runner in runners if runner.asks]
            resting = [runner for runner in runners if runner.rests]
            if asking:
                yield from _ask(asking)
            else:
                yield from _rest(resting)
            yield from _wake(resting)
    finally:
        for runner in runners:
            runner.procedure.close()
    return [runner.outcome for runner in runners]


def kept_apart(procedure: Procedure[Result]) -> Procedure[Result | Exception]:
    """The same, with any error for its result: what fails for reasons of its own must not end those that run beside
    it."""
    try:
        return (yield from procedure)
    except Exception as error:
        return error


def _ask(asking: list[_Runner]) -> Procedure[None]:
    """Ask the store for what all of them want to know, and let each go on with its replies."""
    replies = yield from Together(tuple(request for runner in asking for request in runner.asks))
    for runner in asking:
        mine, replies = replies[: len(runner.asks)], replies[len(runner.asks) :]
        yield from runner.answered(mine)


def _rest(resting: list[_Runner]) -> Procedure[None]:
    """Nobody has anything to ask: wait until the first of them may go on."""
    until = min(runner.until for runner in resting)
    latches = [runner.latch for runner in resting if runner.latch is not None]
    seconds = None if until == math.inf else max(0.0, until - (yield from Now()))
    if not latches:
        yield from Pause(seconds or 0.0)
        return
    any_open = Latch()
    for latch in latches:
        latch.on_open(any_open.open)
    try:
        yield from Wait(any_open, seconds)
    finally:
        for latch in latches:
            latch.forget(any_open.open)


def _wake(resting: list[_Runner]) -> Procedure[None]:
    """Let those go on whose pause is over or whose latch is open."""
    if not resting:
        return
    now = yield from Now()
    for runner in resting:
        if runner.until <= now or (runner.latch is not None and runner.latch.is_open):
            yield from runner.go_on(None)
