"""Running an agent from the command line: its bucket opened and closed, its log on standard error; and signals."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator

from bucketmq import aio
from bucketmq.cli.options import wants_probe
from bucketmq.cli.worker import log_to_stderr
from bucketmq.errors import Unsupported

NEEDED = (
    "cryptography",
    "fastapi",
    "fastapi_offline",
    "httpcore2",
    "itsdangerous",
    "jwt",
    "prometheus_client",
    "starlette",
    "uvicorn",
    "watchfiles",
)


@contextlib.contextmanager
def needs_server() -> Iterator[None]:
    """Say what to install where a package of the extra `server` is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in NEEDED:
            raise
        raise Unsupported(f"this needs the package {error.name}; run: pip install 'bucketmq[server]'") from None


def run_agent(url: str, work: Callable[[aio.Bucket], Awaitable[None]]) -> None:
    """Do it on the bucket, and close that in the end."""
    log_to_stderr()
    logging.getLogger("bucketmq").setLevel(logging.INFO)

    async def main() -> None:
        async with aio.connect(url, probe=wants_probe()) as bucket:
            await work(bucket)

    with needs_server():
        asyncio.run(main())


@contextlib.contextmanager
def signals(tell: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Call it on SIGTERM and Ctrl-C while the block runs. What this gives says whether one was Ctrl-C."""
    seen: list[int] = []

    def note(number: int, _: object) -> None:
        seen.append(number)
        tell()

    is_main = threading.current_thread() is threading.main_thread()  # no other thread may set handlers
    before = {number: signal.signal(number, note) for number in ((signal.SIGTERM, signal.SIGINT) if is_main else ())}
    try:
        yield lambda: signal.SIGINT in seen
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
