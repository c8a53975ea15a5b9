"""The same rows as a queue, as JSON files and as Parquet files, each written by Spark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from bench.backlog import write_hint
from bench.payload import TEXT, body
from bench.spark import bare
from bucketmq.log import documents, segment
from bucketmq.log.layout import QueueKeys
from bucketmq.queue.message import Message
from bucketmq.queue.settings import Settings

QUEUE = "orders"
STRUCTS = "structs"
BODY_SCHEMA = "n bigint, kind string, user string, text string, price double, tags array<string>"


class Rows(msgspec.Struct, frozen=True):
    """Where they lie."""

    spark: Any
    count: int
    folder: Path

    @property
    def url(self) -> str:
        return (self.folder / "bucket").as_uri()

    def queue(self, **options: str) -> Any:
        """The stream of our source."""
        made = self.spark.readStream.format("bucketmq").option("path", self.url).option("queue", QUEUE)
        for name, value in options.items():
            made = made.option(name, value)
        return made.load()

    def files(self, kind: str) -> Any:
        """The stream of Spark's own source over files of this kind."""
        return self._stream(kind, kind, "parquet")

    def structs(self) -> Any:
        """The stream of Parquet files with keys, and bodies that are structs already."""
        return self._stream("parquet", STRUCTS, STRUCTS)

    def batches(self) -> Any:
        """The stream of a source that has the rows as Arrow batches and does nothing but hand them on."""
        schema = self.spark.read.parquet(str(self.folder / "parquet")).schema
        self.spark.dataSource.register(bare.BareSource)
        return self.spark.readStream.format(bare.FORMAT).schema(schema).load(str(self.folder / "arrow"))

    def _stream(self, kind: str, name: str, like: str) -> Any:
        schema = self.spark.read.parquet(str(self.folder / like)).schema
        return self.spark.readStream.format(kind).schema(schema).load(str(self.folder / name))

    def lines(self) -> Any:
        """The stream of Spark's JSON source over our own lines, with the bodies parsed."""
        schema = f"id string, at timestamp, key string, body struct<{_as_struct(BODY_SCHEMA)}>"
        folder = self.folder / "bucket" / "queues" / QUEUE / "parts"
        return (
            self.spark.readStream.format("json").schema(schema).option("recursiveFileLookup", "true").load(str(folder))
        )


def make(spark: Any, count: int, folder: Path) -> Rows:
    """Write `count` rows of about 200 bytes in each format, in as many files as the machine has cores, twice."""
    made = Rows(spark, count, folder)
    n = "id as n, 'order.created' as kind, concat('user-', id % 5000) as user"
    fields = f"{n}, '{TEXT}' as text, 12.5D as price, array('a', 'b') as tags"
    rows = spark.range(0, count, numPartitions=2 * (os.cpu_count() or 1)).selectExpr(
        "concat('user-', id % 5000) as key", f"struct({fields}) as body"
    )
    rows.write.format("bucketmq").option("path", made.url).option("queue", QUEUE).mode("append").save()
    there = spark.read.format("bucketmq").option("path", made.url).option("queue", QUEUE).load()
    for kind in ("json", "parquet"):
        there.write.format(kind).save(str(folder / kind))
    _write_batches(there, folder / "arrow")
    parsed = there.selectExpr("key", f"from_json(body, '{BODY_SCHEMA}') as body")
    parsed.write.format("parquet").save(str(folder / STRUCTS))
    return made


def _write_batches(rows: Any, folder: Path) -> None:
    """The rows in Arrow's own format, a file for each partition, as large batches as our source makes."""
    folder.mkdir()

    def write(batches: Any) -> Any:
        import uuid

        import pyarrow as pa

        opened = None
        for batch in batches:
            opened = opened or pa.ipc.new_stream(str(folder / f"{uuid.uuid4()}.arrow"), batch.schema)
            opened.write_batch(batch)
        if opened is not None:
            opened.close()
        yield from ()

    rows.mapInArrow(write, "nothing int").count()


def write_log(root: Path, queue: str, segments: int, per_segment: int) -> None:
    """A queue of `segments` equally large segments as files of a folder store, quickly and without Spark."""
    keys = QueueKeys("", queue)
    (root / keys.log(0)).mkdir(parents=True)
    (root / keys.settings).write_bytes(documents.encode(Settings()))
    at = segment.time_text(0.0)
    for number in range(segments):
        base = number * per_segment
        messages = [Message(f"bench-{n}", at, None, None, body(n)) for n in range(base, base + per_segment)]
        (root / keys.segment(0, base)).write_bytes(segment.encode(messages))
    write_hint(root, queue, (segments - 1) * per_segment)


def _as_struct(fields: str) -> str:
    return ", ".join(":".join(field.split(" ")) for field in fields.split(", "))
