"""A process' own port: what a scrape shows, and that it costs the bucket nothing, blocking and asyncio alike."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Iterator

import pytest
from server.running import aio_on, sync_on, until

from bucketmq import Invalid
from bucketmq.bucket.memory import MemoryStore
from bucketmq.bucket.port import Missing, Object, Page
from bucketmq.client import Bucket
from bucketmq.errors import Denied
from bucketmq.metrics import MetricsPort, serve_metrics
from bucketmq.metrics import standing as standing_module
from bucketmq.metrics.families import page as families_page
from bucketmq.metrics.standing import Standing


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def bucket(store: MemoryStore) -> Iterator[Bucket]:
    with sync_on(store) as opened:
        yield opened


def scrape(page: MetricsPort) -> str:
    with urllib.request.urlopen(page.url, timeout=10) as answer:
        text: str = answer.read().decode()
        return text


def queues(standing: Standing) -> set[str]:
    return {sample.labels["queue"] for family in standing.families() for sample in family.samples}


def test_a_worker_shows_what_it_did_and_how_its_queue_stands(bucket: Bucket) -> None:
    jobs = bucket.queue("jobs")
    jobs.send_many(range(3))
    with serve_metrics(bucket, 0, queues=["jobs"]) as page:
        until(lambda: 'bucketmq_queue_messages{queue="jobs",state="ready",subscription="main"} 3.0' in scrape(page))
        jobs.run(lambda delivery: None, stop_when_empty=True, signals=False)
        text = scrape(page)
    assert 'bucketmq_handled_total{outcome="ack",queue="jobs",subscription="main"} 3.0' in text
    assert 'bucketmq_queue_sent_total{queue="jobs"} 3.0' in text
    assert "bucketmq_queue_oldest_ready_seconds" in text and "bucketmq_build_info" in text


def test_a_scrape_costs_the_bucket_nothing(bucket: Bucket) -> None:
    bucket.queue("jobs").send(1)
    with serve_metrics(bucket, 0, queues=["jobs"]) as page:
        until(lambda: 'state="ready"' in scrape(page))
        before = bucket.requests
        for _ in range(10):
            scrape(page)
        assert bucket.requests == before


def test_queues_are_looked_at_only_while_somebody_reads_the_figures(bucket: Bucket) -> None:
    bucket.queue("jobs").send(1)
    standing = Standing(bucket, every_seconds=0.0)
    try:
        before = bucket.requests
        assert (standing.looks, bucket.requests) == (0, before)
        assert queues(standing) == set()
        until(lambda: standing.looks > 0)
        assert queues(standing) == {"jobs"}
    finally:
        standing.close()


def test_a_queue_that_cannot_be_read_is_shown_as_such(store: MemoryStore, bucket: Bucket) -> None:
    bucket.queue("jobs").send(1)
    found = store.get("queues/jobs/queue.json")
    store.replace("queues/jobs/queue.json", b"{not json", found.version)  # type: ignore[union-attr]
    with serve_metrics(bucket, 0, queues=["jobs"]) as page:
        until(lambda: 'bucketmq_queue_healthy{queue="jobs"} 0.0' in scrape(page))


class Leaving(MemoryStore):
    """A store that can be away."""

    away = False

    def get(self, key: str) -> Object | Missing:
        self._check()
        return super().get(key)

    def list(self, prefix: str, *, after: str, limit: int) -> Page:
        self._check()
        return super().list(prefix, after=after, limit=limit)

    def _check(self) -> None:
        if self.away:
            raise Denied("you may not read there")


def test_a_queue_whose_objects_were_deleted_is_shown_no_longer(
    store: MemoryStore, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing_module, "QUEUE_SECONDS", 0.01)
    for name in ("gone", "jobs"):
        bucket.queue(name).send(1)
    standing = Standing(bucket, every_seconds=0.0)
    try:
        until(lambda: queues(standing) == {"gone", "jobs"})
        for entry in store.list("queues/gone/", after="", limit=1000).entries:
            store.delete(entry.key)
        until(lambda: queues(standing) == {"jobs"})
    finally:
        standing.close()


def test_while_the_bucket_is_away_no_queue_is_shown_as_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing_module, "QUEUE_SECONDS", 0.01)
    store = Leaving()
    with sync_on(store) as bucket:
        bucket.queue("jobs").send(1)
        standing = Standing(bucket, every_seconds=0.01)
        try:
            for away, healthy in ((False, 1.0), (True, 0.0), (False, 1.0)):
                store.away = away
                line = f'bucketmq_queue_healthy{{queue="jobs"}} {healthy}'
                until(lambda line=line: line in families_page(standing.families)[0].decode())
        finally:
            standing.close()


def test_an_asyncio_bucket_has_the_same(store: MemoryStore) -> None:
    async def work() -> str:
        async with aio_on(store) as bucket:
            jobs = bucket.queue("jobs")
            await jobs.send(1)
            with serve_metrics(jobs, 0, queues=["jobs"]) as page:
                await jobs.run(lambda delivery: None, stop_when_empty=True, signals=False)
                await asyncio.to_thread(until, lambda: 'queue_sent_total{queue="jobs"} 1.0' in scrape(page))
                return await asyncio.to_thread(scrape, page)

    assert 'bucketmq_handled_total{outcome="ack",queue="jobs",subscription="main"} 1.0' in asyncio.run(work())


def test_a_port_that_is_taken_is_said_and_leaves_nothing_running(bucket: Bucket) -> None:
    with serve_metrics(bucket, 0) as page, pytest.raises(Invalid, match="choose another port"):
        serve_metrics(bucket, int(page.url.rsplit(":", 1)[1].partition("/")[0]), queues=["jobs"])
