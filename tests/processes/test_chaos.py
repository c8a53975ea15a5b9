"""Real processes on real stores: killed, frozen and cut off at random. Nothing is lost, doubled or made up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from bucketmq.testing.proxy import FaultyProxy
from processes.chaos import Audit, Stage, connect

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("processes")]

DRAIN_SECONDS = 40


@contextmanager
def staged(url: str, folder: Path, seed: int, *, count: int, shards: int) -> Iterator[Stage]:
    folder.mkdir()
    with connect(url) as bucket:
        bucket.queue("jobs", shards=shards, attempts_max=50, lease_seconds=2).settings()
    stage = Stage(url, folder, seed, count)
    try:
        yield stage
    finally:
        stage.stop()


def audited(stage: Stage, url: str) -> Audit:
    with connect(url) as bucket:
        queue = bucket.queue("jobs")
        stage.wait_until_drained(queue, DRAIN_SECONDS)
        stage.stop()
        audit = Audit(stage, queue)
    print(audit.summary(), dict(stage.did))
    audit.check()
    return audit


def play(url: str, folder: Path, seed: int, *, seconds: float, count: int, shards: int) -> tuple[Stage, Audit]:
    with staged(url, folder, seed, count=count, shards=shards) as stage:
        for role in ("producer", "producer", "worker", "worker", "worker"):
            stage.start(role)
        stage.torment(seconds)
        return stage, audited(stage, url)


@pytest.mark.parametrize(("seed", "shards"), [pytest.param(1, 1, marks=pytest.mark.long), (2, 3)])
def test_processes_on_a_folder_are_killed_and_frozen(folder_place: str, tmp_path: Path, seed: int, shards: int) -> None:
    stage, audit = play(folder_place, tmp_path / "ledgers", seed, seconds=9, count=150, shards=shards)
    assert stage.did["killed worker"] and stage.did["killed producer"] and stage.did["froze"]
    assert len(audit.of("sent")) > 100
    assert len(audit.of("ack-ok")) > 100
    assert not stage.complaints()


def test_processes_on_seaweedfs_are_killed_and_frozen(seaweedfs_place: str, tmp_path: Path) -> None:
    stage, audit = play(seaweedfs_place, tmp_path / "ledgers", 3, seconds=9, count=100, shards=2)
    assert stage.did["killed worker"] and stage.did["killed producer"] and stage.did["froze"]
    assert len(audit.of("sent")) > 50
    assert not stage.complaints()


@pytest.mark.parametrize("seed", [4, pytest.param(5, marks=pytest.mark.long)])
def test_connections_to_seaweedfs_are_cut_delayed_and_half_closed(
    seaweedfs_place: str, tmp_path: Path, seed: int
) -> None:
    endpoint = parse_qs(urlsplit(seaweedfs_place).query)["endpoint"][0]
    port = int(endpoint.rsplit(":", 1)[1])
    with FaultyProxy("127.0.0.1", port, seed=seed, chance=0.1, delay_seconds_max=1) as proxy:
        through = seaweedfs_place.replace(endpoint, f"http://127.0.0.1:{proxy.port}")
        with staged(seaweedfs_place, tmp_path / "ledgers", seed, count=150, shards=2) as stage:
            stage.url = through
            for role in ("producer", "producer", "worker", "worker"):
                stage.start(role)
            stage.torment(9, pause_seconds=(0.5, 2.5))
            proxy.calm()
            audit = audited(stage, seaweedfs_place)
            assert not stage.complaints()
    for fault in ("cut", "delay", "half-close"):
        assert proxy.faults[f"{fault} request"] and proxy.faults[f"{fault} reply"], proxy.faults
    assert len(audit.of("sent")) > 30
