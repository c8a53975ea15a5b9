"""Parts of an application as processes: ready when they say so, started again when they die, ended together."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bucketmq.apps import supervisor
from bucketmq.apps.supervisor import Supervisor
from bucketmq.errors import BucketMQError, Invalid

WAIT_SECONDS = 60.0

PROGRAM = """
import json, pathlib, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
name, what = sys.argv[1:3]
here = pathlib.Path(sys.argv[3])
if what == "wrong":
    print(json.dumps({"error": {"kind": "invalid", "message": "no such thing"}}))
    sys.exit(2)
if what == "unready":
    print("cannot")
    sys.exit(1)
print("a line of", name)
print(json.dumps({"part": name, "url": "http://there" if what == "served" else ""}), flush=True)
signal.sigwait([signal.SIGTERM])
(here / f"{name}.finished").touch()
"""


class Told(list[tuple[str, str]]):
    def __call__(self, part: str, text: str) -> None:
        self.append((part, text))


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "part_program.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "part_program"


def supervising(program: str, folder: Path, told: Told, **parts: str) -> Supervisor:
    commands = {name: (name, what, str(folder)) for name, what in parts.items()}
    environment = {"PYTHONUNBUFFERED": "1"}
    return Supervisor(
        commands, folder=folder, environment=environment, tell=told, module=program, pauses_seconds=(0.0,)
    )


def until(running: Supervisor, done: Callable[[], bool]) -> None:
    by = time.monotonic() + WAIT_SECONDS
    running.stay(lambda: done() or time.monotonic() > by)
    assert done()


def test_parts_are_ready_when_they_say_so_and_finish_when_all_ends(program: str, tmp_path: Path) -> None:
    told = Told()
    with supervising(program, tmp_path, told, one="served", two="plain") as running:
        until(running, lambda: running.ready)
        assert running.parts["one"].url == "http://there"
    assert {("one", "ready at http://there"), ("two", "ready"), ("one", "a line of one")} <= set(told)
    assert (tmp_path / "one.finished").exists() and (tmp_path / "two.finished").exists()
    assert not any(part.member.running for part in running.parts.values())


def test_a_part_that_is_killed_is_started_again_and_told(program: str, tmp_path: Path) -> None:
    told = Told()
    with supervising(program, tmp_path, told, one="plain", two="plain") as running:
        until(running, lambda: running.ready)
        os.kill(running.parts["one"].member.process.pid, signal.SIGKILL)
        until(running, lambda: running.parts["one"].starts == 2 and running.ready)
    assert ("one", "ended by itself (signal 9); is started again in 0 s") in told
    assert running.parts["two"].starts == 1


def test_a_part_whose_command_is_wrong_ends_all_with_its_error(program: str, tmp_path: Path) -> None:
    with (
        pytest.raises(Invalid, match="two cannot run: no such thing"),
        supervising(program, tmp_path, Told(), one="plain", two="wrong") as running,
    ):
        until(running, lambda: False)
    assert not running.parts["one"].member.running


def test_a_part_that_is_never_ready_is_tried_a_few_times_and_then_all_ends(program: str, tmp_path: Path) -> None:
    told = Told()
    with (
        pytest.raises(BucketMQError, match="one ended 3 times before it was ready, last with 1: cannot"),
        supervising(program, tmp_path, told, one="unready") as running,
    ):
        until(running, lambda: False)
    assert told.count(("one", "started again")) == supervisor.STARTS_MAX - 1


def test_what_a_part_prints_does_not_fill_the_disk(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "LOG_BYTES_MAX", 10)
    told = Told()
    with supervising(program, tmp_path, told, one="plain") as running:
        until(running, lambda: running.ready)
        assert running.parts["one"].member.log.stat().st_size == 0
    assert ("one", "a line of one") in told
