"""A micro-batch of one row: what each costs whatever is in it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

import bucketmq
from bench.places import folder
from bench.results import Measurement, measured
from bench.spark.queries import run
from bench.spark.reading import PARQUET
from bench.spark.sizes import Sizes

SCENARIO = "fixed"
WARM_UP = 3
"""Batches at the beginning of a query that do not count."""


def of_a_batch(spark: Any, sizes: Sizes) -> Iterator[Measurement]:
    count = sizes.batches + WARM_UP
    with folder() as path:
        url = (path / "bucket").as_uri()
        with bucketmq.connect(url, probe=False) as bucket:
            for number in range(count):
                bucket.queue("jobs").send({"n": number})
        spark.range(0, count, numPartitions=count).write.parquet(str(path / "files"))
        schema = spark.read.parquet(str(path / "files")).schema
        ours = spark.readStream.format("bucketmq").option("path", url).option("queue", "jobs")
        ours = ours.option("maxRowsPerTrigger", "1").load()
        theirs = spark.readStream.format("parquet").schema(schema).option("maxFilesPerTrigger", "1")
        theirs = theirs.load(str(path / "files"))
        copy = {"path": url, "queue": "copy"}
        cases: list[tuple[str, str, Any, str, dict[str, str]]] = [
            ("our source, no sink", "bucketmq", ours, "noop", {}),
            ("our source and sink", "bucketmq", ours, "bucketmq", copy),
            ("Spark's file source, no sink", PARQUET, theirs, "noop", {}),
            ("Spark's file source and sink", PARQUET, theirs, "parquet", {}),
        ]
        for what, subject, stream, sink, options in cases:
            rounds = [run(stream, sink, path, **options).batches[WARM_UP:] for _ in range(sizes.rounds)]
            runs = [statistics.median(each) * 1000 for each in rounds]
            yield measured(SCENARIO, what, runs, "ms", subject=subject)
