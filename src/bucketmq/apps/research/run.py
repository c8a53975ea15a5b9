"""One trial, within limits, in a process of its own: `python -m bucketmq.apps.research.run`.

The process writes an empty line once it is ready, reads jobs as lines of JSON and answers each with a line. It ends
when its standard input does, which is when its worker is gone, and takes with it whatever a trial has started. A Python
function is called in this process; a command is a child of it. Time that runs out is for the worker to notice (`pool`),
because a function that never ends cannot be ended from within.

What a function or command prints goes to a file, of which the end is kept. Nothing here knows a bucket.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import platform
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import msgspec

from bucketmq.apps.research import simulators
from bucketmq.apps.research.plan import COMMAND, Job
from bucketmq.apps.research.record import Failure, Kind

LOG_BYTES_MAX = 4_096
REASON_CHARS_MAX = 500
METRICS_MAX = 1_000
CPU_SPARE_SECONDS = 2
POLL_SECONDS = 0.002
POLL_SECONDS_MAX = 0.05

_SET_CHILD_SUBREAPER = 36
_SET_DEATH_SIGNAL = 1


class Ran(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of one job."""

    metrics: dict[str, float] = {}
    failure: Failure | None = None
    misfit: str = ""
    """Why this place cannot run it at all: that is nobody's result."""
    log: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    python: str = ""
    tired: bool = False
    """Whether this process should not be used again."""


class _Failed(Exception):
    def __init__(self, kind: Kind, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


class Misfit(Exception):
    """This place cannot run the simulator: it is not installed, or in another version."""


def run_job(job: Job) -> Ran:
    """Run one trial here and now. What it leaves running is ended by the owner of this process."""
    began, cpu = time.monotonic(), _cpu_seconds()
    metrics: dict[str, float] = {}
    failure, misfit, tired = None, "", False
    with tempfile.TemporaryFile() as output:
        try:
            found = _metrics(_command(job, output) if job.simulator == COMMAND else _function(job, output))
            if missing := [name for name in job.metrics if name not in found]:
                raise _Failed("metric", f"it returned no {missing[0]!r}, but {', '.join(found)}")
            metrics = found
        except Misfit as error:
            misfit = str(error)
        except _Failed as error:
            failure = Failure(error.kind, str(error)[:REASON_CHARS_MAX])
            tired = error.kind == "memory"
        log = _tail(output)
    return Ran(
        metrics=metrics,
        failure=failure,
        misfit=misfit,
        log=log,
        seconds=round(time.monotonic() - began, 6),
        cpu_seconds=round(_cpu_seconds() - cpu, 6),
        python=platform.python_version(),
        tired=tired,
    )


def _function(job: Job, output: Any) -> object:
    try:
        simulate, version = simulators.load(job.simulator)
    except Exception as error:
        raise Misfit(f"{type(error).__name__}: {error}"[:REASON_CHARS_MAX]) from None
    if version and version != job.version:
        raise Misfit(f"{job.simulator} is installed in version {version!r}, and the trial is for {job.version!r}")
    with _printing_to(output), _limited(job):
        try:
            return simulate(job.parameters, job.seed)
        except MemoryError:
            raise _Failed("memory", f"it needed more than {job.limits.memory_bytes:,} bytes") from None
        except OSError as error:
            if error.errno == 27:  # EFBIG: RLIMIT_FSIZE
                raise _Failed("output", f"it wrote more than {job.limits.output_bytes:,} bytes") from None
            raise _Failed("raised", f"{type(error).__name__}: {error}") from None
        except (Exception, SystemExit) as error:  # whatever the code of another raises
            raise _Failed("raised", f"{type(error).__name__}: {error}") from None


@contextlib.contextmanager
def _printing_to(output: Any) -> Any:
    """What this process prints, its C libraries and children included, goes to a file."""
    sys.stdout.flush()
    kept = [os.dup(1), os.dup(2)]
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        for number, descriptor in enumerate(kept, 1):
            os.dup2(descriptor, number)
            os.close(descriptor)


@contextlib.contextmanager
def _limited(job: Job) -> Any:
    """Memory beyond what the interpreter has, size of files, and time on the processor."""
    before = {kind: resource.getrlimit(kind) for kind in (resource.RLIMIT_AS, resource.RLIMIT_FSIZE)}
    wanted = {
        resource.RLIMIT_AS: _address_bytes() + job.limits.memory_bytes,
        resource.RLIMIT_FSIZE: job.limits.output_bytes,
    }
    for kind, value in wanted.items():
        _lower(kind, value, before[kind][1])
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        yield
    finally:
        for kind, limits in before.items():
            resource.setrlimit(kind, limits)


def _lower(kind: int, value: int, hard: int) -> None:
    with contextlib.suppress(ValueError, OSError):  # systems that do not know this limit
        resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _address_bytes() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError):
        return 1 << 30
    return pages * resource.getpagesize()


def _command(job: Job, output: Any) -> object:
    """What the command printed as its last line. Parameters are in its words, as `{name}`, and JSON on its input."""
    values = {**{name: _word(value) for name, value in job.parameters.items()}, "seed": str(job.seed)}
    words = [_filled(word, values) for word in job.command]
    asked = msgspec.json.encode({"parameters": job.parameters, "seed": job.seed})
    limits = job.limits

    def prepare() -> None:  # in the child
        for kind, value in (
            (resource.RLIMIT_AS, limits.memory_bytes),
            (resource.RLIMIT_FSIZE, limits.output_bytes),
            (resource.RLIMIT_CPU, math.ceil(limits.seconds) + CPU_SPARE_SECONDS),
            (resource.RLIMIT_CORE, 0),
        ):
            resource.setrlimit(kind, (value, value))
        _prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)

    with tempfile.TemporaryFile() as given:
        given.write(asked)
        given.seek(0)
        try:
            child = subprocess.Popen(
                words,
                stdin=given,
                stdout=output,
                stderr=output,
                process_group=0,
                preexec_fn=prepare,  # noqa: PLW1509  # the other thread only reads; limits cannot be set from outside
            )
        except OSError as error:
            raise Misfit(f"the command {words[0]!r} cannot be started: {error.strerror}") from None
        except subprocess.SubprocessError as error:
            raise Misfit(f"the limits of the command {words[0]!r} cannot be set: {error}") from None
    _CHILDREN.add(child.pid)
    try:
        code = _wait(child, limits.seconds)
    finally:
        _end_group(child.pid)
        child.wait()
        _CHILDREN.discard(child.pid)
    if code is None or code == -signal.SIGXCPU:
        raise _Failed("time", f"it took more than {limits.seconds:g} seconds")
    if code == -signal.SIGXFSZ or os.fstat(output.fileno()).st_size >= limits.output_bytes:
        raise _Failed("output", f"it wrote more than {limits.output_bytes:,} bytes")
    if code < 0:
        raise _Failed("died", f"ended by {_signal_name(-code)}")
    if code > 0:
        raise _Failed("raised", f"exited with {code}")
    return _last_line(output)


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _filled(word: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        word = word.replace("{" + name + "}", value)
    return word


def _wait(child: subprocess.Popen[bytes], seconds: float) -> int | None:
    by, pause = time.monotonic() + seconds, POLL_SECONDS
    while time.monotonic() < by:
        code = child.poll()
        if code is not None:
            return code
        time.sleep(min(pause, max(0.0, by - time.monotonic())))
        pause = min(pause * 1.5, POLL_SECONDS_MAX)
    return child.poll()


def _last_line(output: Any) -> object:
    text = _tail(output, bytes_max=1 << 20)
    line = text.rstrip().rpartition("\n")[2]
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        raise _Failed("garbage", f"the last line it printed is not a JSON object: {line[:100]!r}") from None


def _metrics(found: object) -> dict[str, float]:
    """What a simulator returned, if that is a finite number for each of some names."""
    if not isinstance(found, Mapping) or not found or len(found) > METRICS_MAX:
        raise _Failed("garbage", f"it must return an object of numbers, not {_short(found)}")
    metrics: dict[str, float] = {}
    for name, value in found.items():
        if not isinstance(name, str) or isinstance(value, bool | str | bytes) or value is None:
            raise _Failed("garbage", f"the metric {_short(name)} must be a number, not {_short(value)}")
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            raise _Failed("garbage", f"the metric {_short(name)} must be a number, not {_short(value)}") from None
        if not math.isfinite(number):
            raise _Failed("not a number", f"the metric {name[:80]!r} is {number}")
        metrics[name[:200]] = number
    return dict(sorted(metrics.items()))


def _short(value: object) -> str:
    try:
        return repr(value)[:100]
    except Exception:  # of a type of another
        return type(value).__name__


def _tail(output: Any, bytes_max: int = LOG_BYTES_MAX) -> str:
    size = os.fstat(output.fileno()).st_size
    return os.pread(output.fileno(), bytes_max, max(0, size - bytes_max)).decode(errors="replace")


def _cpu_seconds() -> float:
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


_CHILDREN: set[int] = set()
"""Commands that are running."""


def _prctl(option: int, value: int) -> None:
    if _LIBC is not None:
        _LIBC.prctl(option, value, 0, 0, 0)


_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def _end_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def end_children() -> None:
    """End every process below this one, those that left their parents included (they become ours, on Linux)."""
    for group in list(_CHILDREN):
        _end_group(group)
    while found := _children():
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for pid in found:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _children() -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path("/proc/self/task").iterdir():
            found += [int(word) for word in (thread / "children").read_text().split()]
    return found


def _give_up() -> None:
    end_children()
    os._exit(0)


def main() -> None:
    """Answer jobs until the input ends."""
    _prctl(_SET_CHILD_SUBREAPER, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    jobs: SimpleQueue[bytes] = SimpleQueue()
    given, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)

    def read() -> None:
        for line in given:
            jobs.put(line)
        _give_up()

    threading.Thread(target=read, name="jobs", daemon=True).start()
    answers.write(b"\n")  # ready: from now on time is the trials'
    answers.flush()
    while True:
        job = msgspec.json.decode(jobs.get(), type=Job)
        ran = run_job(job)
        end_children()
        answers.write(msgspec.json.encode(ran) + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
