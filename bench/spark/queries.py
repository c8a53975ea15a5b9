"""Streams, run until they have read what there is, and what they took."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench.spark.sizes import Sizes


class Took(msgspec.Struct, frozen=True):
    """What a query took."""

    rows: int
    seconds: float
    """From start to end; starting a query is part of it."""
    trigger_seconds: float
    """In its micro-batches: all that counts for a query that runs for long."""
    batches: tuple[float, ...]
    """Seconds of each micro-batch that had rows."""

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.trigger_seconds


def run(stream: Any, sink: str, folder: Path, **options: str) -> Took:
    """Run a stream into a sink. Its checkpoint, and the rows if the sink writes files, are deleted at the end."""
    made = Path(tempfile.mkdtemp(dir=folder))
    try:
        if sink in ("json", "parquet"):
            options = {**options, "path": str(made / "rows")}
        writer = stream.writeStream.format(sink).option("checkpointLocation", str(made / "checkpoint"))
        for name, value in options.items():
            writer = writer.option(name, value)
        began = time.perf_counter()
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
        seconds = time.perf_counter() - began
        batches = [each for each in query.recentProgress if each.numInputRows]
        took = tuple(each.durationMs["triggerExecution"] / 1000 for each in batches)
        return Took(sum(each.numInputRows for each in batches), seconds, sum(took), took)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def in_turn(subjects: Mapping[str, Callable[[], Took]], sizes: Sizes, rows: int) -> dict[str, list[Took]]:
    """Each subject once to warm up, then all of them in each round, beginning with another one each time."""
    names = list(subjects)
    found: dict[str, list[Took]] = {name: [] for name in names}
    for name in names if sizes.warm_up else []:
        _checked(subjects[name](), name, rows)
    for turn in range(sizes.rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            found[name].append(_checked(subjects[name](), name, rows))
    return found


def ratios(ours: Sequence[Took], theirs: Sequence[Took]) -> list[float]:
    """How many times faster ours was, round by round."""
    return [their.trigger_seconds / our.trigger_seconds for our, their in zip(ours, theirs, strict=True)]


def _checked(took: Took, name: str, rows: int) -> Took:
    if took.rows != rows:
        raise AssertionError(f"{name} read {took.rows} rows of {rows}")
    return took
