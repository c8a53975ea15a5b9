"""How the demo of queues looks: its processes and the queue, as a picture and as a line."""

from __future__ import annotations

import time
from collections import deque

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from bucketmq.cli.demo.crew import Workers
from bucketmq.cli.demo.records import FAILED, HANDLED, SENT
from bucketmq.cli.output import age
from bucketmq.cli.screen import Screen
from bucketmq.procedures.upkeep.stats import QueueStats

RATE_SECONDS = 3.0
STYLES = {"killed": "bold red", "frozen": "bold cyan", "done": "dim", "running": "green"}


class View:
    """The crew and the queue on a screen."""

    def __init__(self, screen: Screen, crew: Workers) -> None:
        self._screen = screen
        self._crew = crew
        self._handled: deque[tuple[float, int]] = deque()

    def show(self, stats: QueueStats) -> None:
        rate = self._rate()
        self._screen.show(lambda: self._picture(stats, rate), lambda: self._line(stats, rate))

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
            f"sent {crew.total(SENT):,}  handled {crew.total(HANDLED):,}  ready {stats.ready:,}  "
            f"in flight {stats.in_flight}  delayed {stats.delayed}  dead {stats.dead}  {rate:.0f}/s  "
            f"oldest ready {age(stats.oldest_ready_seconds) or '-'}"
        )

    def _picture(self, stats: QueueStats, rate: float) -> Group:
        processes = Table("process", "state", box=SIMPLE_HEAD, pad_edge=False)
        for name in ("sent", "handled", "failed"):
            processes.add_column(name, justify="right")
        for member, record in self._crew.recorded():
            counts = [f"{record.totals[what]:,}" if record.totals[what] else "" for what in (SENT, HANDLED, FAILED)]
            state = Text(member.state, style=STYLES.get(member.state, "bold red"))
            processes.add_row(Text(member.name), state, *map(Text, counts))
        queue = Table(box=SIMPLE_HEAD, pad_edge=False)
        figures = {
            "ready": f"{stats.ready:,}",
            "in flight": str(stats.in_flight),
            "delayed": str(stats.delayed),
            "dead": str(stats.dead),
            "handled/s": f"{rate:.0f}",
            "oldest ready": age(stats.oldest_ready_seconds) or "-",
        }
        for name in figures:
            queue.add_column(name, justify="right")
        queue.add_row(*figures.values())
        return Group(processes, queue, *(Text(line, style="dim") for line in self._screen.news))
