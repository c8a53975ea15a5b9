"""The tab Pipelines, rates and cost: made of what programs report and of queues as they stand."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
from server.running import until

from bucketmq.bucket.memory import MemoryStore
from bucketmq.client import Bucket
from bucketmq.dashboard import survey as survey_module
from bucketmq.dashboard.programs import Programs
from bucketmq.dashboard.survey import _Past
from bucketmq.log.reports import Done, Kind, Point, Process, Report, Spent
from bucketmq.metrics import Reporter
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.upkeep import reports
from bucketmq.procedures.upkeep.readers import begin_reader
from dashboard.opened import SAM, VERA, Opened, Person, opened


@pytest.fixture
def agent(store: MemoryStore) -> Iterator[Opened]:
    with opened(store) as made:
        yield made


def leave(
    bucket: Bucket, name: str, process: Process, *, queue: str = "", kind: Kind = "pipeline", id: str = "a"
) -> None:
    """A report, as another process left it."""

    def work() -> Procedure[bool]:
        opened = yield from bucket.api.open()
        return (yield from reports.note(opened, Report(kind, name, queue), id, process, listed=False))

    bucket.run(work())


def ran(bucket: Bucket, ago: float, **more: Any) -> Process:
    """A process that wrote so long ago, and had done something every 15 seconds until then."""
    at = bucket.now_seconds - ago
    points = tuple(Point(at - 15.0 * back, 15.0, 300, 3 if back == 0 else 0, 0.8, 42) for back in range(20, -1, -1))
    return Process(
        **{
            "place": "host:17",
            "began": at - 600,
            "at": at,
            "done": Done(6_300, 40, 2, 1, 30.0),
            "recent": points,
            **more,
        }
    )


def row(person: Person, name: str) -> dict[str, Any]:
    (found,) = [each for each in person.get("/api/pipelines")["pipelines"] if each["name"] == name]
    return dict(found)


def test_how_a_pipeline_is_shown_by_what_it_last_wrote(bucket: Bucket, agent: Opened) -> None:
    now = bucket.now_seconds
    for name in ("silent", "stopped"):
        bucket.queue("posts", main=False).subscription(name, start="earliest")
    bucket.queue("posts").send_many(range(42))
    leave(bucket, "running", ran(bucket, 5))
    leave(bucket, "idle", ran(bucket, 4_000))
    leave(bucket, "silent", ran(bucket, 4_000), queue="posts")
    leave(bucket, "failed", ran(bucket, 300, ended=now - 300, error="ValueError: no such column"))
    leave(bucket, "stopped", ran(bucket, 7_200, ended=now - 7_200), queue="posts")
    with Person(agent.url, VERA) as vera:
        found = {each["name"]: each for each in vera.get("/api/pipelines")["pipelines"]}
        assert {name: each["state"] for name, each in found.items()} == {
            "running": "runs",
            "idle": "idle",
            "silent": "silent",
            "failed": "failed",
            "stopped": "stopped",
        }
        assert 19 <= found["running"]["rows_per_second"] <= 21 and found["running"]["batch_seconds"] == 0.8
        assert found["running"]["lag"] == 42 and found["idle"]["lag"] is None
        assert 7_200 <= found["stopped"]["since_seconds"] < 7_300 and found["stopped"]["rows_per_second"] == 0
        assert found["failed"]["error"] == "ValueError: no such column"
        troubles = {each["name"]: each for each in vera.get("/api/overview")["troubles"]}
        assert set(troubles) == {"failed", "silent", "stopped"}
        assert troubles["stopped"]["what"] == "pipeline stopped is stopped, and 42 messages wait for it"
        assert troubles["failed"]["why"] == "ValueError: no such column" and troubles["failed"]["tab"] == "pipelines"


def test_one_that_was_killed_and_started_again_runs(bucket: Bucket, agent: Opened) -> None:
    leave(bucket, "classify", ran(bucket, 4_000), id="killed")
    leave(bucket, "classify", ran(bucket, 5), id="again")
    with Person(agent.url, VERA) as vera:
        found = row(vera, "classify")
        assert (found["state"], found["rows"]) == ("runs", 12_600)
        assert [each["live"] for each in found["processes"]] == [True, False]


def test_lag_is_that_of_the_subscription_as_it_is_now(bucket: Bucket, agent: Opened) -> None:
    posts = bucket.queue("posts", main=False)
    reader = posts.subscription("classify", start="earliest")
    posts.send_many(range(7))
    with Reporter(bucket, "pipeline", "classify", queue="posts"):
        for delivery in reader.receive(2):
            delivery.ack()
        reader.flush()
    bucket.rules.add("thumbnails", to="queue:images")
    bucket.put("raw/1.png", b"1")
    leave(bucket, "thumbnails", ran(bucket, 5, recent=()), queue="events")
    with Person(agent.url, VERA) as vera:
        assert row(vera, "classify")["lag"] == 5
        assert row(vera, "thumbnails")["lag"] == 1


def test_without_spark_a_pipeline_leaves_the_same_figures(bucket: Bucket, agent: Opened) -> None:
    posts = bucket.queue("posts")
    posts.send_many(range(4))
    with Reporter(bucket, "pipeline", "classify", queue="posts"):
        posts.run(lambda delivery: None, stop_when_empty=True, signals=False)
    with Person(agent.url, VERA) as vera:
        found = row(vera, "classify")
        assert (found["state"], found["rows"], found["dead"], found["queue"]) == ("stopped", 4, 0, "posts")


def test_a_scope_sees_only_pipelines_of_its_queues_and_no_cost(bucket: Bucket, agent: Opened) -> None:
    leave(bucket, "mine", ran(bucket, 5), queue="jobs")
    leave(bucket, "other", ran(bucket, 5), queue="secret")
    leave(bucket, "tables", ran(bucket, 5))
    with Person(agent.url, SAM) as sam:
        assert [each["name"] for each in sam.get("/api/pipelines")["pipelines"]] == ["mine"]
        assert sam.get("/api/overview")["cost"] is None


def test_a_damaged_report_hides_no_other(store: MemoryStore, bucket: Bucket, agent: Opened) -> None:
    leave(bucket, "good", ran(bucket, 5))
    leave(bucket, "bad", ran(bucket, 5))
    key = "bucketmq/figures/reports/pipeline.bad.json"
    store.replace(key, b"{not json", store.get(key).version)  # type: ignore[union-attr]
    with Person(agent.url, VERA) as vera:
        assert [each["name"] for each in vera.get("/api/pipelines")["pipelines"]] == ["good"]


def test_many_pipelines_are_shown_in_pages_and_read_again_only_if_they_changed(bucket: Bucket, agent: Opened) -> None:
    for number in range(120):
        leave(bucket, f"pipeline-{number:03}", ran(bucket, 5))
    with Person(agent.url, VERA) as vera:
        before = agent.requests
        page = vera.get("/api/pipelines")
        used = agent.requests - before
        assert len(page["pipelines"]) == 50 and page["total"] == 120 and page["next"] == "pipeline-049"
        assert (used.get, used.create + used.replace) == (120, 0) and used.list <= 2
        leave(bucket, "pipeline-007", ran(bucket, 1), id="b")
        programs: Programs = agent.dashboard.programs
        programs.forget()
        before = agent.requests
        vera.get("/api/pipelines", after="pipeline-049")
        assert (agent.requests - before).get == 1
        assert vera.get("/api/pipelines", q="-11")["total"] == 10


def test_readers_that_report_nothing_are_named(bucket: Bucket, agent: Opened) -> None:
    bucket.queue("posts").send_many(range(3))

    def work() -> Procedure[None]:
        queue = yield from bucket.api.queue("posts").open()
        yield from begin_reader(queue, "my-query", {0: 1}, {0: 0}, holds=True)

    bucket.run(work())
    with Person(agent.url, VERA) as vera:
        vera.get("/api/queues")
        (reader,) = vera.get("/api/pipelines")["readers"]
        assert (reader["name"], reader["queue"], reader["lag"]) == ("my-query", "posts", 2)


def test_rates_are_by_queue_and_by_subscription(bucket: Bucket, agent: Opened) -> None:
    orders = bucket.queue("orders")
    billing = orders.subscription("billing")
    orders.send_many(range(30))
    with Person(agent.url, VERA) as vera:
        (found,) = vera.get("/api/queues")["queues"]
        assert found["rate_in"] is None, "one look gives no rate"
        for delivery in billing.receive(10):
            delivery.ack()
        billing.flush()
        survey = agent.dashboard.survey
        now = bucket.now_seconds
        survey._past["orders"] = deque([_Past(now - 20, 10, {"billing": 4, "main": 0})], maxlen=16)
        survey.forget("orders")
        found = vera.get("/api/queue", name="orders")
        assert found["rate_in"] == pytest.approx(1.0, rel=0.2)
        rates = {each["name"]: each["rate_out"] for each in found["subscriptions"]}
        assert rates["billing"] == pytest.approx(0.3, rel=0.2)
        assert found["rate_out"] == pytest.approx(sum(each for each in rates.values() if each))


def test_rates_are_over_the_last_minute_and_remembered_in_bounds(bucket: Bucket, agent: Opened) -> None:
    survey = agent.dashboard.survey
    past = deque((_Past(1_000.0 + 5 * n, 10 * n, {"main": 5 * n}) for n in range(16)), maxlen=survey_module.PAST_KEPT)
    survey._past["jobs"] = past
    flow = survey.flow("jobs")
    assert flow is not None
    assert (flow.seconds, flow.sent, flow.settled) == (70.0, 2.0, {"main": 1.0})
    assert survey.flow("unknown") is None


def test_cost_is_what_programs_report_and_says_what_it_leaves_out(store: MemoryStore, bucket: Bucket) -> None:
    spent = Spent(1_000_000, 2_000_000, 0)
    leave(bucket, "jobs", ran(bucket, 5, done=Done(10, 1, spent=spent)), kind="worker")
    leave(bucket, "classify", ran(bucket, 5))
    with opened(store) as agent, Person(agent.url, VERA) as vera:
        agent.dashboard.site.bucket.api.where = "s3://example"
        cost = vera.get("/api/overview")["cost"]
        (worker,) = cost["programs"]
        assert (worker["kind"], worker["name"], worker["requests"]) == ("worker", "jobs", 3_000_000)
        assert worker["usd"] == pytest.approx(5.8)
        assert cost["all_requests"] == cost["requests"] + 3_000_000 and cost["all_usd"] == pytest.approx(5.8, rel=0.01)
        assert cost["uncounted"] == ["classify"], "Spark's executors are not counted"


def test_this_server_is_counted_once(store: MemoryStore, bucket: Bucket) -> None:
    bucket.queue("jobs").send(1)
    with opened(store, samples=True) as agent, Person(agent.url, VERA) as vera:
        until(lambda: store.list("bucketmq/figures/reports/", after="", limit=1).entries)
        agent.dashboard.programs.forget()
        cost = vera.get("/api/overview")["cost"]
        assert cost["programs"] == [] and cost["all_requests"] == cost["requests"]
    with opened(store) as agent, Person(agent.url, VERA) as vera:
        (before,) = vera.get("/api/overview")["cost"]["programs"]
        assert (before["kind"], before["name"]) == ("server", "dashboard")
