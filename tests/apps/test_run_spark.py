"""All pipelines of an application in one session of Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from cli.ran import Cli
from spark.conftest import java_here, spark  # noqa: F401

from bucketmq.client import Bucket

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def shipping(spark: Any, installed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:  # noqa: F811
    """The application's module on Spark's workers, and checkpoints that go with the test."""
    spark.sparkContext.addPyFile(str(installed / "wordcount.py"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.usefixtures("shipping")
def test_all_pipelines_run_in_one_session_and_a_stage_is_run_again(cli: Cli, bucket: Bucket) -> None:
    bucket.put("notes/a.txt", "one two three")
    bucket.queue("lines").send({"text": "a line"})
    ran = cli("--json", "apps", "run", "wordcount", "--only", "spark", "--once")
    assert ran.code == 0, ran
    assert ran.row == {"part": "spark", "url": ""}
    assert bucket.get_json("counts/notes/a.txt.json")["words"] == 3
    assert [delivery.body for delivery in bucket.queue("listed").receive(10)] == ["a line"]

    bucket.delete("counts/notes/a.txt.json")
    told = cli("apps", "rerun", "wordcount", "--stage", "count", "--key", "notes/a.txt", "--json")
    assert (told.code, told.row["told"]) == (0, 1)
    assert cli("apps", "run", "wordcount", "--only", "counting", "--once").code == 0
    assert bucket.get_json("counts/notes/a.txt.json")["words"] == 3
    assert bucket.queue("listed").stats().ready == 0
