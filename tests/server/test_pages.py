"""Health, readiness, version, metrics and the OpenAPI page."""

from __future__ import annotations

import re
import subprocess
import sys

from prometheus_client.parser import text_string_to_metric_families

import bucketmq
from bucketmq.bucket.memory import MemoryStore
from bucketmq.bucket.port import Found, Missing
from bucketmq.client import Bucket
from bucketmq.errors import Unavailable
from bucketmq.testing.endpoints import Reply, endpoint
from server.running import Running, aio_on, payload, serving, settings_with, sync_on, until


def test_anybody_may_ask_for_health_and_version(server: Running) -> None:
    assert server.stranger.get("/healthz").json()["status"] == "ok"
    assert server.stranger.get("/readyz").json() == {"status": "ready", "reasons": []}
    assert server.stranger.get("/version").json() == {"version": bucketmq.__version__}


class Unreachable(MemoryStore):
    looks = 0

    def look(self, key: str) -> Found | Missing:
        self.looks += 1
        raise Unavailable("no answer from secret-host.internal; try later")


def test_a_bucket_that_does_not_answer_is_not_ready_and_is_not_asked_for_every_caller() -> None:
    store = Unreachable()
    with serving(lambda: aio_on(store), settings_with()) as running:
        answers = [running.stranger.get("/readyz") for _ in range(20)]
        assert {answer.status_code for answer in answers} == {503}
        assert answers[0].json() == {
            "status": "unavailable",
            "reasons": ["the bucket cannot be used (unavailable)"],
        }
        assert running.stranger.get("/healthz").status_code == 200
        looks = store.looks
        assert running.stranger.get("/readyz").status_code == 503
        assert store.looks == looks


def test_metrics_are_what_prometheus_reads(server: Running) -> None:
    server.post("tigris", payload("tigris"))
    server.post("s3", b"nonsense")
    server.stranger.post("/events/s3")
    server.stranger.post("/events/made-up")
    answer = server.http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    assert all(name.startswith("bucketmq_") and family.documentation for name, family in families.items())
    assert families["bucketmq_receiver_requests"].type == "counter"
    asked = server.http.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert asked.headers["content-type"].startswith("application/openmetrics-text")
    assert asked.text.endswith("# EOF\n")
    for line in (
        'bucketmq_receiver_requests_total{source="tigris",status="200"} 1.0',
        'bucketmq_receiver_requests_total{source="s3",status="400"} 1.0',
        'bucketmq_events_received_total{outcome="accepted",source="tigris"} 7.0',
        'bucketmq_receiver_requests_total{source="s3",status="401"} 1.0',
        'bucketmq_receiver_requests_total{source="other",status="401"} 1.0',
        "bucketmq_notifier_up 0.0",
    ):
        assert line in lines
    assert any(re.match(r'bucketmq_store_requests_total\{outcome="done",verb="create"\} [1-9]', line) for line in lines)
    typed = [line.split()[2] for line in lines if line.startswith("# TYPE ")]
    assert len(typed) == len(set(typed))


def test_metrics_tell_what_became_of_a_rules_events(store: MemoryStore, bucket: Bucket) -> None:
    with endpoint([Reply(500)]) as broken, endpoint() as works:
        for name, there in (("broken", broken), ("works", works)):
            bucket.rules.add(name, to=there.url, private=True, start="beginning", breaker={"failures": 1})
        with serving(lambda: aio_on(store), settings_with(notify=True)) as running:
            running.post("r2", payload("r2"))
            works.wait_for(1)
            broken.wait_for(1)
            wanted = [
                'bucketmq_rule_deliveries_total{outcome="done",rule="works"} 1.0',
                'bucketmq_rule_deliveries_total{outcome="failed",rule="broken"} 1.0',
                'bucketmq_rule_breaker_open{rule="broken"} 1.0',
                'bucketmq_rule_breaker_open{rule="works"} 0.0',
                "bucketmq_notifier_up 1.0",
            ]
            until(lambda: set(wanted) <= set(running.http.get("/metrics").text.splitlines()))
            assert running.stranger.get("/readyz").status_code == 200


def test_the_openapi_page_tells_of_the_receivers(server: Running) -> None:
    page = server.http.get("/openapi.json").json()
    operation = page["paths"]["/events/{source}"]["post"]
    assert set(operation["responses"]) == {"200", "400", "401", "403", "404", "408", "413", "415", "429", "503"}
    assert "tigris" in operation["parameters"][0]["schema"]["enum"]
    assert "swagger" in server.http.get("/docs").text.lower()


def test_every_error_has_the_same_shape(server: Running) -> None:
    for method, path, status in (("GET", "/nothing", 404), ("PUT", "/events/s3", 405), ("POST", "/events/nobody", 404)):
        answer = server.http.request(method, path)
        assert (answer.status_code, set(answer.json())) == (status, {"error", "hint"})
    assert "tigris" in server.http.post("/events/nobody").json()["hint"]
    assert server.stranger.post("/events/nobody").status_code == 401


def test_the_library_and_endpoints_need_no_web_framework() -> None:
    code = (
        "import sys, bucketmq; assert 'bucketmq.server' not in sys.modules\n"
        "import bucketmq.server; from bucketmq.server import endpoint\n"
        "print([name for name in ('fastapi', 'starlette', 'uvicorn', 'pydantic', 'watchfiles') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.strip() == "[]"


def test_queues_are_looked_at_in_the_background_and_a_scrape_costs_nothing() -> None:
    store = MemoryStore()
    with sync_on(store) as bucket:
        bucket.queue("jobs").send_many([1, 2])
    with serving(lambda: aio_on(store), settings_with()) as agent:
        until(lambda: 'bucketmq_queue_messages{queue="jobs",state="ready"' in agent.http.get("/metrics").text)
        before = agent.parts.bucket.requests
        for _ in range(5):
            agent.http.get("/metrics")
        assert agent.parts.bucket.requests == before
