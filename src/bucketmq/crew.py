"""Processes that belong together: started, killed, frozen, started again, ended; and what a demo plays them in. Only
processes started here are signalled."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

END_SECONDS = 20.0
LOG_LINES_SHOWN = 15


class Member:
    """One process: what it is called, what it runs, and what it prints, which goes to a file."""

    def __init__(self, name: str, command: Iterable[str], log: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.state = "starting"
        self.log = log
        self._command = [sys.executable, "-m", *command]
        self._environment = {**os.environ, **environment}
        self._groups: list[int] = []
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            started = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches their parent alone, which then ends them in order
            )
        self._groups.append(started.pid)
        return started

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def look(self) -> None:
        """Notice that it has started, or ended."""
        code = self.process.poll()
        if code is None:
            self.state = {"starting": "running", "restarted": "running again"}.get(self.state, self.state)
        elif self.state not in ("killed", "ended"):
            self.state = "done" if code == 0 else f"failed ({code})"

    def kill(self) -> None:
        """SIGKILL: it gets no chance to finish anything. Processes that it started, such as a JVM, may live on."""
        self.process.kill()
        self.process.wait()
        self.state = "killed"

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        self.state = "frozen"

    def wake(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.state = "running"

    def restart(self) -> None:
        self.process = self._start()
        self.state = "restarted"

    def stop(self) -> None:
        """Ask it to finish what it has in hand."""
        if self.running:
            self.process.send_signal(signal.SIGTERM)
            self.process.send_signal(signal.SIGCONT)  # a frozen process sees no other signal
            self.state = "stopping"

    def wait(self, by: float) -> bool:
        """Whether it has ended before the clock says `by`."""
        try:
            self.process.wait(max(0.1, by - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.state = "does not stop"
        return not self.running

    def end(self, by: float) -> None:
        """Make sure that it is gone, the processes that it started included."""
        self.wait(by)
        for group in self._groups:  # of its own, each: see start_new_session
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        self.state = "ended"

    def last_words(self) -> str:
        """The error that it told last, or the end of what it printed."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        if lines:
            try:
                return msgspec.json.decode(lines[-1], type=_Told).error.message
            except msgspec.MsgspecError:
                pass
        return "\n".join(lines[-LOG_LINES_SHOWN:])


class _Error(msgspec.Struct):
    message: str


class _Told(msgspec.Struct):
    """How a command that was run with `--json` reports an error."""

    error: _Error


class Crew:
    """All of them. Leaving the `with` block ends those that are left."""

    def __init__(self, folder: Path, environment: Mapping[str, str], module: str = "bucketmq.cli") -> None:
        self.members: dict[str, Member] = {}
        self._folder = folder
        self._environment = environment
        self._module = module

    def start(self, name: str, *arguments: str) -> Member:
        made = Member(name, [self._module, *arguments], self._folder / f"{name}.out", self._environment)
        self.members[name] = made
        return made

    def look(self) -> None:
        for each in self.members.values():
            each.look()

    def fallen(self) -> Member | None:
        """One that ended though nobody asked it to."""
        return next((each for each in self.members.values() if not each.running and each.state != "killed"), None)

    def finish(self, members: Iterable[Member]) -> None:
        """Ask some of them to stop, and wait until they have handed in what they hold."""
        asked = [each for each in members if each.running]
        for each in asked:
            each.stop()
        by = time.monotonic() + END_SECONDS
        for each in asked:
            each.wait(by)
        self.look()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.members.values():
            each.stop()
        by = time.monotonic() + END_SECONDS
        for each in self.members.values():
            each.end(by)


class Scene:
    """The folder of one run of a demo. It goes with the run unless the run failed: `good` was never set.

    While it lasts, SIGTERM unwinds the stack like Ctrl-C, so that every process is ended. What handled it before is put
    back at the end.
    """

    def __init__(self, name: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"bucketmq-{name}-"))
        self.url = f"file://{self.folder}/bucket"
        self.good = False
        self._before: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, _leave)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)
        interrupted = kind is not None and issubclass(kind, (KeyboardInterrupt, SystemExit))
        if self.good or interrupted:
            shutil.rmtree(self.folder, ignore_errors=True)


def _leave(*_: Any) -> None:
    sys.exit(128 + signal.SIGTERM)


def free_port() -> int:
    """A port of the loopback address that nobody had a moment ago."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
