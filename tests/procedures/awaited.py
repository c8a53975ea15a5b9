"""The asyncio facade made to look like the blocking one, so that a test is written once and runs on both.

Every call goes to an event loop on a thread of its own. Nothing is faked: the objects behind are the real ones.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterator
from typing import Any

from bucketmq import aio
from bucketmq.deliveries import Batch
from bucketmq.procedures.claiming.receive import Nobody

CALL_SECONDS = 60


class Loop:
    """An event loop on a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="test-loop", daemon=True)
        self._thread.start()

    def call(self, function: Any, *arguments: Any, **options: Any) -> Any:
        """Call on the loop, await what is awaitable, and wrap what comes back."""

        async def there() -> Any:
            result = function(*arguments, **options)
            return await result if inspect.isawaitable(result) else result

        return wrapped(asyncio.run_coroutine_threadsafe(there(), self.loop).result(CALL_SECONDS), self)

    def close(self) -> None:
        async def rest() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(rest(), self.loop).result(CALL_SECONDS)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(CALL_SECONDS)
        self.loop.close()


class Awaited:
    """One object of the asyncio facade, called as if it were blocking."""

    def __init__(self, real: Any, loop: Loop) -> None:
        self._real = real
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        if inspect.ismethod(found):
            return lambda *arguments, **options: self._loop.call(found, *arguments, **options)
        return wrapped(found, self._loop)

    def __iter__(self) -> Iterator[Any]:
        stream = self._real.__aiter__()
        try:
            while True:
                yield self._loop.call(stream.__anext__)
        except StopAsyncIteration:
            return
        finally:
            self._loop.call(stream.aclose)

    def __enter__(self) -> Awaited:
        self._loop.call(self._real.__aenter__)
        return self

    def __exit__(self, *about: object) -> None:
        self._loop.call(self._real.__aexit__, *about)

    def __repr__(self) -> str:
        return f"Awaited({self._real!r})"


WRAPPED = (aio.Bucket, aio.Queue, aio.Subscription, aio.DeadLetters, aio.Delivery, aio.Table)


def wrapped(value: Any, loop: Loop) -> Any:
    if isinstance(value, WRAPPED):
        return Awaited(value, loop)
    if isinstance(value, Batch):
        return Batch([wrapped(each, loop) for each in value], Nobody(value.full, value.contended, value.paused))
    return value
