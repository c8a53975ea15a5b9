"""The asyncio engine: a procedure runs as a task; store requests run on a few threads.

The store port is blocking and releases the interpreter while it waits, and group commit keeps the number of requests in
flight small, so threads serve as well as an asynchronous port would, and stores are written once.
"""

from __future__ import annotations

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, assert_never

from bucketmq.engines.perform import Hands, Reply
from bucketmq.errors import BucketMQError, Invalid
from bucketmq.procedures.requests import (
    Call,
    Chance,
    Create,
    Delete,
    Get,
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
POSTS_MAX = 1024
"""Requests to other people's addresses wait apart from those to the store, and rarely for one another: threads are
made as they are needed."""


class Asynchronous:
    """Runs procedures for any number of tasks of one event loop."""

    def __init__(self, hands: Hands) -> None:
        self.hands = hands
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="bucketmq")
        self._posts = ThreadPoolExecutor(POSTS_MAX, thread_name_prefix="bucketmq-post")
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, procedure: Procedure[Result]) -> Result:
        """Carry the procedure through to its result.

        A caller that is cancelled stops waiting; the procedure goes on, because others may ride on its write.
        """
        self.hands.check_process()
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise Invalid("this bucket belongs to the event loop it was first used in; call connect() in each one")
        return await asyncio.shield(self._start(procedure))

    def _start(self, procedure: Procedure[Result]) -> asyncio.Task[Result]:
        task = asyncio.get_running_loop().create_task(self._carry_through(procedure))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _carry_through(self, procedure: Procedure[Result]) -> Result:
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
                reply = await self._do(request)
            except BaseException as raised:
                error = raised

    async def _do(self, request: Request) -> Any:
        match request:
            case Get() | Create() | Replace() | Delete() | List() | Look() | Remove() | Rename():
                return await self._on_thread(request)
            case Now():
                return self.hands.clock.now()
            case NewId():
                return self.hands.new_id()
            case Chance():
                return self.hands.chance()
            case Pause(seconds):
                await asyncio.sleep(seconds)
            case Wait(latch, seconds):
                await _wait(latch, seconds)
            case Together(requests):
                return await asyncio.gather(*(self._or_error(each) for each in requests))
            case Spawn(procedure, name):
                self.spawn(procedure, name)
            case Post():
                return await asyncio.get_running_loop().run_in_executor(self._posts, self.hands.send, request)
            case Call(function, argument):
                return await self._call(function, argument)
            case _:
                assert_never(request)

    async def _on_thread(self, request: StoreRequest) -> Reply:
        return await asyncio.get_running_loop().run_in_executor(self._pool, self.hands.perform, request)

    async def _or_error(self, request: StoreRequest) -> Reply | BucketMQError:
        try:
            return await self._on_thread(request)
        except BucketMQError as error:
            return error

    async def _call(self, function: Any, argument: Any) -> Any:
        """A user's handler: an async one on the loop, a plain one on a thread."""
        try:
            if inspect.iscoroutinefunction(function):
                return await function(argument)
            result = await asyncio.to_thread(function, argument)
            return await result if inspect.isawaitable(result) else result
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise RuntimeError("the handler awaited something that was cancelled") from None

    def spawn(self, procedure: Procedure[None], name: str) -> None:
        """Run a procedure as a task of its own."""
        self._start(procedure).set_name(f"bucketmq-{name}")

    async def close(self, seconds: float = 10.0) -> None:
        """Wait for what still runs; whoever spawned it has told it to end."""
        self.hands.close()
        others = self._tasks - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=seconds)
        self._pool.shutdown(wait=False)
        self._posts.shutdown(wait=False)


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
