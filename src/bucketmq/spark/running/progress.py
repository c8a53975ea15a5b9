"""How a running query gets on, as figures: what Spark reports of each batch, and attending to it until it ends.

Showing the figures belongs to the caller. Stopping waits for the batch in flight: Spark's own `stop` cancels it, which
loses nothing, but throws away what was done.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from bucketmq.errors import Invalid
from bucketmq.spark.read.offsets import from_json
from bucketmq.spark.running.failure import explained

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

OBSERVED, DEAD_LETTERS = "bucketmq", "dead_letters"
"""The metric that a pipeline's query counts its failed rows with, and its column."""

POLL_SECONDS = 0.2


class Figures(msgspec.Struct, frozen=True):
    """One batch."""

    batch: int
    at: str
    rows: int
    seconds: float
    rows_per_second: float
    lag: int | None = None
    """Messages that were in the queue and not yet read when the batch began; None where the source is not a queue."""
    dead_letters: int = 0


class Totals(msgspec.Struct):
    """All batches that were seen, and the last of them."""

    batches: int = 0
    rows: int = 0
    dead_letters: int = 0
    seconds: float = 0.0
    last: Figures | None = None

    def add(self, figures: Figures) -> None:
        if figures.rows:
            self.batches += 1
        self.rows += figures.rows
        self.dead_letters += figures.dead_letters
        self.seconds += figures.seconds
        self.last = figures


class Stop:
    """A wish to stop, told from a signal handler or another thread; told twice, it is urgent.

    It takes no lock: a signal may come while the interrupted code holds it.
    """

    def __init__(self) -> None:
        self._told = 0
        self.attended = False
        """Whether a loop reads it."""

    def tell(self) -> None:
        self._told += 1

    @property
    def wanted(self) -> bool:
        return self._told > 0

    @property
    def urgent(self) -> bool:
        return self._told > 1


def figures_of(progress: Any) -> Figures:
    """What Spark says of one batch."""
    took = progress.durationMs.get("triggerExecution", 0) / 1000
    observed = progress.observedMetrics.get(OBSERVED)
    return Figures(
        batch=progress.batchId,
        at=progress.timestamp,
        rows=progress.numInputRows,
        seconds=took,
        rows_per_second=round(progress.numInputRows / took, 1) if took else 0.0,
        lag=_lag(progress.sources),
        dead_letters=(observed.asDict().get(DEAD_LETTERS) or 0) if observed is not None else 0,
    )


def _lag(sources: Any) -> int | None:
    """Messages between where the batch ended and where the queue ended, by the source's own offsets."""
    known = [_behind(source.endOffset, source.latestOffset) for source in sources]
    found = [count for count in known if count is not None]
    return sum(found) if found else None


def _behind(end: str | None, latest: str | None) -> int | None:
    try:
        tail = json.loads(latest or "null")
        queue = tail["queue"]
        read, there = (from_json(each, queue) for each in (json.loads(end or "null"), tail))
    except (Invalid, ValueError, TypeError, KeyError):
        return None  # a source of another kind
    return sum(max(0, offset - read.offset(shard)) for shard, offset in there.shards.items())


class _Reports:
    """The reports of a query, each once. Spark keeps the last hundred."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._seen: tuple[int, str] = (-1, "")

    def new(self) -> list[Figures]:
        last = self._query.lastProgress
        if last is None or _name(last) == self._seen:
            return []
        recent = list(self._query.recentProgress)
        names = [_name(each) for each in recent]
        start = names.index(self._seen) + 1 if self._seen in names else 0
        self._seen = names[-1]
        return [figures_of(each) for each in recent[start:]]


def _name(progress: Any) -> tuple[int, str]:
    return progress.batchId, progress.timestamp


def attend(query: StreamingQuery, stop: Stop, told: Callable[[Figures], None]) -> None:
    """Stay with a query until it ends or is to be stopped, and tell the figures of each batch.

    Raises what made the query fail, explained. After `stop` the batch in flight is finished first; one that begins
    right behind it is cancelled, and run again by the next start.
    """
    reports = _Reports(query)
    finishing = False
    stop.attended = True
    try:
        while not query.awaitTermination(POLL_SECONDS):  # type: ignore[arg-type]  # seconds may have parts
            wanted = stop.wanted
            new = reports.new()
            for figures in new:
                told(figures)
            # A report comes at the end of a batch: one that was not there when the wish was noticed is of the batch
            # that was in flight then.
            finished = finishing and (bool(new) or not query.status["isTriggerActive"])
            if finished or stop.urgent:
                query.stop()
            finishing = finishing or wanted
    except Exception as error:
        raise explained(error) from error
    finally:
        for figures in _left(reports):
            told(figures)


def _left(reports: _Reports) -> list[Figures]:
    """What was not told yet of a query that has ended; nothing if Spark itself is gone."""
    try:
        return reports.new()
    except Exception:
        return []
