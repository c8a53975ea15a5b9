"""What a process writes down for itself: a line for every message, and its request counts.

A line is one `write` to a file opened for appending, so it is there for others even if the process is killed next.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import msgspec

from bucketmq.engines.meter import Requests

SENT, HANDLED, FAILED = "sent", "handled", "failed"


class Record:
    """The writing side, in the process itself. Safe from several threads."""

    def __init__(self, folder: Path, name: str) -> None:
        self._fd = os.open(folder / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._counts = folder / f"{name}.json"

    def note(self, *lines: tuple[str, str, int]) -> None:
        """What happened, to which message, in which attempt."""
        os.write(self._fd, "".join(f"{what} {id_} {attempt}\n" for what, id_, attempt in lines).encode())

    def count(self, requests: Requests) -> None:
        """The request counts so far."""
        fresh = self._counts.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(requests))
        fresh.replace(self._counts)


class RecordReader:
    """The reading side: keeps up with one process' record as it grows."""

    def __init__(self, folder: Path, name: str) -> None:
        self._log = folder / f"{name}.log"
        self._counts = folder / f"{name}.json"
        self._at = 0
        self.totals: Counter[str] = Counter()
        self.sent: list[str] = []
        self.handled: list[tuple[str, int]] = []
        self.failed: list[tuple[str, int]] = []

    def catch_up(self) -> None:
        if not self._log.exists():
            return
        with self._log.open("rb") as file:
            file.seek(self._at)
            whole = file.read().rpartition(b"\n")[0]
        self._at += len(whole) + 1 if whole else 0
        for line in whole.decode().splitlines():
            what, id_, attempt = line.split()
            self.totals[what] += 1
            if what == SENT:
                self.sent.append(id_)
            else:
                (self.handled if what == HANDLED else self.failed).append((id_, int(attempt)))

    def requests(self) -> Requests:
        """As last written down; a killed process' last half second is missing."""
        if not self._counts.exists():
            return Requests()
        return msgspec.json.decode(self._counts.read_bytes(), type=Requests)
