"""worker: handlers by name, counts, and SIGTERM."""

from __future__ import annotations

import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from metrics.test_push import collecting

from bucketmq.client import Bucket
from cli.ran import Cli, Shell

TASKS = """
import asyncio, os, pathlib, time
import bucketmq
from bucketmq import Bury


here = pathlib.Path(__file__).parent
queue = bucketmq.connect(os.environ["BUCKETMQ_URL"], probe=False).queue("jobs")
number = 7

def plain(delivery):
    with (here / "handled").open("a") as file:
        file.write(f"{delivery.body}\\n")

async def patient(delivery):
    await asyncio.sleep(0)
    plain(delivery)

@queue.handler
def decorated(delivery):
    plain(delivery)

def buries(delivery):
    return Bury("not wanted")

def fails(delivery):
    raise RuntimeError("always")

class Fails:
    async def __call__(self, delivery):
        raise RuntimeError("always")

object_fails = Fails()
seen = set()

def fails_once(delivery):
    if delivery.id not in seen:
        seen.add(delivery.id)
        raise RuntimeError("once")

def releases_once(delivery):
    if delivery.id not in seen:
        seen.add(delivery.id)
        return bucketmq.Release()

def slow(delivery):
    plain(delivery)
    while not (here / "finish").exists():
        time.sleep(0.02)
"""


@pytest.fixture
def tasks(folder: Path) -> Path:
    (folder / "tasks.py").write_text(TASKS)
    return folder


def handled(folder: Path) -> list[str]:
    return sorted((folder / "handled").read_text().split()) if (folder / "handled").exists() else []


@pytest.mark.parametrize(
    "handler", ["tasks:plain --queue jobs", "tasks:patient --queue jobs -c 2", "tasks:decorated -c 4"]
)
def test_a_handler_handles_everything(shell: Shell, bucket: Bucket, tasks: Path, handler: str) -> None:
    bucket.queue("jobs").send_many(range(10))
    ran = shell(f"bucketmq worker {handler} --stop-when-empty --json")
    assert ran.code == 0, ran
    assert (ran.row["handled"], ran.row["failed"]) == (10, 0)
    assert ran.row["requests"]["replace"] > 0
    assert handled(tasks) == sorted(map(str, range(10)))
    assert bucket.queue("jobs").stats().depth == 0


def test_outcomes_and_exceptions_count(shell: Shell, bucket: Bucket, tasks: Path) -> None:
    bucket.queue("jobs", backoff={"first_seconds": 3600}).send(1)
    ran = shell("bucketmq worker tasks:fails --queue jobs --stop-when-empty")
    assert "0 messages handled, 1 failed" in ran.err
    assert ran.code == 1  # one is left behind
    bucket.queue("other").send(1)
    ran = shell("bucketmq worker tasks:buries --queue other --stop-when-empty --json")
    assert (ran.code, ran.row["handled"], ran.row["failed"]) == (1, 0, 1)
    assert [letter.reason for letter in bucket.queue("other").dead_letters.peek()] == ["not wanted"]


def test_an_exception_of_an_object_with_an_async_call_counts(shell: Shell, bucket: Bucket, tasks: Path) -> None:
    bucket.queue("jobs", backoff={"first_seconds": 3600}).send(1)
    ran = shell("bucketmq worker tasks:object_fails --queue jobs --stop-when-empty --json")
    assert (ran.code, ran.row["handled"], ran.row["failed"]) == (1, 0, 1), ran


def test_a_message_that_failed_and_was_handled_after_all_is_no_failure(
    shell: Shell, bucket: Bucket, tasks: Path
) -> None:
    bucket.queue("jobs", backoff={"first_seconds": 0}).send(1)
    ran = shell("bucketmq worker tasks:fails_once --queue jobs --stop-when-empty --json")
    assert (ran.code, ran.row["handled"], ran.row["failed"]) == (0, 1, 1), ran


def test_a_released_message_is_neither_handled_nor_failed(shell: Shell, bucket: Bucket, tasks: Path) -> None:
    bucket.queue("jobs").send(1)
    ran = shell("bucketmq worker tasks:releases_once --queue jobs --stop-when-empty --json")
    assert (ran.code, ran.row["handled"], ran.row["failed"]) == (0, 1, 0), ran


@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("import nosuchpackage", "module 'broken' needs nosuchpackage, which is not installed"),
        ("x = 1 / 0", "module 'broken' cannot be imported (ZeroDivisionError)"),
        ("def handle(:", "module 'broken' cannot be imported (SyntaxError)"),
    ],
)
def test_a_module_that_cannot_be_imported_says_why(shell: Shell, folder: Path, module: str, says: str) -> None:
    (folder / "broken.py").write_text(module + "\n")
    ran = shell("bucketmq worker broken:handle --queue jobs")
    assert ran.code == 2, ran
    assert f"error (invalid): {says}" in ran.err
    if "the lines above" in ran.err:
        assert "broken.py" in ran.err and "importlib" not in ran.err


def test_logging_that_the_handlers_module_has_set_up_is_left_alone(shell: Shell, bucket: Bucket, folder: Path) -> None:
    (folder / "own.py").write_text(
        "import logging\nlogging.basicConfig(format='OWN %(message)s')\ndef fails(delivery): raise ValueError('x')\n"
    )
    bucket.queue("jobs").send(1)
    ran = shell("bucketmq worker own:fails --queue jobs --stop-when-empty")
    assert "OWN action=handler_failed" in ran.err
    assert " WARNING action=" not in ran.err


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        ("nosuchmodule:handle", "no module"),
        ("tasks:missing", "has no 'missing'"),
        ("tasks:number", "not a function"),
        ("tasks", "module:function"),
        ("tasks:plain", "--queue"),
    ],
)
def test_a_handler_that_cannot_be_used_is_a_usage_error(shell: Shell, tasks: Path, handler: str, says: str) -> None:
    ran = shell(f"bucketmq worker {handler}")
    assert ran.code == 2, ran
    assert says in ran.err


def test_a_plain_function_of_the_library_needs_a_queue(cli: Cli) -> None:
    assert cli("worker", "os:getpid").code == 2


@pytest.fixture
def slow_worker(bucket: Bucket, tasks: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A worker that has one message in hand and others fetched."""
    bucket.queue("jobs").send_many(range(8))
    process = subprocess.Popen(
        ["bucketmq", "worker", "tasks:slow", "--queue", "jobs"],
        cwd=tasks,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 30
        while not handled(tasks) and time.monotonic() < deadline:
            time.sleep(0.02)
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_finishes_what_is_in_hand_and_gives_the_rest_back(
    slow_worker: subprocess.Popen[str], bucket: Bucket, tasks: Path, number: signal.Signals
) -> None:
    slow_worker.send_signal(number)
    (tasks / "finish").touch()
    _, err = slow_worker.communicate(timeout=30)
    assert slow_worker.returncode == 0, err
    done = len(handled(tasks))
    stats = bucket.queue("jobs").stats()
    assert (stats.depth, stats.in_flight) == (8 - done, 0)
    assert {delivery.attempt for delivery in bucket.queue("jobs").receive(10)} == {1}


def test_a_worker_has_a_port_for_prometheus_and_leaves_a_report(
    bucket: Bucket, tasks: Path, environment: dict[str, str]
) -> None:
    bucket.queue("jobs").send_many(range(3))
    command = ["bucketmq", "worker", "tasks:plain", "--queue", "jobs", "--metrics-port", "0"]
    with subprocess.Popen(command, cwd=tasks, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = next(line for line in process.stderr if "metrics at " in line)
            page, text = line.split()[-1], ""
            deadline = time.monotonic() + 30
            while '"ack",queue="jobs",subscription="main"} 3.0' not in text and time.monotonic() < deadline:
                with urllib.request.urlopen(page, timeout=10) as answer:
                    text = answer.read().decode()
            assert 'bucketmq_handled_total{outcome="ack",queue="jobs",subscription="main"} 3.0' in text
            assert 'bucketmq_queue_sent_total{queue="jobs"} 3.0' in text
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)
    (report,) = (tasks / "bucket" / "bucketmq" / "figures" / "reports").iterdir()
    assert report.name == "worker.jobs.json" and '"rows":3' in report.read_text()


def test_a_worker_sends_its_figures_to_a_collector(shell: Shell, bucket: Bucket, tasks: Path) -> None:
    bucket.queue("jobs").send_many(range(3))
    with collecting() as (url, collector):
        ran = shell(f"bucketmq worker tasks:plain --queue jobs --stop-when-empty --otlp {url}")
        assert ran.code == 0, ran
        (point,) = collector.metrics()["bucketmq_handled"].sum.data_points
        assert point.as_double == 3 or point.as_int == 3
    ran = shell("bucketmq worker tasks:plain --queue jobs --stop-when-empty --otlp localhost")
    assert (ran.code, "not the address of a collector" in ran.err) == (2, True)
