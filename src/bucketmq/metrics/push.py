"""Sending the same figures to a collector, by OTLP over HTTP: for those without a Prometheus that could scrape them.

What is sent is what a port would show, family by family, under the same names and labels. Made with OpenTelemetry's
own exporter, which also reads its variables (OTEL_EXPORTER_OTLP_HEADERS and the like). A collector that is away is
logged, and loses nothing but a point: counters are sent as they stand.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from bucketmq import __version__
from bucketmq.errors import Invalid, Unsupported
from bucketmq.facade import Observable
from bucketmq.metrics.families import Families
from bucketmq.metrics.port import process_families
from bucketmq.metrics.standing import LOOK_SECONDS

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import Metric as OtlpMetric
    from opentelemetry.sdk.metrics.export import MetricsData
    from prometheus_client import Metric

PUSH_SECONDS = 60.0
SEND_SECONDS = 10.0
PATH = "/v1/metrics"
SERVICE = "bucketmq"
"""As what the figures are sent, unless told otherwise."""
EVER = "bucketmq_queue_"
"""Counters with this beginning count since the queue was made: when that was is not said."""

logger = logging.getLogger("bucketmq")


class Push:
    """Sends the figures every so often, and once more when it is closed."""

    def __init__(
        self,
        families: Families,
        url: str,
        *,
        service: str = SERVICE,
        every_seconds: float = PUSH_SECONDS,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self._families = families
        self._exporter = _exporter(url)
        self._service = service
        self._every = every_seconds
        self._close = close
        self._began = time.time_ns()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="bucketmq-push", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._exporter.shutdown()
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _work(self) -> None:
        over = False
        while not over:
            over = self._over.wait(self._every)
            try:
                data = metrics_data(self._families(), service=self._service, began=self._began)
                sent = self._exporter.export(data, timeout_millis=SEND_SECONDS * 1000)
                if sent.name != "SUCCESS":
                    logger.warning("action=push_failed the collector did not take the figures; the next ones follow")
            except Exception as error:  # a worker does not end because of its figures
                logger.warning("action=push_failed error=%.200r", error)


def push_metrics(
    bucket: Observable,
    url: str,
    *,
    queues: Sequence[str] = (),
    every_seconds: float = PUSH_SECONDS,
    look_seconds: float = LOOK_SECONDS,
    service: str = SERVICE,
) -> Push:
    """Send the figures of this process to the collector at `url` (`http://localhost:4318`), until the block ends.

    They are those of `serve_metrics`. Needs `pip install 'bucketmq[otlp]'`.
    """
    check_collector(url)
    families, close = process_families(bucket, queues=queues, look_seconds=look_seconds)
    try:
        return Push(families, url, service=service, every_seconds=every_seconds, close=close)
    except BaseException:
        close()
        raise


def pushed(families: Families, url: str | None) -> contextlib.AbstractContextManager[object]:
    """Send these figures while the block runs, if there is a collector."""
    return contextlib.nullcontext() if url is None else Push(families, url)


def check_collector(url: str) -> str:
    """The address that figures are posted to; `Invalid` if it is not a URL."""
    try:
        parts = urlsplit(url)
        there = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of its brackets, or of its port
        there = False
    if not there:
        raise Invalid(f"{url[:100]!r} is not the address of a collector; write one like http://localhost:4318")
    return url if parts.path.rstrip("/") else url.rstrip("/") + PATH


def _exporter(url: str) -> Any:
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    except ImportError:
        raise Unsupported("sending figures needs OpenTelemetry's exporter; run: pip install 'bucketmq[otlp]'") from None
    return OTLPMetricExporter(endpoint=check_collector(url), timeout=SEND_SECONDS)


def metrics_data(families: Iterable[Metric], *, service: str, began: int) -> MetricsData:
    """Families as OTLP has them. `began` is when counting began, in nanoseconds since 1970."""
    from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    now = time.time_ns()
    made = [found for family in families if (found := _metric(family, began, now)) is not None]
    scope = ScopeMetrics(InstrumentationScope("bucketmq", __version__), made, "")
    who = Resource({"service.name": service, "service.version": __version__, "host.name": socket.gethostname()})
    return MetricsData([ResourceMetrics(who, [scope], "")])


def _metric(family: Metric, began: int, now: int) -> OtlpMetric | None:
    from opentelemetry.sdk.metrics import export

    if not family.samples:
        return None
    cumulative = export.AggregationTemporality.CUMULATIVE
    start = 0 if family.name.startswith(EVER) else began
    data: Any
    if family.type == "histogram":
        data = export.Histogram(_spreads(family, start, now), cumulative)
    else:
        points = [export.NumberDataPoint(each.labels, start, now, each.value) for each in family.samples]
        data = export.Sum(points, cumulative, True) if family.type == "counter" else export.Gauge(points)
    return export.Metric(family.name, family.documentation, "", data)


def _spreads(family: Metric, start: int, now: int) -> list[Any]:
    """The points of a histogram: Prometheus adds its buckets up, OTLP does not."""
    from opentelemetry.sdk.metrics.export import HistogramDataPoint

    buckets: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
    sums: dict[tuple[tuple[str, str], ...], float] = {}
    for each in family.samples:
        labels = tuple(sorted((name, value) for name, value in each.labels.items() if name != "le"))
        if each.name.endswith("_bucket"):
            buckets.setdefault(labels, []).append((float(each.labels["le"]), each.value))
        elif each.name.endswith("_sum"):
            sums[labels] = each.value
    points = []
    for labels, found in buckets.items():
        so_far = [0.0, *(count for _, count in found)]
        counts = [int(after - before) for before, after in pairwise(so_far)]
        bounds = [bound for bound, _ in found[:-1]]
        smallest: Any = None  # not kept, and optional in the protocol
        points.append(
            HistogramDataPoint(
                dict(labels), start, now, int(so_far[-1]), sums[labels], counts, bounds, smallest, smallest
            )
        )
    return points
