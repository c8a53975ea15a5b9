"""A webhook endpoint in a process of its own that takes everything, at once, and counts. For benchmarks of senders.

Deliberately the least that HTTP allows, so that it is never what is measured. For endpoints that misbehave see
`bucketmq.testing.endpoints`.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import msgspec

START_SECONDS = 60.0
STOP_SECONDS = 10.0
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
EVENT = b'"eventName":'
"""Once in each event of the formats that are sent here."""


class Taken(msgspec.Struct, frozen=True):
    """What has come so far."""

    requests: int
    events: int


class Sink:
    """A running endpoint."""

    def __init__(self, url: str, line: Connection) -> None:
        self.url = url
        self._line = line

    def taken(self) -> Taken:
        """What has come since this was last asked."""
        self._line.send("taken")
        if not self._line.poll(STOP_SECONDS):
            raise TimeoutError("the endpoint does not say what it has taken")
        found: Taken = self._line.recv()
        return found


@contextlib.contextmanager
def sink() -> Iterator[Sink]:
    """Run an endpoint on a free port of 127.0.0.1 while the `with` block lasts."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(START_SECONDS):
            raise TimeoutError(f"the endpoint did not start within {START_SECONDS:g} s")
        yield Sink(f"http://127.0.0.1:{ours.recv()}/hook", ours)
    finally:
        ours.close()  # which ends it
        process.join(STOP_SECONDS)
        if process.is_alive():
            process.terminate()
            process.join()


def _run(line: Connection) -> None:
    asyncio.run(_serve(line))


async def _serve(line: Connection) -> None:
    loop = asyncio.get_running_loop()
    count = _Count()
    server = await loop.create_server(lambda: _Taker(count), "127.0.0.1", 0, backlog=1024)
    line.send(server.sockets[0].getsockname()[1])
    over = loop.create_future()

    def asked() -> None:
        try:
            line.recv()
        except EOFError:
            loop.remove_reader(line.fileno())
            over.set_result(None)
            return
        line.send(Taken(count.requests, count.events))
        count.requests = count.events = 0

    loop.add_reader(line.fileno(), asked)
    await over
    server.close()


class _Count:
    requests = 0
    events = 0


class _Taker(asyncio.Protocol):
    """One connection: requests with a content length, one after the other."""

    def __init__(self, count: _Count) -> None:
        self._count = count
        self._bytes = bytearray()
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._bytes += data
        while (end := self._bytes.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._bytes[:end]).lower()
            stop = end + 4 + int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or b"0")
            if len(self._bytes) < stop:
                return
            self._count.requests += 1
            self._count.events += self._bytes.count(EVENT, end, stop)
            del self._bytes[:stop]
            self._transport.write(ANSWER)
