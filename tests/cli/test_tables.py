"""The verbs of tables, and what `doctor --deep` says of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bucketmq.client import Bucket
from cli.ran import Cli

pytest.importorskip("pyarrow")


@pytest.fixture
def users(bucket: Bucket) -> Bucket:
    rows = [{"name": "ada", "posts": 7, "face": b"\x00" * 9}, {"name": "bob\x1b[31m", "posts": 1, "face": None}]
    bucket.table("users", key="name").upsert(rows)
    bucket.table("numbers", key="id", group="bag").upsert([{"id": n, "bag": n % 2} for n in range(6)])
    return bucket


@pytest.mark.usefixtures("users")
def test_tables_are_listed_with_what_they_hold(cli: Cli) -> None:
    found = {row["name"]: row for row in cli("tables", "ls", "--json").rows}
    assert {name: (row["rows"], row["files"], row["version"]) for name, row in found.items()} == {
        "numbers": (6, 1, 1),
        "users": (2, 1, 1),
    }
    assert "users" in cli("tables", "ls").out


def test_without_tables_ls_says_so_and_exits_with_3(cli: Cli) -> None:
    assert cli("tables", "ls").code == 3


@pytest.mark.usefixtures("users")
def test_rows_are_shown_escaped_and_by_group(cli: Cli) -> None:
    shown = cli("tables", "show", "users")
    assert "posts: int64" in shown.out and "(9 bytes)" in shown.out
    assert "\x1b" not in shown.out
    assert [row["id"] for row in cli("tables", "show", "numbers", "--group", "1", "--json").rows] == [1, 3, 5]
    assert len(cli("tables", "show", "numbers", "-n", "2", "--json").rows) == 2
    wrong = cli("tables", "show", "numbers", "--group", "x")
    assert wrong.code != 0 and "is a whole number" in wrong.err
    assert "there is no table 'nothing'" in cli("tables", "show", "nothing").err


def test_a_table_is_removed_after_asking(cli: Cli, users: Bucket) -> None:
    assert cli("tables", "rm", "users", "--yes", "--json").row == {"table": "users", "rows": 2}
    assert users.tables() == ["numbers"]


def test_doctor_names_a_damaged_table(cli: Cli, users: Bucket, folder: Path) -> None:
    fine = cli("doctor", "--deep", "--json")
    assert fine.code == 0
    assert {row["table"] for row in fine.rows if "table" in row} == {"numbers", "users"}
    (file,) = users.table("users").snapshot().files
    found = next(each for each in folder.rglob(Path(file).name))
    found.unlink()
    ran = cli("doctor", "--deep")
    assert ran.code == 1
    assert "missing though the head names it" in ran.out.replace("\n", " ")
