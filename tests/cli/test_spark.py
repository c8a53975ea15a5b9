"""The verbs about what queues know of Spark queries. None of them needs Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bucketmq.client import Bucket
from cli.ran import Cli, spark_query


@pytest.fixture
def query(bucket: Bucket) -> None:
    bucket.queue("jobs").send_many(range(12))
    spark_query(bucket, source="jobs", reader="nightly", target="copies", txn="copying")


@pytest.mark.usefixtures("query")
def test_stats_show_readers_with_their_lag(cli: Cli) -> None:
    (reader,) = cli("stats", "jobs", "--json").row["readers"]
    assert (reader["name"], reader["holds"], reader["lag"]) == ("nightly", True, 7)
    assert reader["shards"] == [{"shard": 0, "offset": 5, "lag": 7}]
    shown = cli("stats", "jobs").out
    assert [line.split()[:2] for line in shown.splitlines() if line.split()[:1] == ["nightly"]] == [["nightly", "7"]]


@pytest.mark.usefixtures("query")
def test_a_reader_is_forgotten_after_asking(cli: Cli, bucket: Bucket) -> None:
    asked = cli("spark", "forget", "jobs", "nightly")
    assert (asked.code, len(bucket.queue("jobs").stats().readers)) == (2, 1)
    assert cli("spark", "forget", "jobs", "nightly", "--yes", "--json").row["was"]["offsets"] == {"0": 5}
    assert bucket.queue("jobs").stats().readers == ()
    again = cli("spark", "forget", "jobs", "nightly", "--yes", "--json")
    assert (again.code, again.error["kind"]) == (1, "not_found")


@pytest.mark.usefixtures("query")
def test_a_transaction_is_forgotten_after_asking(cli: Cli) -> None:
    assert cli("spark", "forget", "copies", "copying", "--txn", "--yes", "--json").row["was"]["batch"] == 3
    assert cli("spark", "forget", "copies", "copying", "--txn", "--yes").code == 1


@pytest.mark.usefixtures("query")
@pytest.mark.parametrize(
    "source", [("--queue", "copies", "--txn", "copying"), ("--queue", "jobs", "--reader", "nightly")]
)
def test_a_checkpoint_is_made_again(cli: Cli, folder: Path, source: tuple[str, ...]) -> None:
    batch = 3 if "--txn" in source else 0
    row = cli("spark", "restore-checkpoint", folder / "cp", *source, "--json").row
    assert (row["batch"], row["offsets"]) == (batch, {"jobs": {"0": 5}})
    offsets = (folder / "cp" / "offsets" / str(batch)).read_text().splitlines()
    assert json.loads(offsets[-1]) == {"queue": "jobs", "shards": {"0": 5}}
    again = cli("spark", "restore-checkpoint", folder / "cp", *source)
    assert (again.code, "is not empty" in again.err) == (2, True)


@pytest.mark.usefixtures("query")
def test_a_checkpoint_is_made_where_spark_would_look_for_it(cli: Cli, folder: Path) -> None:
    source = ("--queue", "copies", "--txn", "copying")
    assert cli("spark", "restore-checkpoint", f"file://{folder}/cp", *source).code == 0
    assert (folder / "cp" / "commits" / "3").exists()
    elsewhere = cli("spark", "restore-checkpoint", "hdfs://namenode/cp", *source)
    assert (elsewhere.code, "is not on this machine" in elsewhere.err) == (2, True)
    (folder / "a file").touch()
    assert "restore into a new folder" in cli("spark", "restore-checkpoint", folder / "a file", *source).err


@pytest.mark.parametrize("given", [(), ("--txn", "a", "--reader", "b")])
def test_a_checkpoint_is_made_from_one_of_the_two(cli: Cli, folder: Path, given: tuple[str, ...]) -> None:
    assert cli("spark", "restore-checkpoint", folder / "cp", "--queue", "jobs", *given).code == 2


@pytest.mark.usefixtures("query")
def test_orphans_are_removed(cli: Cli) -> None:
    assert cli("spark", "orphans", "jobs", "--json").row == {"queue": "jobs", "removed": 0}
