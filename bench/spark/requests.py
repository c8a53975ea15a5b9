"""Requests for a million rows: what planner and tasks ask of the store, counted in this process and without Spark.

The same calls that Spark makes, one after the other. Counts are exact; tests assert them on smaller queues.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from bench.places import folder
from bench.results import Measurement, measured
from bench.spark.sizes import Sizes
from bucketmq.spark.opened import opened
from bucketmq.spark.options import COLUMNS, Place, sink_options, source_options
from bucketmq.spark.read.reader import StreamReader
from bucketmq.spark.write.sink import BatchWriter

SCENARIO = "requests"
BATCH = 10_000
TASKS = 4

_TYPES: dict[str, DataType] = {
    "string": StringType(),
    "map<string,string>": MapType(StringType(), StringType()),
    "binary": BinaryType(),
    "timestamp": TimestampType(),
    "int": IntegerType(),
    "bigint": LongType(),
}
SCHEMA = StructType([StructField(name, _TYPES[kind]) for name, kind in COLUMNS.items()])
"""All columns of the source. Parsing their types needs a session, and there is none here."""


class Asked(msgspec.Struct, frozen=True):
    """Requests to the store, by what they are priced as."""

    reads: int
    writes: int
    lists: int

    @property
    def all(self) -> int:
        return self.reads + self.writes + self.lists


def for_a_million(spark: Any, sizes: Sizes) -> Iterator[Measurement]:
    rows = max(sizes.rows)
    with folder() as path:
        url = path.as_uri()
        scale = 1_000_000 / rows
        for what, asked in (("written", written(url, "jobs", rows)), ("read", read(url, "jobs", rows))):
            note = f"{asked.reads} reads, {asked.writes} writes, {asked.lists} lists for {rows:,} rows in {TASKS} tasks"
            yield measured(SCENARIO, f"a million rows {what}", [asked.all * scale], "requests", note=note)


def written(url: str, queue: str, rows: int) -> Asked:
    """Write so many rows of about 200 bytes as a batch of some tasks does, and publish them."""
    import pyarrow as pa

    schema = StructType().add("body", "string")
    writer = BatchWriter(sink_options({"path": url, "queue": queue, "txn": "bench"}), schema)
    place = Place(url, queue)
    before = _asked(place, create=True)
    body = pa.array(['{"n":0,"text":"' + "x" * 110 + '"}'] * BATCH)
    messages: list[Any] = []
    for task in range(TASKS):
        share = rows * (task + 1) // TASKS - rows * task // TASKS
        sizes = [min(BATCH, share - start) for start in range(0, share, BATCH)]
        messages.append(writer.write(pa.record_batch([body.slice(0, size)], ["body"]) for size in sizes))
    writer.commit(messages)
    return _since(before, _asked(place))


def read(url: str, queue: str, rows: int) -> Asked:
    """Plan a batch of all there is, and read it."""
    place = Place(url, queue)
    before = _asked(place)
    reader = StreamReader(source_options({"path": url, "queue": queue}, streaming=True), SCHEMA)
    start = reader.initialOffset()
    partitions = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    found = sum(batch.num_rows for partition in partitions for batch in reader.read(partition))
    if found != rows:
        raise AssertionError(f"{found} rows were read of {rows}")
    return _since(before, _asked(place))


def _asked(place: Place, *, create: bool = False) -> Asked:
    made = opened(place, create=create).meter.read()
    return Asked(made.reads, made.writes, made.list)


def _since(before: Asked, after: Asked) -> Asked:
    return Asked(after.reads - before.reads, after.writes - before.writes, after.lists - before.lists)
