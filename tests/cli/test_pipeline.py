"""pipeline: names, options of pipelines' own, figures, failures, and signals."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import time
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyspark")

from docs.pages import ROOT, blocks
from spark.conftest import java_here, spark  # noqa: F401

import bucketmq
from bucketmq.bucket.port import Object
from bucketmq.cli.group import EXAMPLES
from bucketmq.cli.pipeline_metrics import PipelineFigures
from bucketmq.cli.pipeline_names import known
from bucketmq.client import Bucket
from bucketmq.metrics import MetricsPort
from bucketmq.spark.running.progress import Figures, Totals
from bucketmq.spark.setup.package import package
from cli.ran import Cli

NAMES = sorted(known())

pytestmark = pytest.mark.xdist_group("spark")

POSTS = """
import os, pathlib, signal, time
import pyarrow as pa
from bucketmq.metrics import MetricsPort
from bucketmq.pipeline import FromQueue, Pipeline, ToQueue, stage

HERE = pathlib.Path({folder!r})
DRIVER = {driver}

@stage(takes="n bigint", gives="n bigint")
def luck(rows):
    if 13 in rows.column("n").to_pylist():
        raise ValueError("unlucky")
    return rows

@stage(takes="n bigint", gives="n bigint")
def terminated(rows):
    if 0 in rows.column("n").to_pylist():
        os.kill(DRIVER, signal.SIGTERM)
    return rows

@stage(takes="n bigint", gives="n bigint")
def interrupted(rows):
    if 0 in rows.column("n").to_pylist():
        os.kill(DRIVER, signal.SIGINT)
    return rows

@stage(takes="n bigint", gives="n bigint")
def impatient(rows):
    os.kill(DRIVER, signal.SIGTERM)
    os.kill(DRIVER, signal.SIGINT)
    until = time.monotonic() + 60
    while not (HERE / "go").exists() and time.monotonic() < until:
        time.sleep(0.05)
    (HERE / "finished").touch()
    return rows

@stage(takes="n bigint", gives="n bigint")
def misshapen(rows):
    return rows.rename_columns(["m"])

def of(*, name: str, rows: int = 10, ratio: float = 0.5, loud: bool = False, odd: dict | None = None):
    "A pipeline with one stage."
    stages = dict(luck=luck, terminated=terminated, interrupted=interrupted, impatient=impatient, misshapen=misshapen)
    source, target = FromQueue("jobs", "n bigint"), ToQueue(queue="out")
    return Pipeline(name=f"{{name}}-{{rows}}", source=source, stages=(stages[name],), target=target)

classify = of(name="luck")
missing = Pipeline(name="missing", source=FromQueue("nothing"), target=ToQueue(queue="out", body="body"))
number = 7

def positional(rows):
    return classify

def chore(spark, bucket_url, *, options=None, times: int):
    return dict(rows=spark.range(times).count(), url=bucket_url, options=options)

def silent(spark, bucket_url):
    pass
"""


@pytest.fixture
def posts(folder: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The name of a module with pipelines, and twenty messages for them."""
    name = f"posts_{os.getpid()}_{folder.name.rsplit('-', 1)[1]}"  # workers keep modules: each test has its own
    # Beside what the test removes: a session goes on asking for the files that were added to it.
    (tmp_path / f"{name}.py").write_text(POSTS.format(folder=str(folder), driver=os.getpid()))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    bucket.queue("jobs").send_many({"n": n} for n in range(20))
    return name


@pytest.fixture
def shipping(spark: Any, posts: str, tmp_path: Path) -> str:  # noqa: F811
    """The module, on Spark's workers too."""
    spark.sparkContext.addPyFile(str(tmp_path / f"{posts}.py"))
    return posts


def out(bucket: Bucket) -> list[int]:
    reader = bucket.queue("out").subscription("all")
    found = []
    while batch := reader.receive(100):
        found += [delivery.body["n"] for delivery in batch]
        for delivery in batch:
            delivery.ack()
    return sorted(found)


def test_every_shipped_pipeline_is_there_and_shown(cli: Cli) -> None:
    ran = cli("pipeline", "ls", "--json")
    assert [row["name"] for row in ran.rows] == NAMES
    assert all(name in cli("pipeline", "ls").out for name in NAMES)


def test_show_tells_all_of_a_pipeline(cli: Cli, posts: str, tmp_path: Path) -> None:
    ran = cli("pipeline", "show", f"{posts}:classify", "--json")
    assert ran.row["source"]["queue"] == "jobs"
    assert ran.row["stages"] == [{"name": "luck", "takes": "n bigint", "gives": "n bigint"}]
    assert ran.row["targets"] == [{"kind": "ToQueue", "queue": "out", "text": False}]
    assert ran.row["dead_letters"] == "jobs.dead"
    assert Path(ran.row["checkpoint"]).is_relative_to(tmp_path / "state" / "bucketmq" / "checkpoints")
    shown = cli("pipeline", "show", f"{posts}:classify").out
    for part in ("stage  luck", "gives n bigint", "ToQueue(queue='out'", "jobs.dead", ran.row["checkpoint"]):
        assert part in shown


@pytest.mark.parametrize("name", NAMES)
def test_show_needs_no_bucket(cli: Cli, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BUCKETMQ_URL", raising=False)
    ran = cli("pipeline", "show", name)
    assert ran.code == 0 and ran.out.startswith(f"{name}: "), ran
    assert cli("pipeline", "show", name, "--json").row.get("checkpoint") is None


def test_moderation_is_judged_in_the_bucket_of_its_agents(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def checkpoint(name: str, *words: str) -> str:
        return Path(cli("pipeline", "show", name, "--json", *words).row["checkpoint"]).parent.name.rpartition("-")[0]

    assert checkpoint("moderation") == "bucket"
    monkeypatch.setenv("BUCKET_NAME", "posts")
    assert checkpoint("moderation") == "posts"
    assert checkpoint("moderation", "--url", "s3://other") == "other"


def test_buckets_and_pipelines_have_checkpoints_of_their_own(cli: Cli, posts: str) -> None:
    def checkpoint(url: str, name: str) -> str:
        shown: str = cli("pipeline", "show", f"{posts}:of", "--name", name, "--url", url, "--json").row["checkpoint"]
        return shown

    places = {
        checkpoint(url, name)
        for url in (
            "inbox",
            "file:///a/inbox",
            "s3://b/inbox",
            "s3://c/inbox",
            "s3://c/inbox?endpoint=http://127.0.0.1:9000",
        )
        for name in ("luck", "misshapen")
    }
    assert len(places) == 10
    secret = "s3://b/inbox?secret_access_key=hush&access_key_id=me"
    assert checkpoint(secret, "luck") == checkpoint("s3://b/inbox/", "luck")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("nothing", "there is no pipeline 'nothing'"),
        ("{posts}:nothing", "has no 'nothing'"),
        ("{posts}:number", "is not a pipeline but int"),
        ("nowhere:x", "there is no module 'nowhere'"),
        (":classify", "':classify' is not a module:attribute"),
        ("{posts}:", "is not a module:attribute"),
        ("{posts}:positional", "takes 'rows', which cannot be given here"),
        ("{posts}:classify --onec", "has no option --onec"),
        ("{posts}:of", "Missing option '--name'"),
        ("{posts}:of --name", "Option '--name' requires an argument"),
        ("{posts}:of --name luck --rows many", "Invalid value for '--rows'"),
        ("{posts}:of --name luck --loud=perhaps", "Option '--loud' does not take a value"),
        ("{posts}:of --name luck --odd x", "; its options are: --name, --rows, --ratio, --loud"),
        ("{posts}:classify --conf x", "--conf takes KEY=VALUE, not 'x'"),
    ],
)
def test_what_cannot_be_run_is_refused_before_spark_starts(cli: Cli, posts: str, words: str, said: str) -> None:
    ran = cli("pipeline", "run", *words.format(posts=posts).split())
    assert ran.code == 2
    assert said in ran.err and "starting Spark" not in ran.err


def test_options_of_its_own_are_put_in(cli: Cli, posts: str) -> None:
    ran = cli("pipeline", "show", f"{posts}:of", "--name=luck", "--rows", "7", "--ratio", "1.5", "--loud", "--json")
    assert ran.row["name"] == "luck-7"
    assert cli("pipeline", "show", f"{posts}:of", "--name=luck", "--no-loud", "--json").row["name"] == "luck-10"


def test_a_run_tells_of_batches_and_failing_rows_are_dead_letters(cli: Cli, bucket: Bucket, shipping: str) -> None:
    ran = cli("pipeline", "run", f"{shipping}:classify", "--once", "--json", "-o", "maxRowsPerTrigger=8")
    assert ran.code == 0, ran
    batches = [row for row in ran.rows if row["rows"]]
    assert [(row["batch"], row["rows"], row["lag"]) for row in batches] == [(0, 8, 12), (1, 8, 4), (2, 4, 0)]
    assert [row["dead_letters"] for row in batches] == [0, 1, 0]
    assert all(row["seconds"] > 0 and row["rows_per_second"] > 0 for row in batches)
    assert "20 rows in 3 batches, 1 dead letter" in ran.err
    assert out(bucket) == [n for n in range(20) if n != 13]
    assert "unlucky" in cli("dead", "jobs", "--full").out
    (entry,) = bucket.store.list("bucketmq/figures/reports/", after="", limit=9).entries
    report = bucket.store.get(entry.key)
    assert isinstance(report, Object)
    (process,) = msgspec.json.decode(report.body)["processes"].values()
    assert (process["done"]["rows"], process["done"]["dead"], process["ended"] > 0) == (20, 1, True)
    again = cli("pipeline", "run", f"{shipping}:classify", "--once", "--json")
    assert (again.code, [row for row in again.rows if row["rows"]]) == (0, [])


@pytest.mark.parametrize(("name", "code"), [("terminated", 0), ("interrupted", 130)])
def test_a_signal_lets_the_batch_in_flight_finish(
    cli: Cli, bucket: Bucket, shipping: str, name: str, code: int
) -> None:
    ran = cli("pipeline", "run", f"{shipping}:of", "--name", name, "-o", "maxRowsPerTrigger=10", "--json")
    assert ran.code == code, ran
    assert next(row["batch"] for row in ran.rows if row["rows"]) == 0
    first = out(bucket)
    assert first[:10] == list(range(10))
    ran = cli("pipeline", "run", f"{shipping}:of", "--name", name, "--once", "--json")
    assert ran.code == 0
    assert sorted(first + out(bucket)) == list(range(20))


def test_a_second_signal_stops_at_once(cli: Cli, bucket: Bucket, shipping: str, folder: Path) -> None:
    try:
        ran = cli("pipeline", "run", f"{shipping}:of", "--name", "impatient", "--json")
        assert not (folder / "finished").exists()
    finally:
        (folder / "go").touch()
    assert ran.code == 130
    assert [row for row in ran.rows if row["rows"]] == []
    assert "out" not in bucket.queues() or out(bucket) == []


def test_a_second_signal_ends_the_wait_for_spark_to_begin(
    cli: Cli, shipping: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)  # a server that does not answer
        raise AssertionError("the second signal changed nothing")

    monkeypatch.setattr("bucketmq.spark.running.run.start", slow)
    assert cli("pipeline", "run", f"{shipping}:classify").code == 130


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("of --name misshapen", 2, "stage 'misshapen'"),
        ("missing", 1, "there is no queue 'nothing'"),
    ],
)
def test_a_failure_is_told_without_java(cli: Cli, shipping: str, words: str, code: int, said: str) -> None:
    ran = cli("pipeline", "run", *f"{shipping}:{words} --once --json".split())
    assert ran.code == code, ran
    assert said in ran.error["message"]
    assert "\tat " not in ran.err and "java" not in ran.error["message"]


def test_a_chore_is_run_with_its_options(cli: Cli, shipping: str, url: str) -> None:
    ran = cli("pipeline", "run", f"{shipping}:chore", "--times", "5", "--json", "-o", "timeout=3")
    assert ran.row == {"rows": 5, "url": url, "options": {"timeout": "3"}}


def test_an_audit_is_told_as_a_table(cli: Cli, shipping: str) -> None:
    ran = cli("pipeline", "run", "audit", "--queue", "jobs")
    assert ran.code == 0, ran
    names, line = (each.split() for each in ran.out.splitlines())
    told = dict(zip(names, line, strict=True))
    assert (told["queue"], told["sent"], told["unsettled"], told["complete"]) == ("jobs", "20", "20", "yes")


def test_a_chore_may_have_nothing_to_tell(cli: Cli, shipping: str) -> None:
    ran = cli("pipeline", "run", f"{shipping}:silent")
    assert (ran.code, ran.out) == (0, "")


def test_metrics_are_what_was_told() -> None:
    figures, totals = PipelineFigures("classify"), Totals()
    with MetricsPort(figures.families, "127.0.0.1", 0) as page:
        for batch, lag in ((0, 12), (1, None)):
            totals.add(Figures(batch, "now", 8, 0.5, 16.0, lag, 1))
            figures.show(totals)
            with urllib.request.urlopen(page.url, timeout=10) as answer:
                text = answer.read().decode()
            lines = text.splitlines()
            assert f'bucketmq_pipeline_rows_total{{pipeline="classify"}} {8.0 * (batch + 1)}' in lines
            assert f'bucketmq_pipeline_dead_letters_total{{pipeline="classify"}} {batch + 1.0}' in lines
            assert ('bucketmq_pipeline_lag_messages{pipeline="classify"} 12.0' in lines) is (lag is not None)
        with pytest.raises(bucketmq.Invalid, match="choose another port"):
            MetricsPort(figures.families, "127.0.0.1", int(page.url.rsplit(":", 1)[1].partition("/")[0]))


def test_the_package_has_what_executors_need_and_is_the_same_every_time(tmp_path: Path, cli: Cli) -> None:
    ran = cli("pipeline", "package", tmp_path / "one.zip", "--json")
    package(tmp_path / "two.zip")
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    names = set(zipfile.ZipFile(tmp_path / "one.zip").namelist())
    assert {"bucketmq/spark/read/reader.py", "bucketmq/py.typed", "pyspark_bucketmq/__init__.py"} <= names
    assert not any("__pycache__" in name for name in names)
    assert not any(name.startswith(("bucketmq/cli/", "bucketmq/testing/", "bucketmq/server/")) for name in names)
    assert ran.row["files"] == len(names)
    assert cli("pipeline", "package", tmp_path / "x.tar").code == 2
    assert cli("pipeline", "package", tmp_path / "none" / "x.zip").code == 2


@pytest.mark.usefixtures("java_here")
@pytest.mark.long
@pytest.mark.timeout(200)  # a Spark session of its own
def test_in_a_process_of_its_own_standard_output_has_figures_alone(
    posts: str, bucket: Bucket, environment: dict[str, str], folder: Path, tmp_path: Path
) -> None:
    bucket.queue("jobs")
    (folder / "posts.py").write_text((tmp_path / f"{posts}.py").read_text())
    line = next(line for line in EXAMPLES["pipeline run"] if "--json" in line)
    done = subprocess.run(
        shlex.split(line),
        cwd=folder,
        env={**environment, "XDG_STATE_HOME": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(each) for each in done.stdout.splitlines()]
    assert sum(row["rows"] for row in rows) == 20
    said = done.stderr.splitlines()
    assert len(said) == 3, done.stderr  # starting, running, stopped: nothing of Spark's own
    assert (tmp_path / "state" / "bucketmq" / "logs" / "luck-10.log").stat().st_size > 0
    assert out(bucket) == [n for n in range(20) if n != 13]


@pytest.mark.usefixtures("java_here")
@pytest.mark.long
@pytest.mark.timeout(200)  # a Spark session of its own
def test_the_page_does_what_it_says(environment: dict[str, str], folder: Path, tmp_path: Path) -> None:
    found = blocks(ROOT / "docs" / "how-to" / "run-a-pipeline.md")
    for block, following in zip(found, [*found[1:], None], strict=True):
        if block.language != "sh" or "pip install" in block.code:
            continue
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.code],
            cwd=folder,
            env={**environment, "XDG_STATE_HOME": str(tmp_path / "state")},
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        assert done.returncode == 0, f"{block.where}: {done.stdout}{done.stderr}"
        if following is not None and following.language == "output":
            assert done.stdout.strip() == following.code.strip(), f"{block.where} prints something else"
