"""What only a process of its own can show: signals, forks, and programs that forget to close."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import bucketmq
from bucketmq.engines.signals import StopOnSignal
from procedures.world import drain, eventually


def program(text: str, url: str) -> subprocess.Popen[str]:
    code = f"import bucketmq, os, sys, time\nURL = {url!r}\n" + textwrap.dedent(text)
    command = [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", code]  # of forks beside threads
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str], seconds: float = 30) -> tuple[str, str]:
    try:
        return process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise


def test_sigterm_finishes_what_is_in_hand_and_releases_the_rest(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket"
    with bucketmq.connect(url) as bucket:
        queue = bucket.queue("jobs", lease_seconds=600)
        queue.send_many(range(10))
        worker = program(
            """
            bucket = bucketmq.connect(URL)
            def handle(delivery):
                print("began", delivery.body, flush=True)
                time.sleep(1)
                print("ended", delivery.body, flush=True)
            bucket.queue("jobs").run(handle, prefetch=5)
            print("stopped", flush=True)
            """,
            url,
        )
        assert worker.stdout is not None
        assert worker.stdout.readline() == "began 0\n"
        worker.send_signal(signal.SIGTERM)
        out, err = finish(worker)
        assert (out, err, worker.returncode) == ("ended 0\nstopped\n", "", 0)
        stats = queue.stats()
        assert (stats.depth, stats.in_flight) == (9, 0)
        batch = queue.receive(10, wait_seconds=5)
        assert [delivery.body for delivery in batch] == list(range(1, 10))
        assert {delivery.attempt for delivery in batch} == {1}


def test_sigterm_to_an_asyncio_worker_does_the_same(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket"
    with bucketmq.connect(url) as bucket:
        queue = bucket.queue("jobs", lease_seconds=600)
        queue.send_many(range(10))
        worker = program(
            """
            import asyncio
            async def main():
                async with bucketmq.aio.connect(URL) as bucket:
                    async def handle(delivery):
                        print("began", delivery.body, flush=True)
                        await asyncio.sleep(1)
                        print("ended", delivery.body, flush=True)
                    await bucket.queue("jobs").run(handle, prefetch=5)
            asyncio.run(main())
            print("stopped", flush=True)
            """,
            url,
        )
        assert worker.stdout is not None
        assert worker.stdout.readline() == "began 0\n"
        worker.send_signal(signal.SIGTERM)
        out, err = finish(worker)
        assert (out, err, worker.returncode) == ("ended 0\nstopped\n", "", 0)
        assert [delivery.body for delivery in queue.receive(10, wait_seconds=5)] == list(range(1, 10))


def test_sigterm_wakes_an_idle_worker_at_once(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket"
    worker = program(
        """
        bucket = bucketmq.connect(URL)
        queue = bucket.queue("jobs")
        queue.send("x")
        queue.run(lambda delivery: print("idle soon", flush=True))
        """,
        url,
    )
    assert worker.stdout is not None
    assert worker.stdout.readline() == "idle soon\n"
    time.sleep(0.3)
    started = time.monotonic()
    worker.send_signal(signal.SIGTERM)
    finish(worker)
    assert worker.returncode == 0
    assert time.monotonic() - started < 5


def test_a_signal_that_comes_before_the_worker_is_set_up_is_not_lost() -> None:
    class Worker:
        stopped = False

        def stop(self) -> None:
            self.stopped = True

    worker: Any = Worker()
    with StopOnSignal(active=True) as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0)  # the interpreter runs signal handlers between two instructions
        stop.watch(worker)
    assert worker.stopped


def test_signal_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopOnSignal(active=True):
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_forked_child_is_told_to_connect_again(tmp_path: Path) -> None:
    process = program(
        """
        bucket = bucketmq.connect(URL)
        queue = bucket.queue("jobs")
        queue.send("parent")
        queue.receive(1)[0].ack()
        child = os.fork()
        if child == 0:
            for use in (lambda: queue.send("child"), lambda: queue.receive(1), queue.stats, queue.flush):
                try:
                    use()
                except bucketmq.Invalid as error:
                    print(error, flush=True)
            with bucketmq.connect(URL) as own:
                own.queue("jobs").send("child")
            sys.exit(0)
        os.waitpid(child, 0)
        queue.send("parent again")
        bucket.close()
        """,
        f"file://{tmp_path}/bucket",
    )
    out, err = finish(process)
    assert (err, process.returncode) == ("", 0)
    assert out.splitlines() == ["this bucket was opened before a fork; call connect() again in the child process"] * 4
    with bucketmq.connect(f"file://{tmp_path}/bucket") as bucket:
        assert drain(bucket.queue("jobs")) == ["child", "parent again"]


def test_an_asyncio_bucket_says_so_too(tmp_path: Path) -> None:
    process = program(
        """
        import asyncio
        async def main():
            bucket = bucketmq.aio.connect(URL)
            await bucket.queue("jobs").send("parent")
            child = os.fork()
            if child == 0:
                try:
                    await bucket.queue("jobs").send("child")
                except bucketmq.Invalid as error:
                    print(error, flush=True)
                os._exit(0)
            os.waitpid(child, 0)
            await bucket.close()
        asyncio.run(main())
        """,
        f"file://{tmp_path}/bucket",
    )
    out, err = finish(process)
    assert (err, process.returncode) == ("", 0)
    assert "connect() again in the child" in out


def test_a_program_that_forgets_to_close_has_its_settlements_handed_in(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket"
    process = program(
        """
        queue = bucketmq.connect(URL).queue("jobs")
        queue.send_many([*"ab"])
        first, second = queue.receive(2)
        first.ack()
        second.bury("no")
        """,
        url,
    )
    assert finish(process) == ("", "")
    with bucketmq.connect(url) as bucket:
        stats = bucket.queue("jobs").stats()
        assert (stats.depth, stats.dead) == (0, 1)


def test_a_killed_process_loses_no_message(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket"
    process = program(
        """
        queue = bucketmq.connect(URL).queue("jobs", lease_seconds=1)
        queue.send_many(range(3))
        queue.receive(2)[0].ack()
        print("ready", flush=True)
        time.sleep(60)
        """,
        url,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.kill()
    finish(process)
    with bucketmq.connect(url) as bucket:
        queue = bucket.queue("jobs")
        got: list[Any] = []
        eventually(lambda: got.extend(drain(queue)) or queue.stats().depth == 0)
        assert sorted(got)[-2:] == [1, 2]
