"""Metrics of queues: what a scrape shows, that it costs the bucket nothing, and that the files for Grafana and
Prometheus name nothing that does not exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import yaml

from bucketmq.bucket.memory import MemoryStore
from bucketmq.bucket.port import Refused, Version
from bucketmq.cli.pipeline_metrics import PipelineFigures
from bucketmq.client import Bucket
from bucketmq.metrics.counts import Counts
from bucketmq.metrics.families import Families
from bucketmq.procedures.requests import Replace
from bucketmq.spark.running.progress import Figures, Totals
from dashboard.opened import SAM, VERA, Opened, Person, bury, opened

FILES = Path(__file__).parents[2] / "deploy" / "grafana"


def scrape(made: Opened, token: str = VERA) -> str:
    answer = httpx2.get(f"{made.url}/metrics", headers={"authorization": f"Bearer {token}"}, timeout=30)
    assert answer.status_code == 200, answer.text
    return answer.text


def busy(bucket: Bucket, store: MemoryStore) -> None:
    bury(bucket, 2)
    bucket.queue("jobs").send_many([1, 2, 3])
    bucket.queue("jobs").receive(1)
    bucket.queue("jobs").send("later", delay_seconds=3600)
    bucket.queue("jobs").pause("why")
    bucket.queue("broken").send(1)
    found = store.get("queues/broken/queue.json")
    store.replace("queues/broken/queue.json", b"{not json", found.version)  # type: ignore[union-attr]


def test_a_scrape_shows_every_queue_and_costs_the_bucket_nothing(store: MemoryStore, bucket: Bucket) -> None:
    busy(bucket, store)
    with opened(store) as made, Person(made.url, VERA) as vera:
        vera.get("/api/queues")
        before = made.requests
        text = scrape(made)
        assert made.requests == before
    for line in (
        'bucketmq_queue_messages{queue="jobs",state="ready",subscription="main"} 2.0',
        'bucketmq_queue_messages{queue="jobs",state="in_flight",subscription="main"} 1.0',
        'bucketmq_queue_delayed{queue="jobs"} 1.0',
        'bucketmq_queue_dead{queue="jobs"} 2.0',
        'bucketmq_queue_sent_total{queue="jobs"} 5.0',
        'bucketmq_queue_paused{queue="jobs",subscription="main"} 1.0',
        'bucketmq_queue_healthy{queue="jobs"} 1.0',
        'bucketmq_queue_healthy{queue="broken"} 0.0',
    ):
        assert line in text, line


def test_metrics_are_of_all_queues_and_so_not_for_everybody(store: MemoryStore) -> None:
    with opened(store) as made:
        assert made.http.get("/metrics").status_code == 401
        headers = {"authorization": f"Bearer {SAM}"}
        assert httpx2.get(f"{made.url}/metrics", headers=headers, timeout=30).status_code == 403


def named(value: Any) -> set[str]:
    """The metrics that a file names."""
    return set(
        re.findall(r"bucketmq_[a-z_]+", value if isinstance(value, str) else msgspec.json.encode(value).decode())
    )


def samples(families: Families) -> dict[str, set[str]]:
    """Every sample that a page has, and its labels."""
    found: dict[str, set[str]] = {}
    for family in families():
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_every_metric_that_the_files_name_exists(store: MemoryStore, bucket: Bucket) -> None:
    counts = Counts()
    bucket.observe(counts)
    counts.on_request(Replace("queues/jobs/heads/main/0.json", b"", Version("1")), Refused(), 0.1)
    busy(bucket, store)
    totals = Totals()
    totals.add(Figures(0, "now", 8, 0.5, 16.0, 3, 1))
    pipeline = PipelineFigures("classify")
    pipeline.show(totals)
    board = msgspec.json.decode((FILES / "bucketmq.json").read_bytes())
    alerts = yaml.safe_load((FILES / "alerts.yml").read_text())
    with opened(store) as made, Person(made.url, VERA) as vera:
        vera.get("/api/queues")
        exist = samples(made.dashboard.families) | samples(counts.families) | samples(pipeline.families)
    exist["bucketmq_reader_lag_messages"] = {"queue", "reader"}  # only where there is a reader; see test_tabs
    used = [target for panel in board["panels"] for target in panel["targets"]]
    rules = [rule for group in alerts["groups"] for rule in group["rules"]]
    wanted = named([each["expr"] for each in (*used, *rules)]) | named(board["templating"])
    assert len(wanted) >= 15 and wanted - set(exist) == set()
    for each in used:
        labels = set.union(*(exist[name] for name in named(each["expr"]))) | {"job", "instance"}
        assert set(re.findall(r"{{(\w+)}}", each["legendFormat"])) <= labels, each
    collector = yaml.safe_load((FILES.parent / "otel" / "cloudwatch.yml").read_text())
    for each in collector["exporters"]["awsemf"]["metric_declarations"]:
        for selector in each["metric_name_selectors"]:
            found = [name for name in exist if re.search(selector, name.removesuffix("_total").removesuffix("_sum"))]
            assert found and all(set(labels) <= exist[found[0]] | {"state", "outcome"} for labels in each["dimensions"])
    for rule in rules:
        labels = set.union(*(exist[name] for name in named(rule["expr"]))) | {"job", "instance"}
        assert set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"]))) <= labels, rule


def test_the_board_is_one_that_grafana_takes() -> None:
    board = msgspec.json.decode((FILES / "bucketmq.json").read_bytes())
    assert board["__inputs"][0]["pluginId"] == "prometheus" and board["templating"]["list"][0]["name"] == "queue"
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]}
    assert len(places) == len(board["panels"])
