"""The server in a process of its own, and a client that keeps it busy with as little work as HTTP allows.

For the benchmark of the receiver: whatever the client costs is not the server's, but on few cores it takes from it.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import secrets
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from urllib.parse import urlsplit

import msgspec

START_SECONDS = 60.0
STOP_SECONDS = 30.0


class Address(msgspec.Struct, frozen=True):
    """Where the server listens, and what it wants to be shown."""

    url: str
    token: str


class Answers(msgspec.Struct):
    """What the server said to all requests together."""

    seconds: float = 0.0
    accepted: int = 0
    outside: int = 0


class _Answer(msgspec.Struct):
    accepted: int
    outside: int


@contextlib.contextmanager
def served(url: str, bucket_name: str) -> Iterator[Address]:
    """`bucketmq serve` on a free port for the bucket at `url`, while the `with` block lasts.

    It takes events of the bucket called `bucket_name` and leaves out others'.
    """
    token = secrets.token_hex(16)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, url, bucket_name, token), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(START_SECONDS):
            raise TimeoutError(f"the server did not start within {START_SECONDS:g} s")
        yield Address(ours.recv(), token)
    finally:
        process.terminate()  # it finishes what is in hand
        process.join(STOP_SECONDS)
        if process.is_alive():
            process.kill()
            process.join()
        ours.close()


def _serve(line: Connection, url: str, bucket_name: str, token: str) -> None:
    from bucketmq import aio
    from bucketmq.server.access import make_access
    from bucketmq.server.run import serve
    from bucketmq.server.settings import ServerSettings

    settings = ServerSettings(access=make_access(bearer=[token]), buckets=(bucket_name,), notify=False, files=False)

    async def run() -> None:
        async with aio.connect(url, probe=False) as bucket:
            await serve(bucket, settings, port=0, listening=line.send)

    asyncio.run(run())


async def post_all(address: Address, path: str, bodies: Sequence[bytes], connections: int) -> Answers:
    """Post all bodies over so many connections, one after the other on each. Anything but a 200 is an error."""
    parts = urlsplit(address.url)
    head = (
        f"POST {path} HTTP/1.1\r\nhost: {parts.netloc}\r\nauthorization: Bearer {address.token}\r\n"
        "content-type: application/json\r\ncontent-length: "
    ).encode()
    left = iter(bodies)
    answers = Answers()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for body in left:
            writer.write(b"%b%d\r\n\r\n%b" % (head, len(body), body))
            answer = msgspec.json.decode(await _answer(reader), type=_Answer)
            answers.accepted += answer.accepted
            answers.outside += answer.outside

    opened = [await asyncio.open_connection(parts.hostname, parts.port) for _ in range(connections)]
    try:
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for reader, writer in opened:
                group.create_task(one(reader, writer))
        answers.seconds = time.perf_counter() - began
    finally:
        for _, writer in opened:
            writer.close()
    return answers


async def _answer(reader: asyncio.StreamReader) -> bytes:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    body = await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0]))
    if not head.startswith(b"http/1.1 200 "):
        raise AssertionError(f"the server answered {head[:40]!r} {body[:200]!r}")
    return body
