"""A TCP proxy that misbehaves on purpose: it cuts, delays and half-closes connections, by chance from a seed.

```python
with FaultyProxy("127.0.0.1", 8333, seed=7) as proxy:
    bucket = bucketmq.connect("s3://jobs", endpoint=f"http://127.0.0.1:{proxy.port}")
    ...
    proxy.calm()
```

It sits between a client and a real server, so what it does to a conditional write is what a network does: the request
may be lost, or land with its reply lost. It knows nothing about HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections import Counter
from types import TracebackType
from typing import Self

CHUNK_BYTES = 64 << 10
START_SECONDS = 10.0


class FaultyProxy:
    """Runs on a thread of its own while the `with` block lasts. `faults` counts what it did."""

    def __init__(
        self, host: str, port: int, *, seed: int, chance: float = 0.05, delay_seconds_max: float = 1.0
    ) -> None:
        self.port = 0
        self.faults: Counter[str] = Counter()
        self._target = host, port
        self._random = random.Random(seed)
        self._chance = chance
        self._delay_seconds_max = delay_seconds_max
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def calm(self) -> None:
        """Misbehave no more."""
        self._chance = 0.0

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name="bucketmq-proxy", daemon=True)
        self._thread.start()
        if not self._ready.wait(START_SECONDS):
            raise TimeoutError("the proxy did not start")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(START_SECONDS)

    def _run(self) -> None:
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        ends = [writer]
        try:
            there_reader, there_writer = await asyncio.open_connection(*self._target)
            ends.append(there_writer)
            await asyncio.gather(
                self._pump("request", reader, there_writer, ends), self._pump("reply", there_reader, writer, ends)
            )
        except (OSError, asyncio.CancelledError):
            pass  # the client sees a connection that ends
        finally:
            for end in ends:
                end.close()
            self._tasks.discard(task)

    async def _pump(
        self,
        way: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        ends: list[asyncio.StreamWriter],
    ) -> None:
        """Carry bytes one way until the end, or until chance has it otherwise."""
        with contextlib.suppress(OSError):
            while chunk := await reader.read(CHUNK_BYTES):
                fault = self._fault(way)
                if fault == "delay":
                    await asyncio.sleep(self._random.random() * self._delay_seconds_max)
                elif fault == "cut":
                    # Some of it may get through before everything is torn down.
                    writer.write(chunk[: self._random.randrange(len(chunk) + 1)])
                    for end in ends:
                        end.transport.abort()
                    return
                elif fault == "half-close":
                    break
                writer.write(chunk)
                await writer.drain()
            writer.write_eof()

    def _fault(self, way: str) -> str | None:
        if self._random.random() >= self._chance:
            return None
        fault = self._random.choice(("cut", "delay", "half-close"))
        self.faults[f"{fault} {way}"] += 1
        return fault
