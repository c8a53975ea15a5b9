"""Reports: what the processes of one program have done, in one small document. Pure.

A program is a pipeline, the workers of a queue, or a server; a process of it writes how it gets on, now and then and
only while it does something. A document holds the last few processes and the sum of those before them, so it stays
small however often a program is started. Writing and reading are `procedures.upkeep.reports`'.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from bucketmq.log.layout import join
from bucketmq.queue.settings import FORMAT

PROCESSES_MAX = 8
POINTS_MAX = 60
REPORTS_MAX = 500
"""Programs whose reports are read."""

Kind = Literal["pipeline", "worker", "server"]


class Spent(msgspec.Struct, frozen=True, array_like=True):
    """Requests to the store, as providers bill them."""

    writes: int = 0
    reads: int = 0
    lists: int = 0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.writes + other.writes, self.reads + other.reads, self.lists + other.lists)

    def __sub__(self, other: Spent) -> Spent:
        return Spent(self.writes - other.writes, self.reads - other.reads, self.lists - other.lists)


class Done(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was done, added up."""

    rows: int = 0
    """Rows read, or messages handled."""
    batches: int = 0
    """Batches that had rows; without Spark each message is one."""
    retried: int = 0
    """Rows that failed and are tried again."""
    dead: int = 0
    """Rows that became dead letters."""
    seconds: float = 0.0
    """Time spent in batches."""
    spent: Spent | None = None
    """Requests; None where they are not counted, as on Spark's executors."""

    def __add__(self, other: Done) -> Done:
        return Done(
            self.rows + other.rows,
            self.batches + other.batches,
            self.retried + other.retried,
            self.dead + other.dead,
            self.seconds + other.seconds,  # not rounded: a message may take less than is written
            _both(self.spent, other.spent),
        )

    def __sub__(self, other: Done) -> Done:
        return Done(
            self.rows - other.rows,
            self.batches - other.batches,
            self.retried - other.retried,
            self.dead - other.dead,
            round(self.seconds - other.seconds, 3),
            None if self.spent is None else self.spent - (other.spent or Spent()),
        )


def _both(one: Spent | None, other: Spent | None) -> Spent | None:
    return one if other is None else other if one is None else one + other


class Point(msgspec.Struct, frozen=True, array_like=True):
    """What was done in one stretch of time, which ends `at`."""

    at: float
    seconds: float
    """How long the stretch is."""
    rows: int
    failed: int
    """Retried or dead."""
    batch_seconds: float
    """How long a batch took, on average."""
    lag: int = -1
    """Messages not read yet when the last batch began; -1 where that is not known here."""


class Process(msgspec.Struct, frozen=True, omit_defaults=True):
    """How one process gets on."""

    place: str
    """Where it runs: host and process number."""
    began: float
    at: float
    """When this was written. One that does nothing writes nothing."""
    done: Done = Done()
    ended: float | None = None
    """When it ended in order, or by an error; None while it runs, or if it was killed."""
    error: str = ""
    """What it ended with."""
    recent: tuple[Point, ...] = ()
    """The oldest first."""


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """`bucketmq/figures/reports/<kind>.<name>.json`."""

    kind: Kind
    name: str
    queue: str = ""
    """Where its messages come from; empty if from no queue."""
    began: float = 0.0
    """When the first of its processes was noted."""
    processes: dict[str, Process] = {}
    """The last ones, by an id that each has made up."""
    before: Done = Done()
    """What all processes did that are no longer listed."""
    format: int = msgspec.field(default_factory=lambda: FORMAT)

    @property
    def done(self) -> Done:
        """All that was ever done."""
        total = self.before
        for each in self.processes.values():
            total = total + each.done
        return total


def folder(prefix: str) -> str:
    return join(prefix, "bucketmq/figures/reports") + "/"


def key_of(prefix: str, kind: Kind, name: str) -> str:
    return f"{folder(prefix)}{kind}.{name}.json"


def noted(report: Report, process_id: str, process: Process) -> Report:
    """The report with this process as it is now. The one that was quiet for longest is added to the sum if they are too
    many; noting the same again changes nothing."""
    processes = {**report.processes, process_id: process}
    before = report.before
    while len(processes) > PROCESSES_MAX:
        oldest = min((each for each in processes if each != process_id), key=lambda each: (processes[each].at, each))
        before = before + processes.pop(oldest).done
    began = report.began or process.began
    return msgspec.structs.replace(report, began=began, processes=processes, before=before)
