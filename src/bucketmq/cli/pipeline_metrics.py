"""The figures of a pipeline as a page for Prometheus, served by prometheus-client from a thread beside it."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self

from bucketmq.errors import Invalid, Unsupported
from bucketmq.server.metrics import Labels, build_info, counter, gauge, registry_of
from bucketmq.spark.running.progress import Totals

if TYPE_CHECKING:
    from prometheus_client import Metric

PATH = "/metrics"


def families(pipeline: str, totals: Totals) -> Iterator[Metric]:
    """What the page shows."""
    labels: Labels = (("pipeline", pipeline),)
    yield build_info()
    yield counter("pipeline_rows_total", "Rows read.", {labels: totals.rows})
    yield counter("pipeline_batches_total", "Batches that had rows.", {labels: totals.batches})
    yield counter("pipeline_dead_letters_total", "Rows that failed.", {labels: totals.dead_letters})
    yield counter("pipeline_seconds_total", "Time spent in batches.", {labels: round(totals.seconds, 3)})
    last = totals.last
    if last is not None:
        lag = {} if last.lag is None else {labels: last.lag}
        yield gauge("pipeline_lag_messages", "Messages not yet read at the last batch.", lag)
        yield gauge("pipeline_batch_seconds", "How long the last batch took.", {labels: last.seconds})
        yield gauge("pipeline_rows_per_second", "In the last batch.", {labels: last.rows_per_second})


class MetricsPage:
    """Served from when it is made until the block ends. `Invalid` if the port cannot be had."""

    def __init__(self, pipeline: str, host: str, port: int) -> None:
        try:
            from prometheus_client import start_http_server
        except ImportError:
            raise Unsupported(
                "metrics need the package prometheus-client; run: pip install prometheus-client"
            ) from None
        self._totals = Totals()
        try:
            self._server, self._thread = start_http_server(
                port, host, registry_of(lambda: families(pipeline, self._totals))
            )
        except OSError as error:
            raise Invalid(f"metrics cannot be served on {host}:{port}: {error.strerror}; choose another port") from None
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._server.server_port}{PATH}"

    def show(self, totals: Totals) -> None:
        self._totals = totals

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
