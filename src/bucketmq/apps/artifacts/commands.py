"""Running somebody's command with limits: so long, so much of its output, and all of its processes ended in the end."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from bucketmq.errors import Invalid

OUTPUT_BYTES_KEPT = 4 << 10
_READ_BYTES = 64 << 10
_DRAIN_SECONDS = 2.0


class Ran(msgspec.Struct, frozen=True):
    """How a command ended."""

    ok: bool
    why: str
    """Empty if it went well."""
    output: str
    """The end of what it printed."""
    seconds: float


def words_of(command: str, what: str) -> list[str]:
    """A command as its words. It is not passed to a shell: to use one, write `sh -c '...'`."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise Invalid(f"{what} {command!r} cannot be read ({error}); close the quotes") from None
    if not words:
        raise Invalid(f"{what} is empty; name a command, or leave it out")
    return words


def run_command(
    words: list[str], *, folder: Path, environment: Mapping[str, str], timeout_seconds: float, name: str
) -> Ran:
    """Run it to its end, or end it: after the time is over its whole process group is killed."""
    began = time.monotonic()
    try:
        process = subprocess.Popen(
            words,
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return Ran(False, f"{name} {words[0]!r} cannot be started: {error.strerror}", "", 0.0)
    tail = bytearray()
    reader = threading.Thread(target=_read, args=(process, tail), daemon=True)
    reader.start()
    why = ""
    try:
        code = process.wait(timeout_seconds)
        why = "" if code == 0 else f"{name} ended with {code}"
    except subprocess.TimeoutExpired:
        why = f"{name} took longer than {timeout_seconds:g} s and was ended"
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if why:  # what a hook that went well has started may go on: it is what was deployed
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    reader.join(_DRAIN_SECONDS)
    return Ran(not why, why, bytes(tail).decode(errors="replace").strip(), time.monotonic() - began)


def _read(process: subprocess.Popen[bytes], tail: bytearray) -> None:
    """Keep the end of what it prints; reading on, or it would stand still."""
    assert process.stdout is not None
    with process.stdout:
        while chunk := os.read(process.stdout.fileno(), _READ_BYTES):
            tail += chunk
            del tail[:-OUTPUT_BYTES_KEPT]
