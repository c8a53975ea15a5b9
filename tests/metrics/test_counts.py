"""What a process counts: requests by verb and outcome, handled messages by what became of them, and how long."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from server.running import sync_on

from bucketmq import Bury, Retry
from bucketmq.bucket.memory import MemoryStore
from bucketmq.bucket.port import Object, Refused, Version
from bucketmq.client import Bucket
from bucketmq.metrics.counts import Counts
from bucketmq.metrics.families import LABEL_SETS_MAX, page, queue_families
from bucketmq.outcomes import Done
from bucketmq.procedures.observers import Handed
from bucketmq.procedures.requests import Replace
from bucketmq.queue.message import Message


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with sync_on(MemoryStore()) as opened:
        yield opened


def values(counts: Counts) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample of the page that Prometheus would read, by name and labels."""
    text = page(counts.families)[0].decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of(found: dict[Any, float], name: str, **labels: str) -> float:
    return found.get((name, frozenset(labels.items())), 0.0)


def test_handled_messages_are_counted_by_what_became_of_them(bucket: Bucket) -> None:
    counts = Counts()
    bucket.observe(counts)
    jobs = bucket.queue("jobs", backoff={"first_seconds": 3600})
    jobs.send_many(["ack", "ack", "bury", "retry"])
    ends: dict[str, Any] = {"ack": None, "bury": Bury("no"), "retry": Retry("later")}
    jobs.run(lambda delivery: ends[delivery.body], stop_when_empty=True, signals=False)
    found = values(counts)
    for outcome, count in (("ack", 2), ("bury", 1), ("retry", 1)):
        assert of(found, "bucketmq_handled_total", queue="jobs", subscription="main", outcome=outcome) == count
    assert of(found, "bucketmq_wait_seconds_count", queue="jobs", subscription="main") == 4
    assert of(found, "bucketmq_handling_seconds_count", queue="jobs", subscription="main") == 4
    assert of(found, "bucketmq_handling_seconds_bucket", queue="jobs", subscription="main", le="+Inf") == 4


def test_a_rule_is_called_by_its_name_and_not_by_the_id_behind_it(bucket: Bucket) -> None:
    counts = Counts()
    bucket.observe(counts)
    bucket.rules.add("thumbnails", to="queue:images")
    bucket.put("raw/1.png", b"1")
    bucket.notify(stop_when_empty=True)
    found = values(counts)
    assert of(found, "bucketmq_handled_total", queue="events", subscription="rule:thumbnails", outcome="ack") == 1


def test_requests_are_counted_by_verb_and_outcome(bucket: Bucket) -> None:
    counts = Counts()
    bucket.observe(counts)
    before = bucket.requests
    bucket.queue("jobs").send(1)
    made = bucket.requests - before
    found = values(counts)
    requests = {labels: each for (name, labels), each in found.items() if name == "bucketmq_store_requests_total"}
    created = [each for labels, each in requests.items() if ("verb", "create") in labels]
    assert sum(created) == made.create
    assert of(found, "bucketmq_store_requests_total", verb="get", outcome="missing") == made.missing
    assert of(found, "bucketmq_store_request_seconds_count", verb="create") == made.create
    assert of(found, "bucketmq_store_bytes_total", way="out") == made.bytes_out > 0


def test_a_refused_head_is_a_conflict_of_its_queue_and_subscription() -> None:
    counts = Counts()
    version = Version("1")
    for key in ("a/queues/jobs/heads/billing/3.json", "queues/jobs/queue.json", "heads/x/1.json"):
        counts.on_request(Replace(key, b"", version), Refused(), 0.1)
    found = values(counts)
    assert of(found, "bucketmq_head_conflicts_total", queue="jobs", subscription="billing") == 1
    assert len([name for name, _ in found if name == "bucketmq_head_conflicts_total"]) == 1


def test_a_wait_is_of_the_first_attempt_and_falls_into_its_bucket() -> None:
    counts = Counts()
    message = Message(id="m", at="2026-01-01T00:00:00.000Z")
    for attempt, waited in ((1, 0.2), (2, 5000.0)):
        counts.on_handled("jobs", "main", Handed(message, 0, 0, attempt, waited), Done(), 1.0)
    found = values(counts)
    main = {"queue": "jobs", "subscription": "main"}
    assert of(found, "bucketmq_wait_seconds_bucket", le="0.1", **main) == 0
    assert of(found, "bucketmq_wait_seconds_bucket", le="0.25", **main) == 1
    assert of(found, "bucketmq_wait_seconds_count", **main) == 1
    assert of(found, "bucketmq_handling_seconds_sum", **main) == 2.0


def test_labels_have_a_limit_and_what_comes_later_is_counted_as_other() -> None:
    counts = Counts()
    message = Message(id="m", at="2026-01-01T00:00:00.000Z")
    for number in range(LABEL_SETS_MAX + 7):
        counts.on_handled(f"queue-{number}", "main", Handed(message, 0, 0, 1), Done(), 1.0)
    found = values(counts)
    assert of(found, "bucketmq_handled_total", queue="other", subscription="other", outcome="other") == 7
    assert len([name for name, _ in found if name == "bucketmq_handled_total"]) == LABEL_SETS_MAX + 1


def test_how_queues_stand_has_a_limit_for_all_subscriptions_together(bucket: Bucket) -> None:
    jobs = bucket.queue("jobs")
    jobs.subscription("one")
    jobs.send(1)
    found = jobs.stats()
    (one,) = found.subscriptions
    many = [msgspec.structs.replace(one, name=f"s{number}") for number in range(LABEL_SETS_MAX + 7)]
    stats = msgspec.structs.replace(found, subscriptions=tuple(many))
    for family in queue_families([stats]):
        assert len({each.labels.get("subscription") for each in family.samples}) <= LABEL_SETS_MAX, family.name


def test_counting_from_many_threads_loses_nothing() -> None:
    counts = Counts()

    def work() -> None:
        for _ in range(500):
            counts.on_request(Replace("k", b"12", Version("1")), Object(b"123", Version("2"), 0.0), 0.01)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    found = values(counts)
    assert of(found, "bucketmq_store_requests_total", verb="replace", outcome="done") == 4_000
    assert of(found, "bucketmq_store_bytes_total", way="out") == 8_000


def test_a_message_whose_time_cannot_be_read_is_handled_all_the_same() -> None:
    store, counts = MemoryStore(), Counts()
    with sync_on(store) as bucket:
        bucket.queue("jobs").send_many([1, 2])
    key = "queues/jobs/log/0/00000000000000000000.ndjson"
    found = store.get(key)
    assert isinstance(found, Object)
    store.replace(key, re.sub(rb'"at":"[^"]*"', b'"at":"yesterday"', found.body), found.version)
    with sync_on(store) as bucket:
        bucket.observe(counts)
        bucket.queue("jobs").run(lambda delivery: None, stop_when_empty=True, signals=False)
        assert bucket.queue("jobs").stats().depth == 0
    assert of(values(counts), "bucketmq_handled_total", queue="jobs", subscription="main", outcome="ack") == 2
