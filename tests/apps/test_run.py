"""`bucketmq apps run` on an application of another package: all parts, one part, killed parts, wrong settings."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from cli.ran import Cli
from cli.running import Running, running

from bucketmq.bucket.port import Object
from bucketmq.client import Bucket

pytest.importorskip("pyarrow")

pytestmark = pytest.mark.usefixtures("installed")

WAIT_SECONDS = 60.0


def said(process: Running, part: str, text: str) -> dict[str, Any]:
    """Read what is told up to this."""
    while line := process.line():
        row: dict[str, Any] = json.loads(line)
        if row.get("part") == part and text in row["said"]:
            return row
    raise AssertionError(f"{part} did not say {text!r}: {process.err.read()}")


def child(parent: int, part: str) -> int:
    """The process that runs a part, found by its command line."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                words = (folder / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            if f"--parent={parent}" in words and part in words:
                return int(folder.name)
    raise AssertionError(f"no process runs {part}")


def is_there(process: int) -> bool:
    try:
        return (Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(done: Any) -> None:
    by = time.monotonic() + WAIT_SECONDS
    while not done():
        assert time.monotonic() < by
        time.sleep(0.05)


ARGS = ["apps", "run", "wordcount", "--without-spark", "--json", "--long-from", "2", "--port-page", "0"]


@pytest.mark.slow
def test_all_parts_run_are_started_again_and_end_together(
    bucket: Bucket, folder: Path, environment: dict[str, str]
) -> None:
    bucket.put("notes/a.txt", "one two three")
    bucket.put("notes/b.txt", "one")
    with running(ARGS, environment, folder) as process:
        page = json.loads(process.line())["page"]  # it has tabs, so it has a dashboard
        said(process, "wordcount", "all parts are ready")
        with urllib.request.urlopen(page) as answer:
            assert answer.status == 200
        bucket.queue("long-notes").receive(1)  # made as the application says
        assert bucket.queue("long-notes").settings().lease_seconds == 20.0
        until(lambda: bucket.queue("long-notes").stats().ready + bucket.queue("long-notes").stats().in_flight)
        assert bucket.get_json("counts/notes/a.txt.json") == {"key": "notes/a.txt", "words": 3}
        os.kill(child(process.process.pid, "long"), signal.SIGKILL)
        said(process, "long", "ended by itself (signal 9)")
        said(process, "long", "ready")
        children = [child(process.process.pid, part) for part in ("long", "counting")]
        code, _, err = process.stop()
        assert code == 0, err
        assert not any(is_there(each) for each in children)
    rules = {rule.name for rule in bucket.rules.list()}
    assert {"wordcount-all", "wordcount-long", "counting"} <= rules


@pytest.mark.slow
def test_the_parts_end_with_a_supervisor_that_is_killed(folder: Path, environment: dict[str, str]) -> None:
    with running([*ARGS, "--token", "hush-hush"], environment, folder) as process:
        said(process, "wordcount", "all parts are ready")
        children = [child(process.process.pid, part) for part in ("long", "counting")]
        for each in children:  # others on the machine can read a command line
            assert b"hush-hush" not in (Path("/proc") / str(each) / "cmdline").read_bytes()
            assert b"WORDCOUNT_TOKEN=hush-hush" in (Path("/proc") / str(each) / "environ").read_bytes()
        process.process.kill()
        until(lambda: not any(is_there(each) for each in children))


STUBBORN = """
import os, signal, subprocess, sys, time
from bucketmq.cli import apps_run

apps_run.PARENT_SECONDS = apps_run.END_SECONDS = 0.1
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if sys.argv[1] == "parent":
    subprocess.Popen([sys.executable, __file__, str(os.getpid())], start_new_session=True)
else:
    helper = subprocess.Popen(["sleep", "120"])
    apps_run._end_with(int(sys.argv[1]))
    print(os.getpid(), helper.pid, flush=True)
time.sleep(120)
"""


def test_a_part_that_does_not_stop_is_killed_after_its_supervisor_with_what_it_started(tmp_path: Path) -> None:
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    command = [sys.executable, str(tmp_path / "stubborn.py"), "parent"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        part, helper = (int(each) for each in parent.stdout.readline().split())
        try:
            parent.kill()
            until(lambda: not is_there(part) and not is_there(helper))
        finally:
            if is_there(part):
                os.killpg(part, signal.SIGKILL)


def test_one_part_runs_alone(cli: Cli, bucket: Bucket) -> None:
    bucket.put("notes/a.txt", "one two three")
    ran = cli("apps", "run", "wordcount", "--only", "counting", "--without-spark", "--once")
    assert ran.code == 0, ran
    assert bucket.get_json("counts/notes/a.txt.json")["words"] == 3
    report = bucket.store.get("bucketmq/figures/reports/pipeline.counting.json")
    assert isinstance(report, Object) and b'"rows":1' in report.body and b'"queue":"events"' in report.body


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "nothing"], "has no part 'nothing'; there are: long, page, counting, listing, spark"),
        (["--long-from", "many"], "--long-from or WORDCOUNT_LONG_FROM cannot be that, not 'many'"),
        (["--lnog"], "there is no option --lnog"),
        (["--once"], "--once goes with --only"),
        (["--only", "long", "--once"], "'long' is an agent"),
        (["--settings", "none.toml"], "cannot read the settings in none.toml"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_starts(
    cli: Cli, folder: Path, words: list[str], said: str
) -> None:
    ran = cli("apps", "run", "wordcount", *words)
    assert ran.code in (1, 2) and said in ran.err
    assert not (folder / "bucket").exists()
