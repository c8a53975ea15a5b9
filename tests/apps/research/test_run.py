"""A trial within its limits: whatever a simulator does, there is a result that says so, and the next one runs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

import bucketmq
from bucketmq.apps.research.plan import Job, Limits, trial_id
from bucketmq.apps.research.pool import Slot, may_run
from bucketmq.apps.research.record import Kind
from bucketmq.apps.research.run import run_job

from .studies import job

TIGHT = Limits(seconds=1.0, memory_bytes=256 << 20, output_bytes=100_000)


@pytest.mark.parametrize(
    ("simulator", "kind", "reason"),
    [
        ("endless", "time", "more than 1 seconds"),
        ("greedy", "memory", "more than 268,435,456 bytes"),
        ("chatty", "output", "more than 100,000 bytes"),
        ("leaving", "died", "ended the process with 7"),
        ("dying", "died", "SIGSEGV"),
        ("exiting", "raised", "SystemExit: enough"),
        ("partly", "raised", "ValueError: x is 3"),
    ],
)
def test_a_function_that_misbehaves_is_a_failed_result(slot: Slot, simulator: str, kind: Kind, reason: str) -> None:
    slot.run(job("plain", x=1))  # so that importing the simulators does not count
    ran = slot.run(job(simulator, limits=TIGHT, x=3))
    assert ran.failure is not None
    assert (ran.failure.kind, ran.metrics) == (kind, {})
    assert reason in ran.failure.reason
    assert slot.run(job("plain", x=1)).metrics == {"cost": 11.0, "gain": -1.0}


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        ("nothing", "garbage"),
        ("a list", "garbage"),
        ("no metrics", "garbage"),
        ("text", "garbage"),
        ("truth", "garbage"),
        ("odd names", "garbage"),
        ("nan", "not a number"),
        ("inf", "not a number"),
        ("another", "metric"),
    ],
)
def test_what_is_no_metrics_is_a_failed_result(slot: Slot, what: str, kind: Kind) -> None:
    ran = slot.run(job("returning", what=what))
    assert ran.failure is not None
    assert ran.failure.kind == kind


def test_a_function_that_hangs_up_on_its_runner_is_a_failed_result(slot: Slot) -> None:
    ran = slot.run(job("hanging_up", limits=Limits(seconds=20.0)))
    assert ran.failure is not None
    assert ran.failure.kind == "died"
    assert slot.run(job("plain", x=1)).metrics == {"cost": 11.0, "gain": -1.0}


def test_a_slot_that_is_closed_does_not_wait_for_the_time_that_its_trial_has_left(slot: Slot) -> None:
    slot.run(job("plain", x=1))
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(slot.run, job("endless", limits=Limits(seconds=10_000.0)))
        _until(lambda: _is_busy(slot))
        slot.close()
        with pytest.raises(InterruptedError):
            running.result(timeout=60)


def _is_busy(slot: Slot) -> bool:
    """Whether the process of a slot uses the processor, as one that never ends does."""
    process = slot._process
    assert process is not None
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12]) >= 2 * os.sysconf("SC_CLK_TCK")


def test_starting_an_interpreter_does_not_count_as_the_time_of_a_trial(
    slot: Slot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import time\ntime.sleep(2.0)\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ['PYTHONPATH']}")
    assert slot.run(job("plain", limits=Limits(seconds=1.9), x=1)).failure is None


def test_a_process_that_cannot_start_is_nobodys_result(
    slot: Slot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os\nos._exit(3)\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ['PYTHONPATH']}")
    ran = slot.run(job("plain", x=1))
    assert (ran.failure, ran.metrics) == (None, {})
    assert "could not be started" in ran.misfit


def test_what_a_function_prints_is_kept_and_does_not_disturb_the_runner(slot: Slot) -> None:
    ran = slot.run(job("talking"))
    assert ran.metrics == {"cost": 1.0}
    assert sorted(ran.log.splitlines()) == ["by the number", "to nobody", "to the runner: {}"]


def test_processes_that_a_trial_leaves_behind_are_ended(slot: Slot) -> None:
    pid = int(slot.run(job("forking")).metrics["cost"])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_simulator_that_is_not_here_is_nobodys_result(slot: Slot) -> None:
    ran = slot.run(job("nowhere"))
    assert (ran.failure, ran.metrics) == (None, {})
    assert "nowhere" in ran.misfit
    other = msgspec.structs.replace(job("plain"), simulator="mmc", version="999")
    assert "installed in version '1'" in slot.run(other).misfit


def command(text: str, limits: Limits = TIGHT) -> Job:
    made = Job(
        study="s", id="", simulator="command", version="1", parameters={"n": 3, "yes": True}, seed=4,
        metrics=("a",), command=("sh", "-c", text), limits=limits,
    )  # fmt: skip
    return msgspec.structs.replace(made, id=trial_id(made, made.parameters, made.seed))


def test_a_command_is_given_parameters_as_words_and_as_json(slot: Slot) -> None:
    ran = slot.run(command("""echo chatter; echo '{"a": {n}.5, "b": {seed}}'"""))
    assert ran.metrics == {"a": 3.5, "b": 4.0}
    assert ran.log.startswith("chatter\n")
    script = "import json,sys; d = json.load(sys.stdin); print(json.dumps({'a': d['parameters']['n'] + d['seed']}))"
    assert slot.run(command(f'{sys.executable} -c "{script}"')).metrics == {"a": 7.0}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("sleep 60", "time"),
        ("trap '' TERM; sleep 60 & sleep 60", "time"),
        ("yes", "output"),
        ("echo garbage", "garbage"),
        ("true", "garbage"),
        ("echo '[1]'", "garbage"),
        ("""echo '{"a": null}'""", "garbage"),
        ("""echo '{"a": 1e999}'""", "garbage"),
        ("""echo '{"b": 1}'""", "metric"),
        ("exit 3", "raised"),
        ("kill -9 $$", "died"),
        (f"{sys.executable} -c 'bytearray(2 << 30)'", "raised"),
    ],
)
def test_a_command_that_misbehaves_is_a_failed_result(slot: Slot, text: str, kind: Kind) -> None:
    ran = slot.run(command(text))
    assert ran.failure is not None
    assert ran.failure.kind == kind, ran.failure
    assert slot.run(command("""echo '{"a": 1}'""")).metrics == {"a": 1.0}


def test_a_command_that_cannot_be_started_is_nobodys_result(slot: Slot) -> None:
    gone = msgspec.structs.replace(command(""), command=("/nowhere/at/all",))
    assert "cannot be started" in slot.run(gone).misfit


def test_trials_end_with_their_worker() -> None:
    """A worker is killed while a command sleeps: nothing of it lives on."""
    mark = f"60.{os.getpid()}"
    program = (
        "from bucketmq.apps.research.pool import Slot; import msgspec, sys;"
        "from bucketmq.apps.research.plan import Job;"
        "Slot().run(msgspec.json.decode(sys.argv[1], type=Job))"
    )
    sleeper = command(f"sleep {mark} & sleep {mark}", Limits(seconds=100.0))
    worker = subprocess.Popen([sys.executable, "-c", program, msgspec.json.encode(sleeper).decode()])
    try:
        _until(lambda: len(_named(mark)) >= 2)
    finally:
        worker.kill()
        worker.wait()
    _until(lambda: not _named(mark))


def _named(mark: str) -> list[str]:
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = each.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [b"sleep", mark.encode()]:
            found.append(each.parent.name)
    return found


def _until(holds: object) -> None:
    by = time.monotonic() + 30
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < by
        time.sleep(0.02)


def test_workers_run_only_what_comes_along_or_was_allowed() -> None:
    plain = job("plain")
    with pytest.raises(bucketmq.Denied, match="may not run 'simulators_here:plain'"):
        may_run(plain, ())
    may_run(plain, ("simulators_here:plain",))
    may_run(msgspec.structs.replace(plain, simulator="mmc"), ())
    with pytest.raises(bucketmq.Denied, match="may not run 'sh'"):
        may_run(command("true"), ("command",))
    may_run(command("true"), ("sh",))


def test_a_trial_in_a_process_of_somebody_elses_leaves_its_children_alone() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            assert run_job(job("plain", x=1)).failure is None
            assert child.poll() is None
        finally:
            child.kill()
