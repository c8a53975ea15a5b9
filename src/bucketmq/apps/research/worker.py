"""Running trials: messages of the queue in, results out, many at a time. Any number of workers may run.

A result is created if it is absent, then its message is settled. A worker that dies in between leaves a message that is
delivered again, to somebody who finds the result. Results are written together and settlements ride with the next
receive, so that a trial of ten milliseconds costs one request of its own. How many trials are taken at a time follows
from how long they take: short ones by the hundred, long ones as many as there are slots, so that nothing waits behind a
straggler.

What this place cannot run (a simulator that is missing, in another version, or not allowed) is given back for another
worker; after the queue's attempts it is a dead letter, and never a result.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import platform
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from bucketmq import aio
from bucketmq.apps.research.plan import Job, read_job
from bucketmq.apps.research.pool import Slot, may_run, result_of
from bucketmq.apps.research.record import CLOSED, STOP, TRIALS, Result, result_key, study_key
from bucketmq.apps.research.run import Ran
from bucketmq.errors import BucketMQError, Denied, Invalid, LeaseLost, Unavailable
from bucketmq.procedures.objects.batches import Stored
from bucketmq.procedures.objects.put import Put

IN_HAND_SECONDS = 2.0
"""A worker takes about so much work at a time."""
IN_HAND_MAX = 200
LEASE_SECONDS = 30.0
EXTEND_SECONDS = 10.0
WAIT_SECONDS = 5.0
WRITE_SECONDS = 0.5
"""A result waits for others to be written with at most so long."""
WRITE_AT_A_TIME = 200
CLOSED_SECONDS = 5.0
"""How often is asked whether a study was closed or stopped."""
STOP_SECONDS = 8.0
"""A trial that is running when the worker is asked to stop has so long to end; then another worker runs it."""
ELSEWHERE_SECONDS = 10.0
AGAIN_SECONDS = 2.0

logger = logging.getLogger("bucketmq.research")


class Held(msgspec.Struct):
    """A trial in the worker's hands."""

    delivery: aio.Delivery
    job: Job
    result: Result | None = None


class Worker:
    """What one process runs: `slots` trials at a time."""

    def __init__(
        self,
        bucket: aio.Bucket,
        *,
        slots: int = 0,
        allowed: tuple[str, ...] = (),
        queue: str = TRIALS,
        told: Callable[[Result], None] = lambda _: None,
    ) -> None:
        self._bucket = bucket
        self._queue = bucket.queue(queue)
        self._slots = slots or os.cpu_count() or 1
        self._allowed = allowed
        self._told = told
        self._name = f"{platform.node()}:{os.getpid()}"
        self._stopping = asyncio.Event()
        self._jobs: asyncio.Queue[Held] = asyncio.Queue()
        self._held: dict[str, Held] = {}
        """By message id: what was received and is not settled."""
        self._done: list[Held] = []
        self._news = asyncio.Event()
        self._closed: dict[str, tuple[float, bool]] = {}
        self._seconds = IN_HAND_SECONDS / 2
        """How long a trial takes, about."""

    def stop(self) -> None:
        self._stopping.set()
        self._news.set()

    async def run(self, *, stop_when_empty: bool = False) -> None:
        """Work until `stop`, or until the queue is empty."""
        slots = [Slot() for _ in range(self._slots)]
        threads = ThreadPoolExecutor(self._slots, thread_name_prefix="trials")
        runners = [asyncio.create_task(self._run_jobs(slot, threads)) for slot in slots]
        helpers = [asyncio.create_task(each) for each in (self._write_results(), self._extend())]
        try:
            await self._fetch(stop_when_empty=stop_when_empty, watched=[*runners, *helpers])
            await self._finish()
        finally:
            for task in (*runners, *helpers):
                task.cancel()
            for slot in slots:
                await asyncio.to_thread(slot.close)
            await asyncio.gather(*runners, *helpers, return_exceptions=True)
            threads.shutdown()

    @property
    def _wanted(self) -> int:
        """How many trials to hold."""
        return max(self._slots, min(IN_HAND_MAX, round(self._slots * IN_HAND_SECONDS / max(self._seconds, 1e-4))))

    async def _fetch(self, *, stop_when_empty: bool, watched: list[asyncio.Task[None]]) -> None:
        while not self._stopping.is_set():
            for task in watched:
                if task.done():
                    task.result()
            room = self._wanted - len(self._held)
            if self._held and room < max(1, self._wanted // 2):
                await self._wait_for_news()
                continue
            wait = 0.0 if self._held or stop_when_empty else WAIT_SECONDS
            batch = await self._receive(room, wait)
            for delivery in batch:
                await self._take(delivery)
            if batch:
                continue
            if self._held:
                await self._wait_for_news()
            elif stop_when_empty:
                return

    async def _wait_for_news(self) -> None:
        self._news.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), WRITE_SECONDS)

    async def _receive(self, limit: int, wait_seconds: float) -> Sequence[aio.Delivery]:
        """Trials, or none if there are none, or if the worker is asked to stop meanwhile."""
        receiving = asyncio.ensure_future(
            self._queue.receive(limit, wait_seconds=wait_seconds, lease_seconds=LEASE_SECONDS)
        )
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait([receiving, stopping], return_when=asyncio.FIRST_COMPLETED)
            return receiving.result() if receiving.done() else ()
        finally:
            stopping.cancel()
            receiving.cancel()
            await asyncio.gather(receiving, stopping, return_exceptions=True)

    async def _take(self, delivery: aio.Delivery) -> None:
        """Begin a trial, unless there is nothing to begin."""
        try:
            job = read_job(delivery.body)
        except (Invalid, BucketMQError) as error:
            await delivery.bury(str(error)[:500])
            return
        try:
            may_run(job, self._allowed)
        except Denied as error:
            await delivery.retry(str(error)[:500], delay_seconds=ELSEWHERE_SECONDS)
            return
        if await self._is_closed(job.study) or (
            (delivery.attempt > 1 or job.again) and await self._bucket.look(result_key(job.study, job.id)) is not None
        ):
            await delivery.ack()
            return
        held = self._held[delivery.id] = Held(delivery, job)
        self._jobs.put_nowait(held)

    async def _is_closed(self, study: str) -> bool:
        """Whether nothing more is to be run for a study. Two HEADs in five seconds."""
        known = self._closed.get(study)
        now = time.monotonic()
        if known is None or (not known[1] and now - known[0] >= CLOSED_SECONDS):
            found = [await self._bucket.look(study_key(study, name)) for name in (CLOSED, STOP)]
            known = self._closed[study] = now, any(each is not None for each in found)
        return known[1]

    async def _run_jobs(self, slot: Slot, threads: ThreadPoolExecutor) -> None:
        loop = asyncio.get_running_loop()
        while True:
            held = await self._jobs.get()
            if self._stopping.is_set():
                self._jobs.put_nowait(held)
                return
            ran: Ran = await loop.run_in_executor(threads, slot.run, held.job)
            self._seconds += 0.2 * (ran.seconds - self._seconds)
            if ran.misfit:
                logger.warning("action=trial_left_to_others trial=%s error=%s", held.job.id, ran.misfit)
                self._held.pop(held.delivery.id, None)
                with contextlib.suppress(LeaseLost):
                    await held.delivery.retry(ran.misfit, delay_seconds=ELSEWHERE_SECONDS)
                continue
            held.result = result_of(held.job, ran, self._name)
            self._done.append(held)
            self._news.set()

    async def _write_results(self) -> None:
        """Write results as they come, those of a moment together."""
        waited = 0.0
        while True:
            running = len(self._held) - len(self._done)
            if self._done and (len(self._done) >= WRITE_AT_A_TIME or waited >= WRITE_SECONDS or not running):
                await self._write()
                waited = 0.0
                continue
            began = time.monotonic()
            await asyncio.sleep(0.02)
            waited = waited + time.monotonic() - began if self._done else 0.0

    async def _write(self) -> None:
        done, self._done = self._done, []
        objects: dict[str, Put] = {}
        for held in done:
            key = result_key(held.job.study, held.job.id)
            objects[key] = Put(key, msgspec.json.encode(held.result), only_new=True)
        try:
            ends = dict(zip(objects, await self._bucket.put_many(objects.values()), strict=True))
        except Unavailable as error:
            logger.warning("action=results_not_written count=%d error=%s", len(done), error)
            self._done = [*done, *self._done]
            await asyncio.sleep(AGAIN_SECONDS)
            return
        for held in done:
            end = ends[result_key(held.job.study, held.job.id)]
            self._held.pop(held.delivery.id, None)
            with contextlib.suppress(LeaseLost):
                if isinstance(end, Stored) or end.kind == "contended":  # somebody else's result is as good
                    await held.delivery.ack()
                else:
                    await held.delivery.retry(end.reason[:500])
            if held.result is not None:
                self._told(held.result)
        self._news.set()

    async def _extend(self) -> None:
        """Keep the leases of what is in hand. One PUT for each receive that is not worked off."""
        while True:
            await asyncio.sleep(EXTEND_SECONDS)
            lots = {id(each.delivery.lot): each.delivery for each in self._held.values()}
            for delivery in lots.values():
                with contextlib.suppress(LeaseLost, Invalid, Unavailable):
                    await delivery.extend(LEASE_SECONDS)

    async def _finish(self) -> None:
        """Give back what was not begun; let what is running end, for a while; write what is there."""
        while not self._jobs.empty():
            held = self._jobs.get_nowait()
            self._held.pop(held.delivery.id, None)
            with contextlib.suppress(LeaseLost):
                await held.delivery.release()
        by = time.monotonic() + STOP_SECONDS
        while len(self._held) > len(self._done) and time.monotonic() < by:
            await asyncio.sleep(0.02)
        while self._done and time.monotonic() < by + STOP_SECONDS:
            await self._write()
        for held in self._held.values():
            with contextlib.suppress(LeaseLost, Invalid):
                await held.delivery.release()
        with contextlib.suppress(LeaseLost):
            await self._queue.flush()
