"""Progress of a long verb, on standard error: a line that changes on a terminal, a new line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from rich.status import Status
from rich.text import Text

from bucketmq.cli.output import errors, say

LINE_SECONDS = 5.0
"""How often a line is printed where nothing can be redrawn."""


class Progress:
    """Shows the text last given to `show`, from entering to leaving."""

    def __init__(self, text: str) -> None:
        self._status = Status(Text(text), console=errors()) if sys.stderr.isatty() else None
        self._next_at = time.monotonic() + LINE_SECONDS

    def show(self, text: str) -> None:
        if self._status is not None:
            self._status.update(Text(text))
        elif time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + LINE_SECONDS
            say(text)

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._status is not None:
            self._status.stop()


def rate(count: int, since: float) -> float:
    """How many per second since a `time.monotonic()`."""
    return count / max(time.monotonic() - since, 1e-9)
