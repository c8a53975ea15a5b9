"""The demo's processes: started, killed, started again, and ended. Only processes started here are ever signalled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bucketmq.pipelines.moderation.settings import OF_AGENTS

END_SECONDS = 20.0
LOG_LINES_SHOWN = 15


class Member:
    """One process: what it is called, what it runs, and what it prints, which goes to a file."""

    def __init__(self, name: str, arguments: Sequence[str], folder: Path, environment: dict[str, str]) -> None:
        self.name = name
        self.state = "starting"
        self.log = folder / f"{name}.log"
        self._arguments = [sys.executable, "-m", "bucketmq.cli", *arguments]
        # What is set for agents that moderate in earnest is not for these: made-up posts must not go to their bucket.
        self._environment = {**os.environ, **dict.fromkeys(OF_AGENTS, ""), **environment}
        self._groups: list[int] = []
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            started = subprocess.Popen(
                self._arguments,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches the demo alone, which then ends them in order
            )
        self._groups.append(started.pid)
        return started

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """SIGKILL: it gets no chance to finish anything. Processes that it started, such as a JVM, may live on."""
        self.process.kill()
        self.process.wait()
        self.state = "killed"

    def restart(self) -> None:
        self.process = self._start()
        self.state = "restarted"

    def stop(self) -> None:
        """Ask it to finish what it has in hand."""
        if self.running:
            self.process.send_signal(signal.SIGTERM)

    def end(self, by: float) -> None:
        """Make sure that it is gone, the processes that it started included."""
        try:
            self.process.wait(max(0.1, by - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass
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
    """How a command that was run with `--json` tells of an error."""

    error: _Error


class Crew:
    """All of them. Leaving the `with` block ends whoever is left."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.members: dict[str, Member] = {}
        self._folder = folder
        self._environment = environment

    def start(self, name: str, *arguments: str) -> Member:
        member = Member(name, arguments, self._folder, self._environment)
        self.members[name] = member
        return member

    def fallen(self) -> Member | None:
        """One that ended though nobody asked it to."""
        return next((each for each in self.members.values() if not each.running and each.state != "killed"), None)

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.members.values():
            each.stop()
        by = time.monotonic() + END_SECONDS
        for each in self.members.values():
            each.end(by)
