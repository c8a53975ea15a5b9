"""Spark Connect: the same source, sink and pipelines where there is no JVM behind the session object."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("grpc", reason="Spark Connect's client is not installed: pip install 'pyspark[connect]'")

from spark.clusters import PYTHON, run_driver
from spark.conftest import Inbox

DRIVER = Path(__file__).parents[1] / "drivers" / "connecting.py"


@pytest.mark.long
@pytest.mark.timeout(450)  # a Spark session of its own
@pytest.mark.xdist_group("spark")
@pytest.mark.usefixtures("java_here")
def test_reads_writes_streams_and_pipelines_work_through_connect(plain_inbox: Inbox) -> None:
    plain_inbox.bucket.queue("jobs").send_many({"n": n} for n in range(10))
    done = run_driver(
        [PYTHON, DRIVER, plain_inbox.url, str(plain_inbox.folder)],
        plain_inbox.folder,
        variables={"PYSPARK_PYTHON": PYTHON},
    )
    assert done["session"] == "pyspark.sql.connect.session"
    assert [json.loads(body)["n"] for body in done["read"]] == list(range(10))
    assert sorted(body["n"] for body in plain_inbox.bodies("written")) == list(range(5))
    for queue in ("copy", "piped"):
        assert sorted(body["n"] for body in plain_inbox.bodies(queue)) == list(range(10))
    assert done["told"][0] == [10, 0]
