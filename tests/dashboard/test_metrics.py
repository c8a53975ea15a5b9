"""Metrics of queues: what a scrape shows, that it costs the bucket nothing, and that the files for Grafana and
Prometheus name nothing that does not exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx2
import msgspec

from bucketmq.bucket.memory import MemoryStore
from bucketmq.client import Bucket
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


def test_every_metric_that_the_files_name_exists(store: MemoryStore, bucket: Bucket) -> None:
    busy(bucket, store)
    board = msgspec.json.decode((FILES / "bucketmq.json").read_bytes())
    alerts = (FILES / "alerts.yml").read_text()
    with opened(store) as made, Person(made.url, VERA) as vera:
        vera.get("/api/queues")
        text = scrape(made)
    exist = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    exist |= {f"{name}_total" for name in exist} | exist
    wanted = named([panel["targets"] for panel in board["panels"]]) | named(board["templating"])
    wanted |= named("\n".join(line for line in alerts.splitlines() if "expr:" in line))
    assert len(wanted) >= 8 and wanted - exist == set()


def test_the_board_is_one_that_grafana_takes() -> None:
    board = msgspec.json.decode((FILES / "bucketmq.json").read_bytes())
    assert board["__inputs"][0]["pluginId"] == "prometheus" and board["templating"]["list"][0]["name"] == "queue"
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]}
    assert len(places) == len(board["panels"])
