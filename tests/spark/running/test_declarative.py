"""A Declarative Pipeline: a queue as one of its tables, a queue as its sink, and no line of code to register either."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("grpc", reason="Declarative Pipelines are not installed: pip install 'pyspark[pipelines]'")
pytest.importorskip("yaml", reason="Declarative Pipelines are not installed: pip install 'pyspark[pipelines]'")

from spark.clusters import LIGHT, PYTHON, conf_options, run_driver
from spark.conftest import Inbox

FLOWS = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
URL = {url!r}


@dp.table
def orders():
    return spark.readStream.format("bucketmq").option("path", URL).option("queue", "orders").load()


dp.create_sink(name="large", format="bucketmq", options={{"path": URL, "queue": "large"}})


@dp.append_flow(target="large")
def large_orders():
    amount = "cast(get_json_object(body, '$.amount') as double)"
    return spark.readStream.table("orders").where(amount + " >= 50").select("key", "body")
"""

SPEC = """
name: orders
storage: file://{folder}/storage
libraries:
  - glob:
      include: flows/**
"""


@pytest.mark.long
@pytest.mark.timeout(450)  # a Spark session of its own
@pytest.mark.xdist_group("spark")
@pytest.mark.usefixtures("java_here")
def test_a_declarative_pipeline_reads_and_writes_queues(plain_inbox: Inbox) -> None:
    folder = plain_inbox.folder / "project"
    (folder / "flows").mkdir(parents=True)
    (folder / "flows" / "orders.py").write_text(FLOWS.format(url=plain_inbox.url))
    (folder / "spark-pipeline.yml").write_text(textwrap.dedent(SPEC.format(folder=folder)))
    plain_inbox.bucket.queue("orders").send_many({"amount": n} for n in range(100))
    command = [Path(PYTHON).parent / "spark-pipelines", *conf_options(LIGHT), "run"]
    run_driver(command, folder, variables={"PYSPARK_PYTHON": PYTHON})
    assert sorted(body["amount"] for body in plain_inbox.bodies("large")) == list(range(50, 100))
