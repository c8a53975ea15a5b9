"""Signals belong to the program: a worker takes them where nobody else has, and hands them on where somebody has."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest
from procedures.world import eventually

from bucketmq.engines.signals import StopOnSignal


class Worker:
    stopped = 0

    def stop(self) -> None:
        self.stopped += 1


class Program:
    """A program with a handler of its own."""

    def __init__(self) -> None:
        self.told: list[int] = []

    def on_signal(self, number: int, _: FrameType | None) -> None:
        self.told.append(number)


@pytest.fixture(autouse=True)
def plain_handlers() -> Iterator[None]:
    """A process that has not set up signals. One that ran Spark has: PySpark takes SIGINT and keeps it."""
    before = {
        number: signal.signal(number, default)
        for number, default in ((signal.SIGTERM, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler))
    }
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def program() -> Iterator[Program]:
    before = signal.getsignal(signal.SIGTERM)
    made = Program()
    signal.signal(signal.SIGTERM, made.on_signal)
    yield made
    signal.signal(signal.SIGTERM, before)


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_handler_of_the_program_is_called_too_and_put_back(program: Program) -> None:
    worker = Worker()
    with StopOnSignal(active=True) as stop:
        stop.watch(worker)
        terminate()
        eventually(lambda: worker.stopped)
    assert program.told == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) == program.on_signal


def test_inside_an_event_loop_the_programs_handlers_are_left_alone(program: Program) -> None:
    async def main() -> None:
        with StopOnSignal(active=True):
            assert signal.getsignal(signal.SIGTERM) == program.on_signal

    asyncio.run(main())


def test_inside_an_event_loop_that_nobody_handles_signals_for_the_worker_does() -> None:
    worker = Worker()

    async def main() -> None:
        with StopOnSignal(active=True) as stop:
            stop.watch(worker)
            for number in (signal.SIGTERM, signal.SIGINT):
                os.kill(os.getpid(), number)
            while worker.stopped < 2:
                await asyncio.sleep(0)

    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    asyncio.run(main())
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_a_handler_that_came_later_stays() -> None:
    program = Program()
    before = signal.getsignal(signal.SIGTERM)
    try:
        with StopOnSignal(active=True):
            signal.signal(signal.SIGTERM, program.on_signal)
        assert signal.getsignal(signal.SIGTERM) == program.on_signal
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_server_that_ends_after_the_worker_and_puts_it_back_swallows_no_signal(program: Program) -> None:
    with StopOnSignal(active=True):
        servers = signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGTERM, servers)
    terminate()
    eventually(lambda: program.told)
    assert signal.getsignal(signal.SIGTERM) == program.on_signal


def test_one_signal_stops_all_workers_of_a_process_whichever_ends_first() -> None:
    before = signal.getsignal(signal.SIGTERM)
    first, second = Worker(), Worker()
    one, two = StopOnSignal(active=True), StopOnSignal(active=True)
    one.__enter__()
    two.__enter__()
    one.watch(first)
    two.watch(second)
    terminate()
    eventually(lambda: first.stopped and second.stopped)
    one.__exit__(None, None, None)
    terminate()
    eventually(lambda: second.stopped == 2)
    assert first.stopped == 1
    two.__exit__(None, None, None)
    assert signal.getsignal(signal.SIGTERM) == before


SERVER = """
import asyncio, contextlib, sys
import bucketmq, uvicorn

async def handle(delivery):
    print("handled", delivery.body, file=sys.stderr, flush=True)

@contextlib.asynccontextmanager
async def lifespan(app):
    async with bucketmq.aio.connect(URL) as bucket:
        await bucket.queue("jobs").send("x")
        worker = asyncio.create_task(bucket.queue("jobs").run(handle))
        yield
        worker.cancel()

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        async with lifespan(app):
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

uvicorn.run(app, host="127.0.0.1", port=0, log_level="info")
"""


def test_a_worker_inside_a_server_lets_it_stop(tmp_path: Path) -> None:
    code = f"URL = 'file://{tmp_path}/bucket'\n" + textwrap.dedent(SERVER)
    server = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        seen = ""
        while not ("handled x" in seen and "Uvicorn running" in seen):
            line = server.stderr.readline()
            assert line, seen
            seen += line
        server.send_signal(signal.SIGTERM)
        _, rest = server.communicate(timeout=20)
        assert "Application shutdown complete" in rest
        assert "Traceback" not in rest
    finally:
        server.kill()
        server.communicate()
