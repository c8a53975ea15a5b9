"""The demo while it happens: a table that redraws itself on a terminal, a line every second elsewhere."""

from __future__ import annotations

import sys
import time
from collections import deque
from types import TracebackType
from typing import Self

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bucketmq.cli.demo.crew import Crew, Member
from bucketmq.cli.demo.records import FAILED, HANDLED, SENT
from bucketmq.cli.output import age, errors
from bucketmq.procedures.stats import QueueStats

REDRAW_PER_SECOND = 5
LINE_SECONDS = 1.0
RATE_SECONDS = 3.0
STYLES = {"killed": "bold red", "frozen": "bold cyan", "done": "dim", "working": "green"}


class Screen:
    """Shows the crew and the queue. Draws on standard error, so that the account alone is on standard output."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._console = errors()
        self._live = Live(console=self._console, refresh_per_second=REDRAW_PER_SECOND) if sys.stderr.isatty() else None
        self._began = time.monotonic()
        self._line_at = 0.0
        self._handled: deque[tuple[float, int]] = deque()
        self._news: list[str] = []

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, at)

    def tell(self, text: str) -> None:
        """Something happened."""
        line = f"{time.monotonic() - self._began:5.1f} s  {text}"
        self._news.append(line)
        if self._live is None:
            self._console.print(Text(line))

    def show(self, stats: QueueStats) -> None:
        rate = self._rate()
        if self._live is not None:
            self._live.update(self._picture(stats, rate))
        elif time.monotonic() >= self._line_at:
            self._line_at = time.monotonic() + LINE_SECONDS
            self._console.print(Text(self._line(stats, rate)))

    def _rate(self) -> float:
        """Messages handled a second, over the last few seconds."""
        now = time.monotonic()
        self._handled.append((now, self._crew.total(HANDLED)))
        while now - self._handled[0][0] > RATE_SECONDS:
            self._handled.popleft()
        first_at, first = self._handled[0]
        return (self._handled[-1][1] - first) / (now - first_at) if now > first_at else 0.0

    def _line(self, stats: QueueStats, rate: float) -> str:
        crew = self._crew
        return (
            f"{time.monotonic() - self._began:5.1f} s  sent {crew.total(SENT):,}  handled {crew.total(HANDLED):,}  "
            f"depth {stats.depth:,}  in flight {stats.in_flight}  retries {stats.waiting}  dead {stats.dead}  "
            f"{rate:.0f}/s  oldest {age(stats.oldest_age_seconds) or '-'}"
        )

    def _picture(self, stats: QueueStats, rate: float) -> Group:
        processes = Table("process", "state", box=SIMPLE_HEAD, pad_edge=False)
        for name in ("sent", "handled", "failed"):
            processes.add_column(name, justify="right")
        for each in self._crew.members:
            processes.add_row(*_cells(each))
        queue = Table(box=SIMPLE_HEAD, pad_edge=False)
        for name in ("depth", "in flight", "retries", "dead", "handled/s", "oldest"):
            queue.add_column(name, justify="right")
        queue.add_row(
            f"{stats.depth:,}",
            str(stats.in_flight),
            str(stats.waiting),
            str(stats.dead),
            f"{rate:.0f}",
            age(stats.oldest_age_seconds) or "-",
        )
        return Group(processes, queue, *(Text(line, style="dim") for line in self._news))


def _cells(member: Member) -> list[Text]:
    totals = member.record.totals
    counts = [f"{totals[what]:,}" if totals[what] else "" for what in (SENT, HANDLED, FAILED)]
    return [Text(member.name), Text(member.state, style=STYLES.get(member.state, "bold red")), *map(Text, counts)]
