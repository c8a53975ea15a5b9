"""Figures sent to a collector: what arrives is what a port would show, as OTLP has it."""

from __future__ import annotations

import contextlib
import gzip
import logging
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from dashboard.opened import VERA, Person, opened
from server.running import sync_on, until

from bucketmq import Invalid, Unsupported
from bucketmq.bucket.memory import MemoryStore
from bucketmq.client import Bucket
from bucketmq.metrics import push_metrics
from bucketmq.metrics.push import check_collector, pushed

service = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")


class Collector:
    """A server that takes OTLP over HTTP and keeps what it was sent."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.sent: list[Any] = []
        self.status = 200

    def metrics(self) -> dict[str, Any]:
        """The metrics of the last request, by name."""
        (resource,) = self.sent[-1].resource_metrics
        return {each.name: each for scope in resource.scope_metrics for each in scope.metrics}


@contextlib.contextmanager
def collecting() -> Iterator[tuple[str, Collector]]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            body = gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body
            request = service.ExportMetricsServiceRequest()
            request.ParseFromString(body)
            collector.paths.append(self.path)
            collector.sent.append(request)
            self.send_response(collector.status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with sync_on(MemoryStore()) as opened:
        yield opened


def attributes(point: Any) -> dict[str, str]:
    return {each.key: each.value.string_value for each in point.attributes}


def test_what_arrives_is_what_a_port_would_show(bucket: Bucket) -> None:
    jobs = bucket.queue("jobs")
    jobs.send_many(range(3))
    with collecting() as (url, collector):
        with push_metrics(bucket, url, queues=["jobs"], every_seconds=3600):
            jobs.run(lambda delivery: None, stop_when_empty=True, signals=False)
        assert collector.paths == ["/v1/metrics"], "once more when it ends"
        found = collector.metrics()
    handled = found["bucketmq_handled"].sum
    assert handled.is_monotonic and handled.aggregation_temporality == 2
    (point,) = handled.data_points
    assert attributes(point) == {"outcome": "ack", "queue": "jobs", "subscription": "main"}
    assert point.as_double == 3 or point.as_int == 3
    (waits,) = found["bucketmq_wait_seconds"].histogram.data_points
    assert waits.count == 3 == sum(waits.bucket_counts)
    assert len(waits.bucket_counts) == len(waits.explicit_bounds) + 1
    assert not waits.HasField("min")
    (sent,) = found["bucketmq_queue_sent"].sum.data_points
    assert sent.start_time_unix_nano == 0, "counted since the queue was made, whenever that was"
    assert "bucketmq_queue_oldest_ready_seconds" in found and found["bucketmq_queue_dead"].gauge.data_points


def test_figures_are_sent_again_and_again(bucket: Bucket) -> None:
    with collecting() as (url, collector), push_metrics(bucket, url, every_seconds=0.01):
        until(lambda: len(collector.sent) >= 3)
        resource = collector.sent[0].resource_metrics[0].resource
        assert {"key": "service.name", "value": "bucketmq"} in [
            {"key": each.key, "value": each.value.string_value} for each in resource.attributes
        ]


def test_a_collector_that_refuses_is_logged_and_stops_nobody(bucket: Bucket, caplog: pytest.LogCaptureFixture) -> None:
    with collecting() as (url, collector), caplog.at_level(logging.WARNING, "bucketmq"):
        collector.status = 400
        with push_metrics(bucket, url, every_seconds=3600):
            bucket.queue("jobs").send(1)
    assert "action=push_failed" in caplog.text
    assert len(bucket.queue("jobs").peek()) == 1


@pytest.mark.parametrize(
    ("given", "posted"),
    [
        ("http://localhost:4318", "http://localhost:4318/v1/metrics"),
        ("https://otlp.example.com/", "https://otlp.example.com/v1/metrics"),
        ("https://otlp.example.com/custom/path", "https://otlp.example.com/custom/path"),
    ],
)
def test_a_collector_is_given_by_its_host_or_by_the_whole_address(given: str, posted: str) -> None:
    assert check_collector(given) == posted


@pytest.mark.parametrize(
    "wrong", ["localhost:4318", "ftp://x", "", "http://", "http://[::1", "http://x:port", "http://x:99999"]
)
def test_what_is_no_address_is_refused(wrong: str, bucket: Bucket) -> None:
    with pytest.raises(Invalid, match="not the address of a collector"):
        push_metrics(bucket, wrong)


def test_without_the_exporter_nothing_goes_on_looking(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.metric_exporter", None)
    with pytest.raises(Unsupported, match="bucketmq\\[otlp\\]"):
        push_metrics(bucket, "http://localhost:4318", queues=["jobs"])
    assert "bucketmq-standing" not in [each.name for each in threading.enumerate()]


def test_a_dashboard_sends_what_its_metrics_show() -> None:
    store = MemoryStore()
    with sync_on(store) as bucket:
        bucket.queue("jobs").send(1)
    with collecting() as (url, collector), opened(store) as made, Person(made.url, VERA) as vera:
        vera.get("/api/queues")
        with pushed(made.dashboard.families, url):
            pass
        (point,) = collector.metrics()["bucketmq_queue_sent"].sum.data_points
        assert attributes(point) == {"queue": "jobs"}
