"""What runs beside the receivers: rules, sweeps; started again when they fail, stopped with nothing half done."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from bucketmq.bucket.memory import MemoryStore
from bucketmq.bucket.port import Page
from bucketmq.client import Bucket, connect
from bucketmq.errors import Invalid
from bucketmq.server import background
from bucketmq.server.settings import check_settings
from bucketmq.testing.endpoints import Reply, endpoint
from server.running import aio_on, delivered, payload, serving, settings_with, sync_on, until, when_it_refuses


def test_rules_run_and_new_ones_are_noticed(store: MemoryStore, bucket: Bucket) -> None:
    with endpoint() as there, serving(lambda: aio_on(store), settings_with(notify=True)) as running:
        bucket.rules.add("late", to=there.url, private=True, start="beginning")
        assert running.post("r2", payload("r2")).status_code == 200
        (request,) = there.wait_for(1)
        assert request.headers["bucketmq-rule"] == "late"


def test_without_notify_no_rule_runs(store: MemoryStore, bucket: Bucket) -> None:
    bucket.rules.add("idle", to="queue:out", start="beginning")
    with serving(lambda: aio_on(store), settings_with(notify=False)) as running:
        running.post("r2", payload("r2"))
        assert running.stranger.get("/readyz").status_code == 200
    assert not bucket.queue("out").peek()


def test_a_delivery_that_is_under_way_is_finished_when_the_server_stops(store: MemoryStore, bucket: Bucket) -> None:
    answer = threading.Event()
    with endpoint([Reply(200, until=answer)]) as there:
        bucket.rules.add("slow", to=there.url, private=True, start="beginning")
        with serving(lambda: aio_on(store), settings_with(notify=True)) as running:
            running.post("r2", payload("r2"))
            there.wait_for(1)
            stopping = when_it_refuses(running.url, answer.set)
        stopping.join()
        bucket.notify(stop_when_empty=True)
        assert len(there.requests) == 1


class Faulty(MemoryStore):
    """Fails to list the rules, in a way nobody expected, for a while."""

    failures = 0

    def list(self, prefix: str, *, after: str, limit: int) -> Page:
        if prefix.startswith("rules") and self.failures > 0:
            self.failures -= 1
            raise RuntimeError("nobody expected this")
        return super().list(prefix, after=after, limit=limit)


def test_a_notifier_that_fails_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "RESTART_SECONDS", 0.01)
    store = Faulty()
    with sync_on(store) as bucket, endpoint() as there:
        bucket.rules.add("patient", to=there.url, private=True, start="beginning")
        store.failures = 3
        with serving(lambda: aio_on(store), settings_with(notify=True)) as running:
            running.post("r2", payload("r2"))
            there.wait_for(1)
            assert running.parts.counters.read("restarts_total", task="notifier") == 3
            assert running.stranger.get("/readyz").status_code == 200


def test_sweeps_begin_with_a_baseline_and_find_what_nobody_told(folder: Path) -> None:
    (folder / "old.txt").write_text("here before")
    with connect(f"file://{folder}", probe=False) as bucket:
        from bucketmq.bucket.folder import FolderStore

        with serving(lambda: aio_on(FolderStore(folder)), settings_with(sweep_seconds=1.0)) as running:
            until(lambda: running.parts.counters.read("sweeps_total", outcome="done"))
            (folder / "new.txt").write_text("nobody told")
            until(lambda: running.parts.counters.read("sweeps_total", outcome="done") >= 3)
        assert [event.key for event in delivered(bucket)] == ["new.txt"]


@pytest.mark.parametrize(
    "options", [{"sweep_seconds": 0.0}, {"body_bytes_max": 10}, {"body_seconds": 0}, {"sns_prefix": "nonsense"}]
)
def test_settings_that_cannot_work_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(Invalid):
        check_settings(settings_with(**options))
