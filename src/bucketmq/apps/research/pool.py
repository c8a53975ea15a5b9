"""Processes that run trials, from the worker's side: a slot is one of them, started when it is needed and replaced when
it dies, runs out of time or out of memory. Blocking; one thread for each slot.

What happens inside is `run`'s. Nothing here knows a bucket, so that a worker and a task of Spark use the same.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Self

import msgspec

from bucketmq.apps.research.plan import COMMAND, Job
from bucketmq.apps.research.record import Failure, Result
from bucketmq.apps.research.run import Ran
from bucketmq.apps.research.simulators import BUILT_IN
from bucketmq.errors import Denied

SPARE_SECONDS = 5.0
"""A command is ended by the process that started it; one that does not answer for so much longer is ended from here."""
START_SECONDS = 60.0
"""A process must say by then that it is ready. What starting takes is not the trial's time."""
ANSWER_BYTES_MAX = 4 << 20
LOOK_SECONDS = 0.25
"""How often is looked whether a process that does not answer is still there: its line may have been closed."""


class Slot:
    """One process that runs one trial at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._ready = False
        """Whether the process has said that it waits for trials."""

    def run(self, job: Job) -> Ran:
        """What came of it. A process that dies, or takes too long, is a failure of the trial."""
        process = self._started()
        if not self._ready and not self._becomes_ready(process):
            return Ran(misfit="a process for trials could not be started here, or took too long to start")
        began = time.monotonic()
        spare = SPARE_SECONDS if job.simulator == COMMAND else 0.0
        answer = None
        try:
            assert process.stdin is not None
            process.stdin.write(msgspec.json.encode(job) + b"\n")
            process.stdin.flush()
            answer = _line(process, began + job.limits.seconds + spare)
        except (OSError, ValueError):  # it is dead, or was closed
            pass
        seconds = round(time.monotonic() - began, 6)
        if answer:
            try:
                ran = msgspec.json.decode(answer, type=Ran)
            except msgspec.MsgspecError:
                ran = Ran(failure=Failure("garbage", "it wrote to the line of its runner"), seconds=seconds, tired=True)
            if ran.tired:
                self._end()
            return ran
        timed_out = answer is None and process.poll() is None
        self._end()
        if self._closed:
            raise InterruptedError("the slot was closed while a trial was running")
        if timed_out:
            return Ran(failure=Failure("time", f"it took more than {job.limits.seconds:g} seconds"), seconds=seconds)
        code = process.returncode
        how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended the process with {code}"
        return Ran(failure=Failure("died", how), seconds=seconds)

    def _started(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._closed:
                raise InterruptedError("the slot is closed")
            if self._process is None or self._process.poll() is not None:
                self._ready = False
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "bucketmq.apps.research.run"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
                )
            return self._process

    def _becomes_ready(self, process: subprocess.Popen[bytes]) -> bool:
        with contextlib.suppress(OSError, ValueError):  # it was closed
            self._ready = bool(_line(process, time.monotonic() + START_SECONDS))
        if not self._ready:
            self._end()
            if self._closed:
                raise InterruptedError("the slot was closed while its process was starting")
        return self._ready

    def _end(self) -> None:
        """End the process and its group. It is asked first, by the end of its input, to end what left its group."""
        process, self._process = self._process, None
        if process is None:
            return
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.5)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        """End the process, whatever it is doing."""
        with self._lock:
            self._closed = True
        self._end()


def _line(process: subprocess.Popen[bytes], by: float) -> bytes | None:
    """The answer; b"" if the process is gone; None if there is none by then."""
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    read = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while (left := by - time.monotonic()) > 0:
            if not selector.select(min(left, LOOK_SECONDS)):
                if process.poll() is not None:
                    return b""
                continue
            more = os.read(descriptor, 1 << 16)
            if not more:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(LOOK_SECONDS)  # it may have closed its line and go on: then it is ended
                return b""
            read += more
            if read.endswith(b"\n"):
                return bytes(read)
            if len(read) > ANSWER_BYTES_MAX:
                return b"too much"
    return None


def may_run(job: Job, allowed: Iterable[str]) -> None:
    """`Denied` unless a worker may run this simulator: built-in ones, and what its settings name."""
    wanted = job.command[0] if job.command else job.simulator
    if job.simulator in BUILT_IN or wanted in set(allowed):
        return
    raise Denied(
        f"this worker may not run {wanted!r}: anybody who may write to the bucket can write a plan; allow it with "
        f"--simulators {wanted}, or RESEARCH_SIMULATORS"
    )


def result_of(job: Job, ran: Ran, worker: str) -> Result:
    return Result(
        id=job.id,
        parameters=job.parameters,
        seed=job.seed,
        simulator=job.simulator,
        version=job.version,
        metrics=ran.metrics,
        failure=ran.failure,
        log=ran.log,
        seconds=ran.seconds,
        cpu_seconds=ran.cpu_seconds,
        worker=worker,
        python=ran.python,
    )


class Pool:
    """Several slots, for a caller that has many jobs at once."""

    def __init__(self, slots: int = 1) -> None:
        self._slots = [Slot() for _ in range(slots)]
        self._free = list(self._slots)
        self._threads = ThreadPoolExecutor(slots, thread_name_prefix="trials")

    def run(self, jobs: Iterable[Job]) -> list[Ran]:
        """What came of each, in the same order."""
        return list(self._threads.map(self._one, jobs))

    def _one(self, job: Job) -> Ran:
        slot = self._free.pop()
        try:
            return slot.run(job)
        finally:
            self._free.append(slot)

    def close(self) -> None:
        for slot in self._slots:
            slot.close()
        self._threads.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
