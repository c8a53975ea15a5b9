"""The blocking engine: a procedure runs in the thread that calls it."""

from __future__ import annotations

import asyncio
import inspect
import math
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, assert_never

from bucketmq.engines.perform import Hands, Reply
from bucketmq.errors import BucketMQError
from bucketmq.procedures.requests import (
    Call,
    Chance,
    Copy,
    Create,
    Delete,
    Get,
    IfAbandoned,
    Latch,
    List,
    Look,
    NewId,
    Now,
    Pause,
    Post,
    Procedure,
    Remove,
    Rename,
    Replace,
    Request,
    Spawn,
    StoreRequest,
    Together,
    Wait,
)

Result = TypeVar("Result")

TOGETHER_MAX = 16
SIGNAL_SECONDS = 0.25
"""How soon a signal is noticed while the main thread waits."""


class Blocking:
    """Runs procedures for any number of threads."""

    def __init__(self, hands: Hands) -> None:
        self.hands = hands
        self._pool: ThreadPoolExecutor | None = None
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def run(self, procedure: Procedure[Result]) -> Result:
        """Carry the procedure through to its result."""
        self.hands.check_process()
        return self._carry_through(procedure)

    def _carry_through(self, procedure: Procedure[Result]) -> Result:
        reply: Any = None
        error: BaseException | None = None
        while True:
            try:
                request = procedure.send(reply) if error is None else procedure.throw(error)
            except StopIteration as end:
                result: Result = end.value
                return result
            reply, error = None, None
            try:
                reply = self._do(request)
            except BaseException as raised:
                error = raised

    def _do(self, request: Request) -> Any:
        match request:
            case Now():  # first, because it is asked most often
                return self.hands.clock.now()
            case Get() | Create() | Replace() | Delete() | List() | Look() | Remove() | Rename() | Copy():
                return self.hands.perform(request)
            case NewId():
                return self.hands.new_id()
            case Chance():
                return self.hands.chance()
            case Pause(seconds):
                time.sleep(seconds)
            case Wait(latch, seconds):
                _wait(latch, seconds)
            case Together(requests):
                return self._together(requests)
            case Spawn(procedure, name):
                self.spawn(procedure, name)
            case Post():
                return self.hands.send(request)
            case Call(function, argument):
                return _call(function, argument)
            case IfAbandoned():
                pass  # a caller that blocks cannot leave
            case _:
                assert_never(request)

    def _together(self, requests: Sequence[StoreRequest]) -> list[Reply | BucketMQError]:
        if len(requests) == 1 or self.hands.store.local:
            return self.hands.perform_all(requests)
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(TOGETHER_MAX, thread_name_prefix="bucketmq")
        return [reply for (reply,) in self._pool.map(self.hands.perform_all, ([request] for request in requests))]

    def spawn(self, procedure: Procedure[None], name: str) -> None:
        """Run a procedure on a thread of its own. One that begins after the bucket was closed ends as others do."""
        thread = threading.Thread(target=self._carry_through, args=(procedure,), name=f"bucketmq-{name}", daemon=True)
        with self._lock:
            self._threads = [*(each for each in self._threads if each.is_alive()), thread]
        thread.start()

    def close(self, seconds: float = 10.0) -> None:
        """Wait for spawned procedures to end, which were told to, and end the threads."""
        self.hands.close()
        until = time.monotonic() + seconds
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, until - time.monotonic()))
        if self._pool is not None:
            self._pool.shutdown(wait=time.monotonic() < until)
        self.hands.release()


def _wait(latch: Latch, seconds: float | None) -> None:
    opened = threading.Event()
    latch.on_open(opened.set)
    try:
        if threading.current_thread() is not threading.main_thread():
            opened.wait(seconds)
            return
        # Python runs signal handlers in the main thread, and only between two instructions: a signal that the system
        # gave to another thread does not wake this one, so it looks up by itself now and then.
        until = math.inf if seconds is None else time.monotonic() + seconds
        while not opened.wait(max(0.0, min(SIGNAL_SECONDS, until - time.monotonic()))) and time.monotonic() < until:
            pass
    finally:
        latch.forget(opened.set)


def _call(function: Any, argument: Any) -> Any:
    """A user's handler, plain or async: an async one gets an event loop of its own for the call."""
    result = function(argument)
    if inspect.isawaitable(result):
        try:
            return asyncio.run(_awaited(result))
        except asyncio.CancelledError:
            raise RuntimeError("the handler awaited something that was cancelled") from None
    return result


async def _awaited(result: Any) -> Any:
    return await result
