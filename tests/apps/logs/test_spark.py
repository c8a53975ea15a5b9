"""The same counts, templates and alerts on Spark, in a worker, and on a real object store; and what it costs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bucketmq
from apps.logs.parts import MINUTE, START, Logs, line, ordinary, put
from bucketmq.pipeline import Pipeline
from bucketmq.testing import servers


def story(logs: Logs) -> None:
    """Half an hour, then something new and a spike."""
    for minute in range(0, 30, 5):
        lines = [each for n in range(5) for each in ordinary(minute + n, 8)]
        put(logs.bucket, f"{minute:02}", lines)
    put(logs.bucket, "other", [line(START, "sent mail 7")], service="mailer")


def trouble(logs: Logs) -> None:
    put(logs.bucket, "x", [*ordinary(31, 300), line(START + 31 * MINUTE, "disk on fire", "critical")])


def found(logs: Logs) -> dict[str, Any]:
    services = [logs.bucket.get_json(f"log-services/{name}.json") for name in ("web", "mailer")]
    return {
        "rows": [{**row, "at": None} for row in sorted(logs.rows(), key=lambda row: (row["source"], row["id"]))],
        # How many lines are late depends on the order in which objects are handled, which nobody promises.
        "services": [{**each, "arrived_at": None, "late": None} for each in services],
        "alerts": sorted((each["kind"], each["template"], each["since"], each["why"]) for each in logs.alerts()),
        "templates": sorted(each["template"] for each in logs.bucket.get_json("templates/web.json")["templates"]),
        "dead": logs.dead(),
    }


EXPECTED_ALERTS = [
    ("new-pattern", "disk on fire", START + 31 * MINUTE, "never seen before"),
    ("spike", "request <*> served in <*>", START + 31 * MINUTE, "60 lines in one minute; 8 are usual"),
]


def without_spark(logs: Logs) -> None:
    for part in (story, trouble):
        part(logs)
        logs.go()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.xdist_group("spark")
def test_the_same_comes_of_the_same_with_and_without_spark(spark: Any, tmp_path: Path) -> None:
    from bucketmq.spark import start

    plain, on_spark = Logs(str(tmp_path / "plain")), Logs(str(tmp_path / "spark"))
    without_spark(plain)

    def run(pipeline: Pipeline) -> None:
        query = start(
            pipeline, on_spark.url, spark, once=True, checkpoint=str(tmp_path / "checkpoints" / pipeline.name)
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()

    for part in (story, trouble):
        part(on_spark)
        run(on_spark.counting)
        run(on_spark.watching)
        on_spark.keep()
    assert found(plain)["alerts"] == EXPECTED_ALERTS
    assert found(on_spark) == found(plain)
    plain.close()
    on_spark.close()


@pytest.fixture
def url() -> Iterator[str]:
    try:
        with servers.seaweedfs() as url:
            yield url
    except bucketmq.Unsupported as error:
        servers.skip_or_fail(error)


@pytest.mark.long
def test_it_works_on_a_real_object_store(url: str) -> None:
    logs = Logs(url)
    without_spark(logs)
    assert found(logs)["alerts"] == EXPECTED_ALERTS and logs.dead() == []
    for minute in range(32, 56, 4):
        put(logs.bucket, str(minute), ordinary(minute))
    logs.go()
    assert logs.alerts() == [] and len(logs.resolved()) == 2
    logs.close()


def test_an_object_costs_a_bounded_number_of_requests(tmp_path: Path) -> None:
    logs = Logs(str(tmp_path / "bucket"))
    story(logs)
    logs.go()
    count, watch = logs.counting.watcher(logs.bucket), logs.watching.watcher(logs.bucket)
    changes: list[Any] = []
    put(logs.bucket, "next", ordinary(31))
    logs.bucket.watch('key LIKE "logs/web/2026-11-18/next%"', name="seen", start="beginning")(changes.append)
    logs.bucket.run_watchers("seen", stop_when_empty=True, signals=False)

    before = logs.bucket.requests
    count(changes[0])
    counted = logs.bucket.requests
    # The object; the table's head and file, twice; a message. The model is read by the stage, at most every 5 seconds.
    assert counted.get - before.get <= 4
    assert counted.create + counted.replace - before.create - before.replace <= 4

    (delivery,) = logs.bucket.queue("log-windows").receive(1)
    before = logs.bucket.requests
    watch(delivery)
    watched = logs.bucket.requests
    # The state of the service, read and replaced; its summary, put and reported.
    assert watched.get + watched.look - before.get - before.look <= 4
    assert watched.create + watched.replace - before.create - before.replace <= 6

    logs.close()
