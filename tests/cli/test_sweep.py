"""sweep and audit: changes that nobody told of."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from bucketmq.client import Bucket
from cli.ran import Cli
from cli.running import running


@pytest.fixture
def outside(folder: Path) -> Path:
    """A folder of the bucket that other programs write to."""
    made = folder / "bucket" / "inbox"
    made.mkdir(parents=True)
    return made


def test_a_sweep_finds_what_is_new_changed_and_gone(cli: Cli, outside: Path) -> None:
    (outside / "a").write_text("1")
    (outside / "b").write_text("1")
    first = cli("sweep", "--json").row
    assert (first["keys"], first["created"], first["changed"], first["deleted"]) == (2, 2, 0, 0)
    (outside / "a").write_text("another")
    (outside / "b").unlink()
    (outside / "c").write_text("1")
    ran = cli("sweep")
    assert (ran.code, ran.out) == (0, "")
    assert "2 keys at " in ran.err
    assert "1 new, 1 changed, 1 gone" in ran.err
    assert cli("sweep", "--json").row["created"] == 0


def test_a_baseline_makes_no_events(cli: Cli, bucket: Bucket, outside: Path) -> None:
    (outside / "a").write_text("1")
    row = cli("sweep", "--first", "baseline", "--prefix", "inbox/", "--name", "mine", "--json").row
    assert (row["created"], row["noted"]) == (0, 1)
    assert "events" not in bucket.queues()
    assert cli("sweep", "--prefix", "inbox", "--json").code == 2


def test_sweeping_again_and_again_ends_with_sigterm(
    cli: Cli, environment: dict[str, str], folder: Path, outside: Path
) -> None:
    with running(["sweep", "--every", "0.1", "--json"], environment, folder) as process:
        assert process.row()["created"] == 0
        (outside / "a").write_text("1")
        while process.row()["created"] == 0:
            pass
        code, _, err = process.stop(signal.SIGTERM)
    assert (code, err) == (0, "")


def test_an_audit_of_a_complete_rule(cli: Cli, bucket: Bucket) -> None:
    cli("rules", "add", "all", "--to", "queue:out")
    bucket.put("a", b"1")
    cli("rules", "run", "--once")
    ran = cli("audit", "--rule", "all", "--json")
    assert ran.code == 0
    row = ran.row
    assert (row["events"], row["matched"], row["delivered"], row["missed"], row["complete"]) == (1, 1, 1, 0, True)
    assert "delivered" in cli("audit", "--rule", "all").out


def test_an_audit_names_what_was_missed_and_repairs_it(cli: Cli, bucket: Bucket, outside: Path) -> None:
    cli("rules", "add", "inbox", "--to", "queue:out", "--filter", 'key LIKE "inbox/%"')
    (outside / "[silent]").write_text("1")
    ran = cli("audit", "--rule", "inbox")
    assert ran.code == 6, ran
    assert "missed  inbox/[silent]" in ran.out.splitlines()
    repaired = cli("audit", "--rule", "inbox", "--repair", "--json")
    assert (repaired.code, repaired.row["reported"]) == (0, 1)
    cli("rules", "run", "--once")
    assert [delivery.body["key"] for delivery in bucket.queue("out").receive(10)] == ["inbox/[silent]"]
    assert cli("audit", "--rule", "inbox").code == 0
