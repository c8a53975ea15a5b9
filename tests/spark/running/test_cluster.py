"""Real executors: on a standalone cluster that has no bucketmq but what is shipped, and on local-cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import bucketmq
from bucketmq.spark.setup.package import package
from spark.clusters import LIGHT, PYTHON, Cluster, bare_python, conf_options, run_driver, spark_home, standalone
from spark.conftest import Inbox

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),  # sessions on clusters take half a minute each on a busy machine
    pytest.mark.xdist_group("spark"),
    pytest.mark.usefixtures("java_here"),
]

DRIVER = Path(__file__).parents[1] / "drivers" / "copying.py"

ROWS = 6000

FEW_ROWS_A_BATCH = {"spark.sql.execution.arrow.maxRecordsPerBatch": "100"}
"""So that tasks are in the middle of their rows when something happens."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, java_here: None) -> Iterator[Cluster]:
    with standalone(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture
def filled(plain_inbox: Inbox) -> Inbox:
    queue = plain_inbox.bucket.queue("jobs", shards=2)
    plain_inbox.bucket.queue("copy", shards=2)
    for start in range(0, ROWS, 500):
        queue.send_many(({"n": n, "padding": "x" * 1000} for n in range(start, start + 500)), key=f"k{start}")
    return plain_inbox


def arguments(inbox: Inbox, **more: Any) -> str:
    given = {"url": inbox.url, "checkpoint": str(inbox.folder / "cp"), "folder": str(inbox.folder), **more}
    return json.dumps(given)


def copied(inbox: Inbox) -> list[int]:
    return sorted(body["n"] for body in inbox.bodies("copy"))


def test_executors_get_the_package_by_py_files_and_one_that_dies_loses_and_doubles_nothing(
    cluster: Cluster, filled: Inbox
) -> None:
    python = bare_python(filled.folder / "bare")
    package(filled.folder / "bucketmq.zip")
    done = run_driver(
        [
            spark_home() / "bin" / "spark-submit",
            *("--master", cluster.master),
            *("--py-files", "bucketmq.zip"),
            *conf_options({**LIGHT, **FEW_ROWS_A_BATCH, **SPECULATION}),
            DRIVER,
            arguments(filled, runs={"all": ["executor", "speculation"]}),
        ],
        filled.folder,
        # Spark plans streams in a process beside the driver that does not look into --py-files.
        variables={"PYSPARK_PYTHON": str(python), "PYTHONPATH": str(filled.folder / "bucketmq.zip")},
    )
    assert done["master"] == cluster.master
    assert "bucketmq.zip" in done["driver"]
    assert done["executors"] and all("bucketmq.zip" in each for each in done["executors"])
    assert (filled.folder / "executor-killed").exists()
    assert len(list(filled.folder.glob("attempt-*"))) >= 2
    assert done["batches"] == {"all": [2000, 2000, 2000]}
    assert copied(filled) == list(range(ROWS))


SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "100ms",
}


ORIGINS = """
import bucketmq, pyarrow as pa
from bucketmq.pipeline import FromQueue, Pipeline, ToQueue, stage

@stage(takes="n bigint", gives="n bigint, origin string")
def origin(rows):
    return rows.append_column("origin", pa.array([bucketmq.__file__] * rows.num_rows))

tell = Pipeline(name="tell", source=FromQueue("jobs", "n bigint"), stages=(origin,), target=ToQueue(queue="copy"))
"""


def test_the_command_sends_itself_to_a_cluster(cluster: Cluster, plain_inbox: Inbox) -> None:
    folder = plain_inbox.folder
    plain_inbox.bucket.queue("jobs").send_many({"n": n} for n in range(100))
    (folder / "origins.py").write_text(ORIGINS)
    python = bare_python(folder / "bare")
    run_driver(
        [
            *(Path(PYTHON).parent / "bucketmq", "pipeline", "run", "origins:tell", "--once"),
            *("--master", cluster.master, "--url", plain_inbox.url),
            *conf_options({**LIGHT, "spark.submit.pyFiles": "origins.py"}),
        ],
        folder,
        variables={"PYSPARK_PYTHON": str(python), "XDG_STATE_HOME": str(folder), "XDG_CACHE_HOME": str(folder)},
    )
    bodies = plain_inbox.bodies("copy")
    assert sorted(body["n"] for body in bodies) == list(range(100))
    (origin,) = {body["origin"] for body in bodies}
    assert ".zip/bucketmq/" in origin and str(folder / "bare") not in origin


def test_on_local_cluster_a_query_survives_its_executor_and_goes_on_after_its_driver(filled: Inbox) -> None:
    source = str(Path(bucketmq.__file__).parents[1])
    conf = {**LIGHT, **FEW_ROWS_A_BATCH, "spark.executorEnv.PYTHONPATH": source}
    more = {"master": "local-cluster[2,1,1024]", "conf": conf}
    variables = {"PYSPARK_PYTHON": PYTHON, "XDG_STATE_HOME": str(filled.folder)}
    first = arguments(filled, runs={"all": ["executor", "driver"]}, **more)
    assert run_driver([PYTHON, DRIVER, first], filled.folder, code=1, variables=variables) == {}
    assert (filled.folder / "executor-killed").exists() and (filled.folder / "driver-killed").exists()
    before = copied(filled)  # the batch whose executor died, and not the one whose driver did
    assert len(before) == len(set(before)) == 2000
    again = arguments(filled, runs={"all": []}, **more)
    done = run_driver([PYTHON, DRIVER, again], filled.folder, variables=variables)
    assert sum(done["batches"]["all"]) == ROWS - len(before)
    assert copied(filled) == list(range(ROWS))
