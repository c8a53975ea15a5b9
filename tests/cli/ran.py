"""What a command left behind, and a few things that several tests prepare."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from bucketmq.client import Queue


class Ran:
    """What one command left behind."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def rows(self) -> list[Any]:
        """Standard output as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def row(self) -> Any:
        (row,) = self.rows
        return row

    @property
    def error(self) -> dict[str, str]:
        """The JSON error on standard error."""
        (line,) = [line for line in self.err.splitlines() if line.startswith('{"error"')]
        error: dict[str, str] = json.loads(line)["error"]
        return error

    def __repr__(self) -> str:
        return f"<exit {self.code}>\n{self.out}\n--\n{self.err}"


Cli = Callable[..., Ran]
"""Runs a command in this process: arguments, and what it finds on standard input."""

Shell = Callable[[str], Ran]
"""Runs a shell line in processes of its own."""


def bury(queue: Queue, *reasons: str) -> None:
    """A dead letter for each reason."""
    queue.send_many(reasons)
    for delivery in queue.receive(len(reasons)):
        delivery.bury(delivery.body)
    queue.flush()
