"""A command that goes on until it is told to stop, in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

SECONDS_MAX = 60.0
"""After this a command that hangs is ended, so that reading its output ends too."""

HEEDING_CTRL_C = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""A shell starts what it runs in the background with Ctrl-C ignored, and whatever that starts inherits it."""


class Running:
    """The process, and the lines it prints."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None and process.stderr is not None
        self.out: IO[str] = process.stdout
        self.err: IO[str] = process.stderr

    def line(self) -> str:
        """The next line of standard output; empty if there will be none."""
        return self.out.readline()

    def row(self) -> Any:
        return json.loads(self.line())

    def said(self, text: str) -> str:
        """Read standard error up to the line with this text."""
        seen = []
        for line in self.err:
            seen.append(line)
            if text in line:
                return line
        raise AssertionError(f"{text!r} was not said, but: {''.join(seen)}")

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Ask it to stop; its exit code and what it still printed."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=SECONDS_MAX)
        return self.process.returncode, out, err


@contextmanager
def running(args: Sequence[str], environment: dict[str, str], folder: Path) -> Iterator[Running]:
    process = subprocess.Popen(
        [sys.executable, "-c", HEEDING_CTRL_C, "bucketmq", *args],
        cwd=folder,
        env={**environment, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        bufsize=1,
        start_new_session=True,
    )
    timer = threading.Timer(SECONDS_MAX, os.killpg, (process.pid, signal.SIGKILL))
    timer.start()
    try:
        yield Running(process)
    finally:
        timer.cancel()
        timer.join()
        if process.poll() is None:
            process.kill()
        process.wait(timeout=SECONDS_MAX)
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        process.stderr.close()
