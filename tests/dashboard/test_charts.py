"""Figures over an hour, a day and a week: who sees them, what they cost, and that they are taken in the background."""

from __future__ import annotations

import time
from typing import Any

from server.running import sync_on, until

from bucketmq.bucket.memory import MemoryStore
from bucketmq.client import Bucket
from bucketmq.log.figures import HOURS, MINUTES, Ring, Sample, Stretch, summed
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.upkeep import figures
from dashboard.opened import SAM, VERA, Person, opened


def plant(bucket: Bucket, ring: Ring, at: float, **queues: Sample) -> None:
    def work() -> Procedure[Stretch]:
        return (yield from figures.note((yield from bucket.api.open()), ring, at, summed(dict(queues))))

    bucket.run(work())


def past(bucket: Bucket) -> None:
    """A week of figures: by the hour, and of the last day by the minute."""
    now = bucket.now_seconds
    for hour in range(1, 7 * 24):
        wave = abs(hour % 24 - 12)
        plant(
            bucket,
            HOURS,
            now - hour * 3600,
            jobs=Sample(40 * wave, 5, wave, hour // 50, 30.0, 50_000 - 250 * hour, 49_000 - 245 * hour),
        )
    for minute in range(1, 24 * 60, 4):
        wave = abs(minute % 60 - 30)
        plant(
            bucket,
            MINUTES,
            now - minute * 60,
            jobs=Sample(7 * wave, 3, wave // 4, 2, 5.0, 50_000 - 4 * minute, 49_000 - 3 * minute),
        )


def test_the_figures_of_each_range(store: MemoryStore, bucket: Bucket) -> None:
    past(bucket)
    with opened(store) as agent, Person(agent.url, VERA) as vera:
        found: dict[str, Any] = {span: vera.get("/api/figures", span=span) for span in ("hour", "day", "week")}
        assert found["hour"]["fields"][:2] == ["at", "ready"]
        assert 14 <= len(found["hour"]["points"]) <= 16 and 350 <= len(found["day"]["points"]) <= 361
        assert 160 <= len(found["week"]["points"]) <= 168
        for each in found.values():
            times = [point[0] for point in each["points"]]
            assert times == sorted(times) and times[-1] <= each["now"]
        assert vera.get("/api/figures", queue="jobs")["points"] == found["hour"]["points"]
        assert vera.get("/api/figures", queue="other")["points"] == []
        assert vera.http.get("/api/figures", params={"span": "year"}).status_code == 400


def test_stretches_that_are_over_are_read_once(store: MemoryStore, bucket: Bucket) -> None:
    past(bucket)
    with opened(store) as agent, Person(agent.url, VERA) as vera:
        before = agent.requests
        vera.get("/api/figures", span="day")
        assert (agent.requests - before).get <= 26
        agent.dashboard.charts._newest["day"].forget()
        before = agent.requests
        vera.get("/api/figures", span="day")
        assert (agent.requests - before).get == 1, "only the one that still grows"


def test_a_scope_does_not_see_the_sum_over_everything(store: MemoryStore, bucket: Bucket) -> None:
    past(bucket)
    with opened(store) as agent, Person(agent.url, SAM) as sam:
        assert sam.get("/api/figures")["points"] == []
        assert sam.get("/api/figures", queue="jobs")["points"]
        assert sam.http.get("/api/figures", params={"queue": "secret"}).status_code == 404


def test_figures_are_taken_in_the_background_only_where_that_is_wanted(store: MemoryStore, bucket: Bucket) -> None:
    bucket.queue("jobs").send_many([1, 2, 3])

    def kept() -> list[str]:
        return [entry.key for entry in store.list("bucketmq/", after="", limit=10).entries]

    with opened(store) as agent, Person(agent.url, VERA) as vera:
        vera.get("/api/figures")
        assert kept() == []
    with opened(store, samples=True) as agent, Person(agent.url, VERA) as vera:
        until(lambda: kept() != [])
        until(lambda: vera.get("/api/figures", queue="jobs")["points"] != [])
        found = vera.get("/api/figures", queue="jobs")
        fields, (point,) = found["fields"], found["points"]
        assert dict(zip(fields, point, strict=True)) | {"at": 0} == {
            "at": 0,
            "ready": 3,
            "in_flight": 0,
            "delayed": 0,
            "dead": 0,
            "oldest_ready_seconds": point[5],
            "sent": 3,
            "settled": 0,
        }
    assert len(kept()) <= 3 and "bucketmq/figures/reports/server.dashboard.json" in kept()


def test_a_scrape_counts_as_a_look(store: MemoryStore, bucket: Bucket) -> None:
    bucket.queue("jobs").send(1)
    with opened(store, samples=True) as agent:
        charts = agent.dashboard.charts
        assert charts._pause() == 300.0
        agent.http.get("/metrics", headers={"authorization": f"Bearer {VERA}"})
        assert charts._pause() == 60.0


def test_old_lines_of_the_log_of_actions_are_trimmed() -> None:
    ahead = [0.0]
    store = MemoryStore(lambda: time.time() + ahead[0])
    with sync_on(store) as bucket:
        for number in range(3):
            bucket.queue("bucketmq-actions", main=False, keep_seconds=1.0, expire_seconds=1.0).send({"n": number})
    ahead[0] = 100 * 86400.0
    with sync_on(store) as bucket:
        bucket.queue("jobs").send({"n": 1})  # so that a process sees the time
    with opened(store, samples=True):
        until(lambda: len(store.list("queues/bucketmq-actions/log/", after="", limit=10).entries) < 3)


def test_a_queue_with_several_subscriptions_has_figures_of_each(store: MemoryStore, bucket: Bucket) -> None:
    orders = bucket.queue("orders")
    billing = orders.subscription("billing")
    orders.subscription("shipping")
    orders.send_many(range(5))
    for delivery in billing.receive(2):
        delivery.ack()
    billing.flush()
    with opened(store, samples=True) as agent, Person(agent.url, SAM) as sam:
        with Person(agent.url, VERA) as vera:
            until(lambda: vera.get("/api/figures", queue="orders", subscription="billing")["points"])
            found = {
                name: vera.get("/api/figures", queue="orders", subscription=name)["points"][0][-1]
                for name in ("billing", "shipping")
            }
            assert found == {"billing": 2, "shipping": 0}
            assert vera.get("/api/figures", queue="orders")["points"][0][-1] == 2
            assert vera.get("/api/figures", queue="orders", subscription="nobody")["points"] == []
        assert sam.http.get("/api/figures", params={"queue": "orders", "subscription": "billing"}).status_code == 404
