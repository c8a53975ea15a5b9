"""All pipelines of an application in one session of Spark."""

from __future__ import annotations

import sys
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


@pytest.mark.usefixtures("shipping")
def test_a_pipeline_whose_python_started_too_late_is_started_again_and_the_others_go_on(
    cli: Cli,
    bucket: Bucket,
    spark: Any,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Spark waits ten seconds for it, however busy the machine is."""
    python = tmp_path / "python"
    python.write_text(
        f"""#!/bin/sh
        case "$*" in *streaming_source_runner*) mkdir {tmp_path}/never_answered 2>/dev/null && exit 1 ;; esac
        exec {sys.executable} "$@"
        """
    )
    python.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))
    bucket.put("notes/a.txt", "one two three")
    bucket.queue("lines").send({"text": "a line"})
    ran = cli("--json", "apps", "run", "wordcount", "--only", "spark", "--once")
    assert ran.code == 0, ran
    assert (tmp_path / "never_answered").exists()
    assert "did not answer within ten seconds; run less at a time. It is started again" in ran.err
    assert bucket.get_json("counts/notes/a.txt.json")["words"] == 3
    assert [delivery.body for delivery in bucket.queue("listed").receive(10)] == ["a line"]
