"""Streams in which something goes wrong in the middle. After each: rows in are rows out, all distinct."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.types import StructType

import bucketmq
from bucketmq.spark.options import sink_options
from bucketmq.spark.source import BucketMQSource
from bucketmq.spark.write.sink import StreamWriter
from spark.conftest import Inbox

ROWS = 90


def send_some(inbox: Inbox, start: int = 0, end: int = ROWS, **settings: Any) -> Any:
    queue = inbox.bucket.queue("jobs", **settings)
    for first in range(start, end, 10):
        queue.send_many(range(first, first + 10), key=f"k{first}")
    return queue


def publications(inbox: Inbox) -> int:
    """Segments of the copy: one for each batch, in a queue of one shard."""
    return len(list(inbox.file("queues/copy/log/0").glob("*.ndjson")))


def only_once(folder: Path, name: str) -> Callable[[], bool]:
    """True for the first who asks, whichever process that is."""
    path = str(folder / name)

    def first() -> bool:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    return first


def dying_source(when: str, first: Callable[[], bool]) -> type[BucketMQSource]:
    """The source, with a sink whose process is killed while it commits batch 1, the first time.

    Commits run in a process of their own, beside the driver's JVM. Spark is told of a failure, aborts the batch, and
    ends the query: whatever the commit had done stays done, and nothing of it is in the checkpoint.
    """

    class Dying(StreamWriter):
        def commit(self, messages: Any, batchId: int) -> None:
            dies = batchId == 1 and first()
            if not dies or when == "after":
                super().commit(messages, batchId)
            if dies:
                os.kill(os.getpid(), signal.SIGKILL)

    class DyingSource(BucketMQSource):
        @classmethod
        def name(cls) -> str:
            return "dying"

        def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
            return Dying(sink_options(self.options), schema)

    return DyingSource


def kill_a_commit(inbox: Inbox, when: str) -> Callable[[], Any]:
    """A copy of `jobs` in batches of 30 rows that dies in the second; what it is called with starts it, or again."""
    inbox.spark.dataSource.register(dying_source(when, only_once(inbox.folder, "died")))

    def run() -> Any:
        rows = inbox.read_stream("jobs", maxRowsPerTrigger=30)
        writer = rows.writeStream.format("dying").option("path", inbox.url).option("queue", "copy")
        return inbox.finish(writer.option("checkpointLocation", str(inbox.folder / "cp")))

    return run


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_commit_that_is_killed_before_or_after_publishing_doubles_and_loses_nothing(
    inbox: Inbox, failing: Callable[..., str], when: str
) -> None:
    send_some(inbox)
    run = kill_a_commit(inbox, when)
    failing(run)
    assert publications(inbox) == (1 if when == "before" else 2)
    assert run().lastProgress.batchId == 2
    assert sorted(inbox.bodies("copy")) == list(range(ROWS))
    assert publications(inbox) == 3


def test_a_corrupt_segment_in_mid_stream_is_named_and_never_taken_for_lost(
    inbox: Inbox, failing: Callable[..., str]
) -> None:
    send_some(inbox)
    path = inbox.file(f"queues/jobs/log/0/{40:020}.ndjson")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] + b"\n" * whole[len(whole) // 2 :].count(b"\n"))
    rows = inbox.read_stream("jobs", maxRowsPerTrigger=30, failOnDataLoss="false")
    text = failing(inbox.stream_to, rows, "copy", "cp")
    assert "Corrupt" in text
    assert f"{40:020}.ndjson" in text
    assert sorted(inbox.bodies("copy")) == list(range(30))  # the batch before it
    path.write_bytes(whole)
    inbox.stream_to(rows, "copy", "cp")
    assert sorted(inbox.bodies("copy")) == list(range(ROWS))


def test_a_task_that_fails_in_mid_stream_is_tried_again_and_its_rows_arrive_once(inbox: Inbox) -> None:
    send_some(inbox)
    first = only_once(inbox.folder, "failed")

    def stumble(batches: Any) -> Any:
        yield from batches
        if first():
            raise RuntimeError("after all rows were handed on")

    rows = inbox.read_stream("jobs", columns="key,body", maxRowsPerTrigger=50)
    inbox.stream_to(rows.mapInArrow(stumble, rows.schema), "copy", "cp")
    assert (inbox.folder / "failed").exists()
    assert sorted(inbox.bodies("copy")) == list(range(ROWS))


def test_of_attempts_that_all_wrote_their_parts_the_one_that_spark_names_is_published(plain_inbox: Inbox) -> None:
    """As with speculation: both attempts end well, and Spark's commit names one. The other may even come later."""
    options = sink_options({"path": plain_inbox.url, "queue": "copy", "txn": "t"})
    writer = StreamWriter(options, StructType().add("body", "string"))
    rows = [pa.record_batch({"body": pa.array([str(n) for n in range(start, start + 10)])}) for start in (0, 10)]
    loser, winner, other = writer.write(iter(rows[:1])), writer.write(iter(rows[:1])), writer.write(iter(rows[1:]))
    writer.commit([winner, other], 0)
    writer.abort([loser, None], 0)
    writer.write(iter(rows[:1]))
    writer.commit([loser, other], 0)  # the batch once more, with what another attempt made
    assert sorted(plain_inbox.bodies("copy")) == list(range(20))
    parts = list(plain_inbox.file("queues/copy/parts").rglob("*.ndjson"))
    assert len(parts) == 4  # two of them orphans


@pytest.mark.parametrize("strict", [True, False])
def test_what_is_trimmed_while_a_query_has_it_planned_fails_the_query_or_not(
    inbox: Inbox, failing: Callable[..., str], strict: bool
) -> None:
    """The query is slow: it knows the segments of its next batches, and then they expire."""
    queue = send_some(inbox, main=False, keep_seconds=0, dedup_seconds=0, expire_seconds=60)
    found: list[int] = []

    def slow(rows: Any, batch: int) -> None:
        found.extend(int(row.body) for row in rows.collect())
        if batch == 0:
            inbox.age("jobs", 10_000)
            queue.send_many(range(ROWS, ROWS + 10), key="k")
            assert queue.trim().segments == ROWS // 10

    rows = inbox.read_stream("jobs", maxRowsPerTrigger=30, failOnDataLoss=str(strict).lower(), columns="body")
    writer = rows.writeStream.foreachBatch(slow).option("checkpointLocation", str(inbox.folder / "cp"))
    if strict:
        assert "trimmed before it was read" in failing(inbox.finish, writer)
        assert found == list(range(30))
    else:
        inbox.finish(writer)
        inbox.finish(writer)  # what came after the first began
        assert found == [*range(30), *range(ROWS, ROWS + 10)]


def test_shards_that_are_raised_under_a_running_query_are_read(inbox: Inbox) -> None:
    queue = send_some(inbox, 0, 30, ordered=True)
    rows = inbox.read_stream("jobs", pollInterval="0", maxRowsPerTrigger=20)
    writer = rows.writeStream.format("bucketmq").option("path", inbox.url).option("queue", "copy")
    query = writer.option("checkpointLocation", str(inbox.folder / "cp")).start()
    try:
        query.processAllAvailable()
        queue.raise_shards(3)
        send_some(inbox, 30, ROWS)
        query.processAllAvailable()
        assert query.exception() is None
    finally:
        query.stop()
    assert len(bucketmq.connect(inbox.url).queue("jobs").tails()) == 3
    assert sorted(inbox.bodies("copy")) == list(range(ROWS))
