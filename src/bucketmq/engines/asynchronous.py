"""The asyncio engine: a procedure runs as a task; store requests run on a few threads.

The store port is blocking and releases the interpreter while it waits, and group commit keeps the number of requests in
flight small, so threads serve as well as an asynchronous port would, and stores are written once.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
import time
from collections.abc import Awaitable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, assert_never

from bucketmq.engines.perform import Hands, Reply
from bucketmq.errors import BucketMQError, Invalid
from bucketmq.procedures.requests import (
    Call,
    Chance,
    Copy,
    Create,
    Crew,
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

THREADS = 32
LOCAL_THREADS = 8
LOCAL_REQUESTS_MIN = 4
"""Of requests to a local store that were asked for together: how many threads share them, and how many one takes."""
POSTS_MAX = 1024
"""Requests to other people's addresses wait apart from those to the store, and rarely for one another: threads are
made as they are needed."""

CANCEL_SECONDS = 1.0
"""How long `close` waits for tasks that it had to cancel, and for the threads of workers that have ended."""


class _Caller:
    """The one who waits for a procedure's result, and what to do if it stops waiting."""

    def __init__(self, engine: Asynchronous) -> None:
        self._engine = engine
        self._gone = False
        self._leaving: list[IfAbandoned] = []

    def add(self, leaving: IfAbandoned) -> None:
        self._leaving.append(leaving)
        if self._gone:
            self.leave()

    def leave(self) -> None:
        self._gone = True
        leaving, self._leaving = self._leaving, []
        for each in leaving:
            self._engine.spawn(each.make(), "abandoned")


class _Callers:
    """A worker's crew in this engine: threads for its plain handlers, and the tasks that await its async ones."""

    def __init__(self, crew: Crew, loop: asyncio.AbstractEventLoop) -> None:
        self.threads: list[threading.Thread] = []
        self.pool = ThreadPoolExecutor(
            crew.size,
            thread_name_prefix="bucketmq-handler",
            initializer=lambda: self.threads.append(threading.current_thread()),
        )
        self.awaiting: set[asyncio.Task[Any]] = set()
        self._loop = loop
        crew.cancelled.on_open(self._cancelled)

    def _cancelled(self) -> None:
        self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        for task in self.awaiting:
            task.cancel()


class Asynchronous:
    """Runs procedures for any number of tasks of one event loop."""

    def __init__(self, hands: Hands) -> None:
        self.hands = hands
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="bucketmq")
        self._posts = ThreadPoolExecutor(POSTS_MAX, thread_name_prefix="bucketmq-post")
        self._crews: dict[Crew, _Callers] = {}
        self._ending: list[threading.Thread] = []  # of crews that have ended, a moment ago or in a handler that hangs
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, procedure: Procedure[Result]) -> Result:
        """Carry the procedure through to its result.

        A caller that is cancelled stops waiting; the procedure goes on, because others may ride on its write (see
        `IfAbandoned`).
        """
        self.hands.check_process()
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise Invalid("this bucket belongs to the event loop it was first used in; call connect() in each one")
        caller = _Caller(self)
        task = self._start(procedure, caller)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelling():  # otherwise the loop ends, and nothing can be done any more
                caller.leave()
            raise

    def _start(self, procedure: Procedure[Result], caller: _Caller | None = None) -> asyncio.Task[Result]:
        task = asyncio.get_running_loop().create_task(self._carry_through(procedure, caller))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _carry_through(self, procedure: Procedure[Result], caller: _Caller | None) -> Result:
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
                reply = await self._do(request, caller)
            except BaseException as raised:
                error = raised

    async def _do(self, request: Request, caller: _Caller | None) -> Any:
        match request:
            case Now():  # first, because it is asked most often
                return self.hands.clock.now()
            case Get() | Create() | Replace() | Delete() | List() | Look() | Remove() | Rename() | Copy():
                return await self._on_thread(request)
            case NewId():
                return self.hands.new_id()
            case Chance():
                return self.hands.chance()
            case Pause(seconds):
                await asyncio.sleep(seconds)
            case Wait(latch, seconds):
                await _wait(latch, seconds)
            case Together(requests):
                return await self._together(requests)
            case Spawn(procedure, name):
                self.spawn(procedure, name)
            case Post():
                return await asyncio.get_running_loop().run_in_executor(self._posts, self.hands.send, request)
            case Call(function, argument, crew):
                return await self._call(function, argument, crew)
            case IfAbandoned():
                if caller is not None:
                    caller.add(request)
            case _:
                assert_never(request)

    async def _on_thread(self, request: StoreRequest) -> Reply:
        return await asyncio.get_running_loop().run_in_executor(self._pool, self.hands.perform, request)

    async def _together(self, requests: Sequence[StoreRequest]) -> list[Reply | BucketMQError]:
        size = max(LOCAL_REQUESTS_MIN, -(-len(requests) // LOCAL_THREADS)) if self.hands.store.local else 1
        loop, pool = asyncio.get_running_loop(), self._pool
        parts = [requests[start : start + size] for start in range(0, len(requests), size)]
        replies = await asyncio.gather(*(loop.run_in_executor(pool, self.hands.perform_all, part) for part in parts))
        return [reply for part in replies for reply in part]

    async def _call(self, function: Any, argument: Any, crew: Crew | None) -> Any:
        """A user's handler: an async one on the loop, a plain one on a thread."""
        callers = None if crew is None else self._crews.get(crew) or self._begin(crew)
        if inspect.iscoroutinefunction(function):
            return await _awaited(function(argument), callers)
        call = contextvars.copy_context().run
        pool = None if callers is None else callers.pool  # None is the loop's own
        result = await asyncio.get_running_loop().run_in_executor(pool, call, function, argument)
        return await _awaited(result, callers) if inspect.isawaitable(result) else result

    def _begin(self, crew: Crew) -> _Callers:
        made = self._crews[crew] = _Callers(crew, asyncio.get_running_loop())
        crew.ended.on_open(lambda: self._end(crew))
        return made

    def _end(self, crew: Crew) -> None:
        callers = self._crews.pop(crew)
        callers.pool.shutdown(wait=False)
        self._ending = [each for each in (*self._ending, *callers.threads) if each.is_alive()]

    def spawn(self, procedure: Procedure[None], name: str) -> None:
        """Run a procedure as a task of its own."""
        self._start(procedure).set_name(f"bucketmq-{name}")

    async def close(self, seconds: float = 10.0) -> None:
        """Wait for what still runs, which was told to end; what has not ended by then is cancelled."""
        self.hands.close()
        running = self._tasks - {asyncio.current_task()}
        if running:
            _, running = await asyncio.wait(running, timeout=seconds)
        if running:
            for task in running:
                task.cancel()
            await asyncio.wait(running, timeout=CANCEL_SECONDS)
        if self._ending:
            await asyncio.get_running_loop().run_in_executor(self._pool, _join, self._ending)
        for pool in (self._pool, self._posts, *(callers.pool for callers in self._crews.values())):
            pool.shutdown(wait=not running)  # idle threads end at once; a stuck one is not worth a stuck event loop
        self.hands.release()


def _join(threads: Iterable[threading.Thread]) -> None:
    until = time.monotonic() + CANCEL_SECONDS
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))


async def _awaited(result: Awaitable[Any], callers: _Callers | None) -> Any:
    """What an async handler returns. It is cancelled if its worker is."""
    task = asyncio.current_task()
    assert task is not None
    if callers is not None:
        callers.awaiting.add(task)
    try:
        return await result
    except asyncio.CancelledError:
        if task.cancelling():
            raise
        raise RuntimeError("the handler awaited something that was cancelled") from None
    finally:
        if callers is not None:
            callers.awaiting.discard(task)


async def _wait(latch: Latch, seconds: float | None) -> None:
    loop = asyncio.get_running_loop()
    opened = asyncio.Event()

    def tell() -> None:
        loop.call_soon_threadsafe(opened.set)

    latch.on_open(tell)
    try:
        await asyncio.wait_for(opened.wait(), seconds)
    except TimeoutError:
        return
    finally:
        latch.forget(tell)
