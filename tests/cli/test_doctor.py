"""doctor: on a folder, on stores that lie, and on those that do not answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from bucketmq.bucket.memory import MemoryStore
from bucketmq.bucket.port import PLAIN, Attributes, Missing, Object, Page, Refused, Version, Written
from bucketmq.cli import doctor
from bucketmq.errors import Denied, NotFound, Unavailable
from cli.ran import Cli, Ran

CHECKS = [
    "url and credentials",
    "list objects",
    "write an object",
    "read it back",
    "delete it",
    "conditional writes",
    "racing creates",
    "racing replaces",
    "clock",
    "speed",
]


class IgnoresConditions(MemoryStore):
    """Overwrites whatever is there, as old gateways do."""

    def create(self, key: str, body: bytes, attributes: Attributes = PLAIN) -> Written | Refused:
        super().delete(key)
        return super().create(key, body, attributes)

    def replace(self, key: str, body: bytes, version: Version, attributes: Attributes = PLAIN) -> Written | Refused:
        return self.create(key, body, attributes)


class RacyStore(MemoryStore):
    """Checks the condition, then writes: right one at a time, wrong in a race."""

    def __init__(self) -> None:
        super().__init__()
        self._gate = threading.Barrier(doctor.RACERS)

    def create(self, key: str, body: bytes, attributes: Attributes = PLAIN) -> Written | Refused:
        if isinstance(self.get(key), Object):
            return Refused()
        if "/create-" in key:
            self._gate.wait(10)
            super().delete(key)
        written = super().create(key, body, attributes)
        return written if isinstance(written, Written) else Written(Version("x"), None)


class DeniesWrites(MemoryStore):
    def create(self, key: str, body: bytes, attributes: Attributes = PLAIN) -> Written | Refused:
        raise Denied(f"may not write {key}: HTTP 403")


class Silent(MemoryStore):
    def list(self, prefix: str, *, after: str, limit: int) -> Page:
        raise Unavailable("no answer within 5 s")


class NoBucket(MemoryStore):
    def list(self, prefix: str, *, after: str, limit: int) -> Page:
        raise NotFound("there is no bucket 'inbox'")


class Forgetful(MemoryStore):
    def get(self, key: str) -> Object | Missing:
        return Missing()


Examine = Callable[[MemoryStore], Ran]


@pytest.fixture
def examine(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Examine:
    """Run doctor on a store of the test's own."""

    def call(store: MemoryStore) -> Ran:
        monkeypatch.setattr(doctor, "open_store", lambda _url: (store, "prefix"))
        return cli("doctor", "s3://inbox/prefix", "--json")

    return call


def test_a_folder_is_well_and_left_clean(cli: Cli, folder: Path) -> None:
    ran = cli("doctor", "--json")
    assert ran.code == 0, ran
    assert [(row["check"], row["status"]) for row in ran.rows] == [(check, "ok") for check in CHECKS]
    assert not [path for path in (folder / "bucket" / "doctor").rglob("*") if path.is_file()]
    shown = cli("doctor")
    assert shown.out.startswith("ok    url and credentials  ")
    assert len({line.index(check) for line, check in zip(shown.out.splitlines(), CHECKS, strict=True)}) == 1
    assert "all checks passed" in shown.err


def test_a_store_that_ignores_conditions_fails_with_the_fix(examine: Examine) -> None:
    ran = examine(IgnoresConditions())
    failed = {row["check"]: row for row in ran.rows if row["status"] == "FAIL"}
    assert ran.code == 1
    assert {"conditional writes", "racing creates", "racing replaces"} <= set(failed)
    assert all("SeaweedFS" in row["fix"] for row in failed.values())


def test_a_store_that_is_wrong_only_in_a_race_is_caught(examine: Examine) -> None:
    ran = examine(RacyStore())
    assert ran.code == 1
    assert [row["check"] for row in ran.rows if row["status"] == "FAIL"] == ["racing creates"]


@pytest.mark.parametrize(
    ("store", "check", "code", "fix"),
    [
        (DeniesWrites(), "write an object", 1, "s3:PutObject"),
        (Silent(), "list objects", 5, "check the network"),
        (NoBucket(), "list objects", 1, "create the bucket"),
        (Forgetful(), "read it back", 1, "use a store"),
    ],
)
def test_what_fails_is_named_with_its_fix(
    examine: Examine, store: MemoryStore, check: str, code: int, fix: str
) -> None:
    ran = examine(store)
    failed = next(row for row in ran.rows if row["status"] == "FAIL")
    assert (failed["check"], ran.code) == (check, code)
    assert fix in failed["fix"]


def test_a_clock_that_is_off_is_a_warning(examine: Examine) -> None:
    import time

    ran = examine(MemoryStore(clock=lambda: time.time() - 3600))
    row = next(row for row in ran.rows if row["check"] == "clock")
    assert (ran.code, row["status"]) == (0, "warn")
    assert "3600.0 s ahead" in row["detail"]
    assert "NTP" in row["fix"]


def test_a_bad_url_is_a_finding(cli: Cli) -> None:
    ran = cli("doctor", "bogus://x", "--json")
    assert ran.code == 1
    assert (ran.row["status"], ran.row["kind"]) == ("FAIL", "invalid")


def test_a_folder_that_may_not_be_written_is_a_finding(cli: Cli) -> None:
    ran = cli("doctor", "file:///proc/bucketmq", "--json")
    assert ran.code != 0
    assert ran.rows[-1]["status"] == "FAIL"
    assert "folder" in ran.rows[-1]["fix"] and "network" not in ran.rows[-1]["fix"]
    assert "1 check failed" in ran.err
