"""The figures of a pipeline as a page for Prometheus, served from a thread beside it."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from bucketmq import __version__
from bucketmq.errors import Invalid
from bucketmq.server.metrics import CONTENT_TYPE, Labels, family
from bucketmq.spark.progress import Totals

PATH = "/metrics"


def page(pipeline: str, totals: Totals) -> str:
    """Prometheus' text format."""
    labels: Labels = (("pipeline", pipeline),)
    lines: list[str] = []
    family(lines, "build_info", "gauge", "The version that runs.", {(("version", __version__),): 1})
    family(lines, "pipeline_rows_total", "counter", "Rows read.", {labels: totals.rows})
    family(lines, "pipeline_batches_total", "counter", "Batches that had rows.", {labels: totals.batches})
    family(lines, "pipeline_dead_letters_total", "counter", "Rows that failed.", {labels: totals.dead_letters})
    family(lines, "pipeline_seconds_total", "counter", "Time spent in batches.", {labels: round(totals.seconds, 3)})
    last = totals.last
    if last is not None:
        lag = {} if last.lag is None else {labels: last.lag}
        family(lines, "pipeline_lag_messages", "gauge", "Messages not yet read at the last batch.", lag)
        family(lines, "pipeline_batch_seconds", "gauge", "How long the last batch took.", {labels: last.seconds})
        family(lines, "pipeline_rows_per_second", "gauge", "In the last batch.", {labels: last.rows_per_second})
    return "\n".join(lines) + "\n"


class MetricsPage:
    """While it lasts, the page can be read. `Invalid` if the port cannot be had."""

    def __init__(self, pipeline: str, host: str, port: int) -> None:
        self._pipeline = pipeline
        self._text = page(pipeline, Totals())
        try:
            self._server = ThreadingHTTPServer((host, port), self._handler())
        except OSError as error:
            raise Invalid(f"metrics cannot be served on {host}:{port}: {error.strerror}; choose another port") from None
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="bucketmq-metrics", daemon=True)
        self.url = f"http://{host}:{self._server.server_address[1]}{PATH}"

    def show(self, totals: Totals) -> None:
        self._text = page(self._pipeline, totals)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 10  # for whoever connects and says nothing

            def do_GET(self) -> None:
                found = self.path.partition("?")[0] == PATH
                body = outer._text.encode() if found else f"the figures are at {PATH}\n".encode()
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", CONTENT_TYPE if found else "text/plain; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing: whoever scrapes does so every few seconds."""

        return Handler
