"""The asyncio engine: callers that leave, plain handlers on threads of their own, and an end that is prompt."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
from types import FrameType
from typing import Any

import pytest
from procedures.world import eventually

from bucketmq import aio, client
from bucketmq.bucket.memory import MemoryStore
from bucketmq.engines.asynchronous import Asynchronous
from bucketmq.engines.blocking import Blocking
from bucketmq.engines.perform import Hands
from bucketmq.procedures.requests import IfAbandoned, Latch, Pause, Procedure, Wait

PROMPT_SECONDS = 5.0


def connect(store: MemoryStore) -> aio.Bucket:
    return aio.Bucket(Asynchronous(Hands(store)), "app", probe=False)


def blocking(store: MemoryStore) -> client.Bucket:
    return client.Bucket(Blocking(Hands(store)), "app", probe=False)


async def cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("state", ["idle", "in a handler"])
def test_closing_after_a_worker_was_cancelled_is_prompt_and_gives_back_what_it_had(state: str) -> None:
    store = MemoryStore()

    async def main() -> float:
        bucket = connect(store)
        queue = bucket.queue("jobs")
        began = asyncio.Event()

        async def handle(_: Any) -> None:
            began.set()
            if state == "in a handler":
                await asyncio.Event().wait()

        await queue.send_many(range(8))
        worker = asyncio.create_task(queue.run(handle, signals=False))
        await began.wait()
        if state == "idle":
            while (await queue.stats()).depth:
                await asyncio.sleep(0.01)
        await cancel(worker)
        started = time.monotonic()
        await bucket.close()
        return time.monotonic() - started

    assert asyncio.run(main()) < PROMPT_SECONDS
    with blocking(store) as bucket:
        batch = bucket.queue("jobs").receive(100)
    assert [(each.body, each.attempt) for each in batch] == ([] if state == "idle" else [(n, 1) for n in range(8)])


def test_closing_stops_a_worker_that_nobody_has_stopped() -> None:
    async def main() -> float:
        bucket = connect(MemoryStore())
        began = asyncio.Event()

        async def handle(_: Any) -> None:
            began.set()

        await bucket.queue("jobs").send("x")
        worker = asyncio.create_task(bucket.queue("jobs").run(handle, signals=False))
        await began.wait()
        started = time.monotonic()
        await bucket.close()
        await worker
        return time.monotonic() - started

    assert asyncio.run(main()) < PROMPT_SECONDS


def test_closing_after_watchers_were_cancelled_is_prompt() -> None:
    async def main() -> float:
        bucket = connect(MemoryStore())
        began = asyncio.Event()

        @bucket.watch(start="beginning")
        async def react(_: Any) -> None:
            began.set()
            await asyncio.Event().wait()

        await bucket.put("a.txt", b"x")
        watchers = asyncio.create_task(bucket.run_watchers(signals=False))
        await began.wait()
        await cancel(watchers)
        started = time.monotonic()
        await bucket.close()
        return time.monotonic() - started

    assert asyncio.run(main()) < PROMPT_SECONDS


def test_as_many_plain_handlers_run_at_once_as_the_worker_was_told() -> None:
    store = MemoryStore()
    together = threading.Barrier(50, timeout=20)

    async def main() -> None:
        async with connect(store) as bucket:
            queue = bucket.queue("jobs")
            await queue.send_many(range(50))
            await queue.run(lambda _: together.wait(), concurrency=50, stop_when_empty=True, signals=False)
            assert (await queue.stats()).depth == 0
            eventually(lambda: not handlers())  # they end with the worker

    asyncio.run(main())


def handlers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "bucketmq-handler" in thread.name]


def test_closing_ends_every_thread() -> None:
    before = set(threading.enumerate())

    async def main() -> None:
        async with connect(MemoryStore()) as bucket:
            queue = bucket.queue("jobs", shards=3)
            await asyncio.gather(*(queue.send(n) for n in range(20)))
            await queue.run(lambda _: None, concurrency=4, stop_when_empty=True, signals=False)
        assert set(threading.enumerate()) <= before

    asyncio.run(main())
    bucket = blocking(type("Remote", (MemoryStore,), {"local": False})())
    queue = bucket.queue("jobs", shards=3)
    queue.send_many(range(20), key=str)
    queue.run(lambda _: None, concurrency=4, stop_when_empty=True, signals=False)
    bucket.close()
    assert set(threading.enumerate()) <= before


def test_closing_waits_for_threads_of_handlers_that_are_slow_to_end() -> None:
    before = set(threading.enumerate())

    def handle(_: object) -> None:
        sys.setprofile(linger)

    def linger(frame: FrameType, event: str, _: object) -> None:
        if event == "return" and frame.f_code.co_name == "_worker":  # the thread has nothing left to do
            threading.Event().wait(0.1)

    async def main() -> None:
        async with connect(MemoryStore()) as bucket:
            queue = bucket.queue("jobs")
            await queue.send(1)
            await queue.run(handle, stop_when_empty=True, signals=False)
        assert set(threading.enumerate()) <= before

    asyncio.run(main())


class Ran:
    """A procedure that a caller may leave, and what was done about it."""

    def __init__(self) -> None:
        self.go_on = Latch()
        self.left: list[str] = []
        self.ended = asyncio.Event()

    def procedure(self, *, late: bool = False) -> Procedure[str]:
        if late:
            yield from Wait(self.go_on)
        yield from IfAbandoned(self._leaving)
        yield from Wait(self.go_on)
        return "result"

    def _leaving(self) -> Procedure[None]:
        self.left.append("left")
        yield from Pause(0)
        self.ended.set()


@pytest.mark.parametrize("late", [False, True], ids=["said before", "said after"])
def test_what_is_to_be_done_when_the_caller_leaves_is_done_once(late: bool) -> None:
    async def main() -> list[str]:
        engine, ran = Asynchronous(Hands(MemoryStore())), Ran()
        caller = asyncio.create_task(engine.run(ran.procedure(late=late)))
        await asyncio.sleep(0)
        await cancel(caller)
        ran.go_on.open()
        await asyncio.wait_for(ran.ended.wait(), 10)
        await engine.close()
        return ran.left

    assert asyncio.run(main()) == ["left"]


def test_a_caller_that_is_cancelled_with_the_result_on_its_way_has_left_too() -> None:
    async def main() -> list[str]:
        engine, ran = Asynchronous(Hands(MemoryStore())), Ran()
        ran.go_on.open()
        caller = asyncio.create_task(engine.run(ran.procedure()))
        while len(asyncio.all_tasks()) < 3:
            await asyncio.sleep(0)
        (inner,) = asyncio.all_tasks() - {caller, asyncio.current_task()}
        inner.add_done_callback(lambda _: caller.cancel())  # the result is there, the caller has not seen it
        with contextlib.suppress(asyncio.CancelledError):
            await caller
        await engine.close()
        return ran.left if caller.cancelled() else ["left", "nothing to test: the caller was faster"]

    assert asyncio.run(main()) == ["left"]


def test_a_caller_that_stays_has_not_left() -> None:
    async def main() -> tuple[str, list[str]]:
        engine, ran = Asynchronous(Hands(MemoryStore())), Ran()
        ran.go_on.open()
        result = await engine.run(ran.procedure())
        await engine.close()
        return result, ran.left

    assert asyncio.run(main()) == ("result", [])
