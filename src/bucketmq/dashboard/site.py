"""What the routes of the dashboard share: the bucket, the gate, reading requests, and what is closed at the end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

import msgspec
from fastapi import Request, Response

from bucketmq import aio
from bucketmq.errors import Invalid
from bucketmq.server.gate import Gate
from bucketmq.server.people import Caller, Role
from bucketmq.server.wire import Refusal, headers_of, loggable, read_body

logger = logging.getLogger("bucketmq")

BODY_BYTES_MAX = 1 << 20
BODY_SECONDS = 10.0

FRESH_SECONDS = 2.0
COST_FACTOR = 10.0
"""What took a second to find out is good for ten."""

Result = TypeVar("Result")
Struct = TypeVar("Struct", bound=msgspec.Struct)


class Kept(Generic[Result]):
    """A figure that is made again when it is old, by one caller for all; the dearer it is, the less often."""

    def __init__(self, make: Callable[[], Awaitable[Result]], *, fresh_seconds: float = FRESH_SECONDS) -> None:
        self._make = make
        self._fresh_seconds = fresh_seconds
        self._lock = asyncio.Lock()
        self._until = 0.0
        self._result: Result | None = None

    async def read(self) -> Result:
        async with self._lock:
            began = time.monotonic()
            if self._result is None or began >= self._until:
                self._result = await self._make()
                ended = time.monotonic()
                self._until = ended + max(self._fresh_seconds, COST_FACTOR * (ended - began))
            return self._result

    def forget(self) -> None:
        self._until = 0.0


class Site:
    """One dashboard on one bucket, as its tabs see it. Belongs to one event loop."""

    def __init__(self, bucket: aio.Bucket, gate: Gate) -> None:
        self.bucket = bucket
        self.gate = gate
        self._running: set[asyncio.Future[Any]] = set()
        self._closers: list[Callable[[], Awaitable[None]]] = []

    def on_close(self, close: Callable[[], Awaitable[None]]) -> None:
        """Call this when the dashboard ends."""
        self._closers.append(close)

    async def close(self) -> None:
        for close in reversed(self._closers):
            await close()

    def looker(self, request: Request, *queues: str) -> Caller:
        """Who wants to look; 401 if nobody is known."""
        return self.gate.looker(request.scope, *queues)

    async def changer(
        self,
        request: Request,
        role: Role,
        did: str,
        to: str,
        *,
        how: str = "",
        queue: str | None = None,
        has_own_line: bool = False,
    ) -> Caller:
        """Who wants to change something: 403 unless they may; see `Gate.changer` for the line that is written."""
        return await self.gate.changer(request.scope, role, did, to, how=how, queue=queue, has_own_line=has_own_line)

    async def work(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result within a bounded time, errors as answers."""
        return await self.gate.work(work)

    async def long_work(self, work: Coroutine[Any, Any, Result], seconds: float, did: str, to: str) -> Result | None:
        """The result, errors as answers; or None if it takes longer than so many seconds. Then it goes on, and how it
        ended is told in the program's log."""
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            task.add_done_callback(lambda done: _tell(did, to, done))
            return None
        return await self.gate.work(_result(task))

    async def body(self, request: Request, kind: type[Struct], *, bytes_max: int = BODY_BYTES_MAX) -> Struct:
        """What a known caller sends. 401 before anything of it is read."""
        self.gate.caller(request.scope)
        return await read_struct(request, kind, bytes_max=bytes_max)


def _tell(did: str, to: str, work: asyncio.Future[Any]) -> None:
    """How something ended that nobody waits for."""
    if work.cancelled():
        logger.warning("action=%s_stopped %s", did, loggable(to))
    elif (error := work.exception()) is not None:
        logger.warning("action=%s_failed %s error=%s", did, loggable(to), loggable(error))
    else:
        logger.info("action=%s_done %s %s", did, loggable(to), work.result())


async def _result(task: asyncio.Future[Result]) -> Result:
    return await task


async def read_struct(request: Request, kind: type[Struct], *, bytes_max: int) -> Struct:
    body = await read_body(headers_of(request.scope), request.receive, bytes_max=bytes_max, seconds=BODY_SECONDS)
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(400, f"the body cannot be read: {error}") from None


def query_of(request: Request, kind: type[Struct]) -> Struct:
    """The parameters of a request as a value; 400 if they make none."""
    try:
        return msgspec.convert(dict(request.query_params), kind, strict=False)
    except (msgspec.ValidationError, Invalid) as error:
        raise Refusal(400, str(error)) from None


def json_answer(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
