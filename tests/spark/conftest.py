"""One Spark session for all tests, and a bucket in a folder for each."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import bucketmq
from bucketmq.spark.setup import java
from bucketmq.spark.setup.session import local_settings

SHIPPED = str(Path(__file__).parent / "shipped")
"""Modules that executors find, too; `sitecustomize` is imported by each of Spark's Python processes when it starts."""

sys.path.append(SHIPPED)

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM that lives for minutes: it compiles quickly instead of well, and collects without threads of its own."""

SETTINGS = {
    **local_settings(),
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": QUICK_JVM,
    "spark.sql.shuffle.partitions": "2",
}


def session() -> Any:
    """A session as small as it gets. A task is tried four times, as on a cluster."""
    sql = pytest.importorskip("pyspark.sql")
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = SHIPPED
    builder = sql.SparkSession.builder.master("local[2,4]").appName("tests")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


@pytest.fixture(scope="session")
def java_here() -> None:
    """There is a Java. Without one a laptop leaves these tests out; where everything is to be tested they fail."""
    try:
        java.find()
    except bucketmq.Unsupported as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def spark(java_here: None) -> Iterator[Any]:
    made = session()
    yield made
    made.stop()


class Inbox:
    """A bucket, in a folder unless it has a URL, and how Spark reads and writes it."""

    def __init__(self, folder: Path, spark: Any = None, url: str | None = None) -> None:
        self.url = url or str(folder / "inbox")
        self.folder = folder
        self.spark = spark
        self.bucket = bucketmq.connect(self.url)

    def read(self, queue: str, **options: Any) -> Any:
        return self._with(self.spark.read, queue, options).load()

    def read_stream(self, queue: str, **options: Any) -> Any:
        return self._with(self.spark.readStream, queue, options).load()

    def write(self, rows: Any, queue: str, **options: Any) -> None:
        self._with(rows.write, queue, options).mode("append").save()

    def stream_to(self, rows: Any, queue: str, checkpoint: str, **options: Any) -> Any:
        """Run a stream until it has read what there is."""
        options["checkpointLocation"] = str(self.folder / checkpoint)
        return self.finish(self._with(rows.writeStream, queue, options))

    def finish(self, writer: Any) -> Any:
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return query

    def _with(self, made: Any, queue: str, options: dict[str, Any]) -> Any:
        made = made.format("bucketmq").option("path", self.url).option("queue", queue)
        for name, value in options.items():
            made = made.option(name, value)
        return made

    def file(self, key: str) -> Path:
        return Path(self.url) / key

    def age(self, queue: str, seconds: float) -> None:
        """Make everything in a queue's log so much older."""
        for path in self.file(f"queues/{queue}/log").rglob("*.ndjson"):
            stat = path.stat()
            os.utime(path, (stat.st_atime - seconds, stat.st_mtime - seconds))

    def bodies(self, queue: str) -> list[Any]:
        """Every body in a queue, read without Spark, on a subscription of its own."""
        heads = self.file(f"queues/{queue}/heads")
        name = f"reader-{len(list(heads.iterdir())) if heads.exists() else 0}"
        reader = self.bucket.queue(queue).subscription(name)
        found = []
        while batch := reader.receive(1000):
            found += [delivery.body for delivery in batch]
            for delivery in batch:
                delivery.ack()
        return found


@pytest.fixture
def inbox(tmp_path: Path, spark: Any) -> Iterator[Inbox]:
    made = Inbox(tmp_path, spark)
    yield made
    made.bucket.close()


@pytest.fixture
def plain_inbox(tmp_path: Path) -> Iterator[Inbox]:
    """For tests of what runs inside Spark, without it."""
    made = Inbox(tmp_path)
    yield made
    made.bucket.close()


@pytest.fixture
def failing() -> Callable[..., str]:
    """Runs what must fail; the text of the error that a user sees."""

    def run(action: Callable[..., Any], *args: Any, **options: Any) -> str:
        with pytest.raises(Exception) as caught:  # Spark wraps errors in several kinds of its own
            action(*args, **options)
        return str(caught.value)

    return run
