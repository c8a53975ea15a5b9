"""A port of a process for Prometheus: a worker's own, or a pipeline's. Served by prometheus-client from a thread."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from bucketmq.errors import Invalid, Unsupported
from bucketmq.facade import Observable
from bucketmq.metrics.counts import Counts
from bucketmq.metrics.families import Families, build_info, registry_of
from bucketmq.metrics.standing import LOOK_SECONDS, Standing

if TYPE_CHECKING:
    from prometheus_client import Metric

PATH = "/metrics"
PORT_DEFAULT = 9400


class MetricsPort:
    """Served from when it is made until it is closed, or the block ends. `Invalid` if the port cannot be had."""

    def __init__(self, families: Families, host: str, port: int, close: Callable[[], None] = lambda: None) -> None:
        try:
            from prometheus_client import start_http_server
        except ImportError:
            raise Unsupported(
                "metrics need the package prometheus-client; run: pip install 'bucketmq[metrics]'"
            ) from None
        try:
            self._server, self._thread = start_http_server(port, host, registry_of(families))
        except OSError as error:
            raise Invalid(f"metrics cannot be served on {host}:{port}: {error.strerror}; choose another port") from None
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._server.server_port}{PATH}"
        self._close = close

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def serve_metrics(
    bucket: Observable,
    port: int = PORT_DEFAULT,
    *,
    host: str = "127.0.0.1",
    queues: Sequence[str] = (),
    look_seconds: float = LOOK_SECONDS,
) -> MetricsPort:
    """Serve the figures of this process at `http://HOST:PORT/metrics`, until the block ends.

    What it counts are the requests and the handled messages of this bucket from now on; also how `queues` stand, looked
    at every `look_seconds` in the background, with about ten requests each. A scrape costs the bucket nothing. Nobody
    is asked for a token: choose a host that only Prometheus reaches.

    ```python
    with serve_metrics(bucket, 9400, queues=["jobs"]):
        queue.run(handle)
    ```
    """
    families, close = process_families(bucket, queues=queues, look_seconds=look_seconds)
    try:
        return MetricsPort(families, host, port, close)
    except BaseException:
        close()
        raise


def process_families(
    bucket: Observable, *, queues: Sequence[str], look_seconds: float
) -> tuple[Families, Callable[[], None]]:
    """The figures of this process and of these queues, and what ends looking at them."""
    counts = Counts()
    bucket.observe(counts)
    with contextlib.ExitStack() as stack:
        standing = Standing(bucket, queues, every_seconds=look_seconds) if queues else None
        if standing is not None:
            stack.callback(standing.close)

        def families() -> Iterator[Metric]:
            yield build_info()
            yield from counts.families()
            if standing is not None:
                yield from standing.families()

        return families, stack.pop_all().close
