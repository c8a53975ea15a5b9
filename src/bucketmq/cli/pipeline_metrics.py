"""The figures of a pipeline for Prometheus and for collectors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bucketmq.metrics.families import Labels, build_info, counter, gauge
from bucketmq.spark.running.progress import Totals

if TYPE_CHECKING:
    from prometheus_client import Metric


class PipelineFigures:
    """The figures of one pipeline, which is told its totals."""

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self._totals = Totals()

    def show(self, totals: Totals) -> None:
        self._totals = totals

    def families(self) -> Iterator[Metric]:
        """What the page shows."""
        labels: Labels = (("pipeline", self._pipeline),)
        totals, last = self._totals, self._totals.last
        yield build_info()
        yield counter("pipeline_rows_total", "Rows read.", {labels: totals.rows})
        yield counter("pipeline_batches_total", "Batches that had rows.", {labels: totals.batches})
        yield counter("pipeline_dead_letters_total", "Rows that failed.", {labels: totals.dead_letters})
        yield counter("pipeline_seconds_total", "Time spent in batches.", {labels: round(totals.seconds, 3)})
        if last is not None:
            lag = {} if last.lag is None else {labels: last.lag}
            yield gauge("pipeline_lag_messages", "Messages not yet read at the last batch.", lag)
            yield gauge("pipeline_batch_seconds", "How long the last batch took.", {labels: last.seconds})
            yield gauge("pipeline_rows_per_second", "In the last batch.", {labels: last.rows_per_second})
