"""A demo while it happens: a picture that redraws itself on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Self

from rich.console import RenderableType
from rich.live import Live
from rich.text import Text

from bucketmq.cli.output import errors

REDRAW_PER_SECOND = 5
LINE_SECONDS = 2.0


class Screen:
    """Draws on standard error, so that the account alone is on standard output."""

    def __init__(self) -> None:
        self._console = errors()
        self._live = Live(console=self._console, refresh_per_second=REDRAW_PER_SECOND) if sys.stderr.isatty() else None
        self._began = time.monotonic()
        self._line_at = 0.0
        self.news: list[str] = []

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop drawing; what was drawn last stays."""
        if self._live is not None:
            self._live.__exit__(None, None, None)
            self._live = None

    def tell(self, text: str) -> None:
        """Something happened. Told again, it is not news."""
        if not (self.news and self.news[-1].endswith(f" s  {text}")):
            self.news.append(f"{time.monotonic() - self._began:5.1f} s  {text}")
            if self._live is None:
                self._console.print(Text(self.news[-1]))

    def show(self, picture: Callable[[], RenderableType], line: Callable[[], str]) -> None:
        """How it stands: the picture now, or now and then the line."""
        if self._live is not None:
            self._live.update(picture())
        elif time.monotonic() >= self._line_at:
            self._line_at = time.monotonic() + LINE_SECONDS
            self._console.print(Text(f"{time.monotonic() - self._began:5.1f} s  {line()}"))
