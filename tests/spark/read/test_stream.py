"""Streams through Spark: limits, restarts, what is trimmed meanwhile, and drivers that are killed."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import StructType

import bucketmq
from bucketmq.spark.checkpoint import folder_of
from bucketmq.spark.opened import opened
from bucketmq.spark.options import source_options
from bucketmq.spark.read.reader import StreamReader
from bucketmq.spark.upkeep.restore import restore_checkpoint
from spark.conftest import Inbox


def counts(query: Any) -> list[int]:
    """Rows of each batch that had any."""
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def registers(inbox: Inbox, queue: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_bytes()) for path in inbox.file(f"queues/{queue}/spark").glob("*.json")]


def test_a_limit_of_rows_is_exact_and_available_now_ends_where_the_log_ended(inbox: Inbox) -> None:
    queue = inbox.bucket.queue("jobs", shards=3)
    for start in range(0, 250, 25):
        queue.send_many(range(start, start + 25), key=f"k{start}")
    query = inbox.stream_to(inbox.read_stream("jobs", maxRowsPerTrigger=60), "copy", "cp")
    assert counts(query) == [60, 60, 60, 60, 10]
    assert sorted(inbox.bodies("copy")) == list(range(250))
    last = query.recentProgress[-1].sources[0]
    assert json.loads(last.latestOffset) == json.loads(last.endOffset)


def test_a_query_goes_on_where_its_checkpoint_says_and_the_sink_repeats_how_far_it_read(inbox: Inbox) -> None:
    queue = inbox.bucket.queue("jobs")
    queue.send_many(range(100))
    inbox.stream_to(inbox.read_stream("jobs", maxRowsPerTrigger=70), "copy", "cp")
    queue.send_many(range(100, 130))
    query = inbox.stream_to(inbox.read_stream("jobs", maxRowsPerTrigger=70), "copy", "cp")
    assert counts(query) == [30]
    assert sorted(inbox.bodies("copy")) == list(range(130))
    (register,) = registers(inbox, "copy")
    assert (register["batch"], register["offsets"]) == (2, {"jobs": {"0": 130}})


def test_how_far_it_read_is_repeated_whatever_the_checkpoint_is_called(inbox: Inbox) -> None:
    inbox.bucket.queue("jobs").send_many(range(10))
    name = "a 100%20#1? checkpoint"
    rows = inbox._with(inbox.read_stream("jobs").writeStream, "copy", {})
    inbox.finish(rows.option("checkpointLocation", f"file://{inbox.folder}/{name}"))
    assert (inbox.folder / name / "commits" / "0").exists()  # what Spark makes of it
    (register,) = registers(inbox, "copy")
    assert register["offsets"] == {"jobs": {"0": 10}}


@pytest.mark.parametrize(
    ("location", "folder"),
    [
        ("cp", "cp"),
        ("/data/a:b", "/data/a:b"),
        ("file:/data/cp", "/data/cp"),
        ("file:///data/a%20b#c?d", "/data/a%20b#c?d"),
        ("file://elsewhere/cp", None),
        ("hdfs://namenode/cp", None),
        ("s3a://bucket/cp", None),
    ],
)
def test_the_folder_of_a_checkpoint_is_the_one_that_spark_means(location: str, folder: str | None) -> None:
    assert folder_of(location) == (None if folder is None else Path(folder))


@pytest.mark.parametrize("txn", [None, "copying"])
def test_a_lost_checkpoint_is_made_again_from_the_bucket(inbox: Inbox, txn: str | None) -> None:
    queue = inbox.bucket.queue("jobs", shards=2)
    queue.send_many(range(60), key="user-7")
    queue.send_many(range(60, 100), key="a")
    named = {} if txn is None else {"txn": txn}
    stop = {"maxRowsPerTrigger": 70, "startingOffsets": '{"1": 10}'}
    inbox.stream_to(inbox.read_stream("jobs", **stop), "copy", "cp", **named)
    shutil.rmtree(inbox.folder / "cp")
    (path,) = inbox.file("queues/copy/spark").glob("*.json")
    restored = restore_checkpoint(inbox.url, "copy", path.stem, inbox.folder / "cp")
    assert (restored.batch, restored.offsets) == (1, {"jobs": {"0": 40, "1": 60}})
    queue.send_many(range(100, 130), key="a")
    query = inbox.stream_to(inbox.read_stream("jobs"), "copy", "cp", **named)
    assert counts(query) == [30]
    assert sorted(inbox.bodies("copy")) == list(range(10, 130))
    assert len(registers(inbox, "copy")) == 1


def test_a_checkpoint_is_made_only_where_there_is_none_and_of_what_is_known(plain_inbox: Inbox) -> None:
    plain_inbox.bucket.queue("copy").send(1)
    with pytest.raises(bucketmq.NotFound, match="no register of 'copying'"):
        restore_checkpoint(plain_inbox.url, "copy", "copying", plain_inbox.folder / "new")
    with pytest.raises(bucketmq.Invalid, match="is not empty"):
        restore_checkpoint(plain_inbox.url, "copy", "copying", plain_inbox.folder)


def test_an_offset_inside_a_segment_is_found_without_its_base(plain_inbox: Inbox) -> None:
    queue = plain_inbox.bucket.queue("jobs")
    for _ in range(5):
        queue.send_many(range(10))
    start, end = ({"queue": "jobs", "shards": {"0": offset}} for offset in (17, 44))
    assert rows_of(reader(plain_inbox).partitions(start, end)) == [(0, offset) for offset in range(17, 44)]


def test_another_checkpoint_is_another_transaction(inbox: Inbox) -> None:
    inbox.bucket.queue("jobs").send_many(range(10))
    for checkpoint in ("cp1", "cp2"):
        inbox.stream_to(inbox.read_stream("jobs"), "copy", checkpoint)
    assert len(inbox.bodies("copy")) == 20
    assert len(registers(inbox, "copy")) == 2


def test_a_transaction_of_the_users_own_is_kept_across_checkpoints(inbox: Inbox) -> None:
    inbox.bucket.queue("jobs").send_many(range(10))
    for checkpoint in ("cp1", "cp2"):
        inbox.stream_to(inbox.read_stream("jobs"), "copy", checkpoint, txn="copying")
    assert len(inbox.bodies("copy")) == 10


def test_shards_that_come_in_mid_stream_are_read_from_their_beginning(inbox: Inbox) -> None:
    queue = inbox.bucket.queue("jobs", ordered=True)
    queue.send_many(range(50), key="k0")
    inbox.stream_to(inbox.read_stream("jobs", startingOffsets="latest"), "copy", "cp")
    queue.raise_shards(4)
    for n in range(20):
        queue.send_many([100 + n], key=f"k{n}")
    inbox.stream_to(inbox.read_stream("jobs"), "copy", "cp")
    assert sorted(inbox.bodies("copy")) == list(range(100, 120))


@pytest.mark.parametrize("strict", [True, False])
def test_what_is_trimmed_before_it_is_read_fails_the_query_or_not(
    inbox: Inbox, failing: Callable[..., str], strict: bool
) -> None:
    queue = inbox.bucket.queue("jobs", keep_seconds=0, dedup_seconds=0)
    for n in range(10):
        queue.send_many([n * 10 + m for m in range(10)])
    inbox.stream_to(inbox.read_stream("jobs"), "copy", "cp")
    for n in range(10, 20):
        queue.send_many([n * 10 + m for m in range(10)])
    while batch := queue.receive(1000):  # the subscription is done with it, so it may go
        for delivery in batch:
            delivery.ack()
    queue.flush()
    inbox.age("jobs", 10_000)
    queue.send_many(range(200, 210))
    assert queue.trim().segments == 20
    rows = inbox.read_stream("jobs", failOnDataLoss=str(strict).lower(), maxRowsPerTrigger=4)
    if strict:
        assert "offsets 100 to 199 of shard 0 of queue 'jobs'" in failing(inbox.stream_to, rows, "copy", "cp")
    else:
        assert counts(inbox.stream_to(rows, "copy", "cp")) == [4, 4, 2]
        assert sorted(inbox.bodies("copy")) == [*range(100), *range(200, 210)]


def test_a_running_query_sees_what_comes(inbox: Inbox) -> None:
    queue = inbox.bucket.queue("jobs")
    queue.send("first")
    rows = inbox.read_stream("jobs", pollInterval="100ms")
    query = (
        rows.writeStream.format("bucketmq")
        .option("path", inbox.url)
        .option("queue", "copy")
        .option("checkpointLocation", str(inbox.folder / "cp"))
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    try:
        query.processAllAvailable()
        queue.send("second")
        copy = inbox.bucket.queue("copy")
        found = [delivery.body for delivery in copy.receive(1, wait_seconds=30)]
        copy.flush()
        found += [delivery.body for delivery in copy.receive(1, wait_seconds=30)]
    finally:
        query.stop()
    assert found == ["first", "second"]


DRIVER = """
import os, signal, sys
sys.path.insert(0, {tests!r})
from spark.conftest import Inbox, session
from pathlib import Path
from bucketmq.spark.write.sink import StreamWriter
from bucketmq.spark.source import BucketMQSource

spark = session()
PIDS = [spark._jvm.java.lang.ProcessHandle.current().pid(), os.getpid()]
MEETING = {folder!r} + "/meeting"
os.mkfifo(MEETING)

class Dying(StreamWriter):
    def commit(self, messages, batchId):
        if batchId == 1 and self._options.place.queue == "before":
            open(MEETING, "w")  # until the other one has published
            signal.pause()
        super().commit(messages, batchId)
        if batchId == 1:
            open(MEETING)  # until the other one is about to publish
            for pid in PIDS:
                os.kill(pid, signal.SIGKILL)
            os._exit(1)

class DyingSource(BucketMQSource):
    @classmethod
    def name(cls):
        return "dying"

    def streamWriter(self, schema, overwrite):
        made = super().streamWriter(schema, overwrite)
        return Dying(made._options, made._schema)

spark.dataSource.register(DyingSource)
inbox = Inbox(Path({folder!r}), spark)
for name in ("before", "after"):
    rows = inbox.read_stream("jobs", maxRowsPerTrigger=100)
    options = dict(path=inbox.url, queue=name, checkpointLocation=str(inbox.folder / name))
    rows.writeStream.format("dying").options(**options).trigger(availableNow=True).start()
for query in spark.streams.active:
    query.awaitTermination()
"""


@pytest.mark.long
@pytest.mark.timeout(400)  # a Spark session of its own, killed, and the queries again in ours
def test_a_driver_killed_before_and_after_it_published_doubles_and_loses_nothing(inbox: Inbox) -> None:
    """Two queries of one driver, which is killed when one is about to publish its second batch and the other just has.

    What is left of either is what a driver of its own would leave; starting one takes longer than all the rest.
    """
    inbox.bucket.queue("jobs", shards=2)
    for n in range(30):
        inbox.bucket.queue("jobs").send_many([{"n": n * 10 + m} for m in range(10)], key=f"k{n}")
    for name in ("before", "after"):
        inbox.bucket.queue(name, shards=2)
    root = str(Path(__file__).parents[2])
    code = DRIVER.format(tests=root, folder=str(inbox.folder))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
    for name, published in (("before", 100), ("after", 200)):
        assert len(inbox.bodies(name)) == published
        inbox.stream_to(inbox.read_stream("jobs", maxRowsPerTrigger=100), name, name)
        assert sorted(body["n"] for body in inbox.bodies(name)) == list(range(300))
        (register,) = registers(inbox, name)
        assert (register["batch"], register["done"]) == (2, True)
        named = {part["key"] for _, part in _parts(inbox, name)}
        home = inbox.file(f"queues/{name}")
        written = {str(path.relative_to(home)) for path in (home / "parts").rglob("*.*")}
        assert named < written  # the orphans of the batch that ran twice


def _parts(inbox: Inbox, queue: str) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for path in inbox.file(f"queues/{queue}/log").rglob("*.ndjson"):
        found += [(path.name, part) for part in json.loads(path.read_bytes())["parts"]]
    return found


def reader(inbox: Inbox, **options: str) -> StreamReader:
    given = {"path": inbox.url, "queue": "jobs", **options}
    return StreamReader(source_options(given, streaming=True), StructType().add("id", "string"))


def test_a_checkpoint_ahead_of_the_log_is_refused(plain_inbox: Inbox) -> None:
    """It is of another bucket, or the bucket was restored: going on would pass over all that is sent until then."""
    plain_inbox.bucket.queue("jobs").send_many(range(10))
    with pytest.raises(bucketmq.Corrupt, match="up to offset 17 of shard 0, but its log ends at 10"):
        reader(plain_inbox).latestOffset({"queue": "jobs", "shards": {"0": 17}}, ReadAllAvailable())


def test_the_ends_are_asked_for_once_in_a_poll_interval(plain_inbox: Inbox) -> None:
    plain_inbox.bucket.queue("jobs").send_many(range(10))
    made = reader(plain_inbox, pollInterval="3600")
    start = made.initialOffset()
    end = made.latestOffset(start, ReadAllAvailable())
    meter = opened(source_options({"path": plain_inbox.url, "queue": "jobs"}, streaming=True).place).meter
    before = meter.read()
    for _ in range(100):
        assert made.latestOffset(end, ReadAllAvailable()) == end
        assert made.reportLatestOffset() == end
    assert meter.read() == before


def rows_of(partitions: Any) -> list[tuple[int, int]]:
    """Shard and offset of each row that the partitions cover."""
    pieces = [piece for partition in partitions for piece in partition.pieces]
    return sorted((piece.shard, offset) for piece in pieces for offset in range(piece.start, piece.end))


def test_partitions_are_a_function_of_the_two_offsets(plain_inbox: Inbox) -> None:
    queue = plain_inbox.bucket.queue("jobs", shards=3)
    for n in range(40):
        queue.send_many(range(n + 1), key=f"k{n}")
    made = reader(plain_inbox, pollInterval="0", minPartitions="4")
    start = made.initialOffset()
    steps = 0
    while (end := json.loads(json.dumps(made.latestOffset(start, ReadMaxRows(101))))) != start:
        planned, fresh = made.partitions(start, end), reader(plain_inbox, minPartitions="4").partitions(start, end)
        assert rows_of(planned) == rows_of(fresh)
        assert len(rows_of(planned)) in (101, 820 % 101)
        start, steps = end, steps + 1
    assert steps == 9


def test_a_limit_of_bytes_is_about_kept_and_makes_progress(plain_inbox: Inbox) -> None:
    queue = plain_inbox.bucket.queue("jobs")
    for _ in range(5):
        queue.send_many(["x" * 1000] * 100)
    made = reader(plain_inbox, pollInterval="0")
    start = made.initialOffset()
    ends = []
    while (end := made.latestOffset(start, ReadMaxBytes(150_000))) != start:
        ends.append(end["shards"]["0"])
        start = end
    assert ends[-1] == 500
    assert 4 <= len(ends) <= 5
