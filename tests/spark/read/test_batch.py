"""Batch reads and writes through Spark."""

from __future__ import annotations

import json
import pickle
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import bucketmq
from bucketmq.spark import register
from spark.conftest import Inbox


def test_what_was_sent_is_read(inbox: Inbox) -> None:
    inbox.bucket.queue("jobs").send_many([{"n": n} for n in range(50)], key="user-7", headers={"trace": "t-1"})
    inbox.bucket.queue("jobs").send(b"\x00bytes")
    rows = inbox.read("jobs").orderBy("offset").collect()
    assert [row.offset for row in rows] == list(range(51))
    assert [json.loads(row.body) for row in rows[:50]] == [{"n": n} for n in range(50)]
    assert (rows[0].key, rows[0].headers, rows[0].shard) == ("user-7", {"trace": "t-1"}, 0)
    assert (rows[50].body, bytes(rows[50].body_bytes)) == (None, b"\x00bytes")
    assert abs(rows[0].sent_at.replace(tzinfo=UTC).timestamp() - time.time()) < 3600


def test_the_source_is_found_by_its_name_and_by_registering_it(inbox: Inbox) -> None:
    inbox.bucket.queue("jobs").send(1)
    assert inbox.read("jobs").count() == 1
    register(inbox.spark)
    assert inbox.read("jobs").count() == 1


def test_what_was_written_is_received(inbox: Inbox) -> None:
    inbox.bucket.queue("out", shards=4)
    rows = inbox.spark.range(1000).selectExpr(
        "struct(id as n, id % 2 = 0 as even) as body", "cast(id % 10 as string) as key", "map('a', 'b') as headers"
    )
    inbox.write(rows, "out")
    found = inbox.bodies("out")
    assert sorted(body["n"] for body in found) == list(range(1000))
    assert found[0]["even"] == (found[0]["n"] % 2 == 0)
    read = inbox.read("out").collect()
    assert len({(row.key, row.shard) for row in read}) == len({row.key for row in read}) == 10  # one shard for each key
    assert read[0].headers == {"a": "b"}
    assert not list(inbox.file("queues/out/spark").glob("*"))  # a write without transaction leaves no register


def test_rows_of_one_queue_can_be_written_to_another_as_they_are(inbox: Inbox) -> None:
    sent = [{"n": 1}, "text", None, b"\x00", [1.5]]
    for body in sent:
        inbox.bucket.queue("jobs").send(body, key="k", headers={"a": "b"})
    inbox.write(inbox.read("jobs", minPartitions=1), "copy")
    assert inbox.bodies("copy") == sent


def test_a_write_under_a_transaction_appends_once(inbox: Inbox) -> None:
    rows = inbox.spark.range(100).selectExpr("id as body")
    for _ in range(2):
        inbox.write(rows, "out", txn="load-1")
    assert sorted(inbox.bodies("out")) == list(range(100))
    inbox.write(rows, "out", txn="load-1", batch=1)
    inbox.write(rows, "out", txn="load-1", batch=0)
    assert len(inbox.bodies("out")) == 200


def test_a_range_is_read_by_offsets_and_by_time(inbox: Inbox) -> None:
    queue = inbox.bucket.queue("jobs", shards=2)
    queue.send_many(range(10), key="user-7")
    queue.send_many(range(10, 20), key="a")
    inbox.age("jobs", 1000)
    noon = datetime.fromtimestamp(time.time() - 500, UTC).isoformat()
    queue.send_many(range(20, 25), key="user-7")

    def bodies(**options: Any) -> list[int]:
        return sorted(int(row.body) for row in inbox.read("jobs", **options).collect())

    assert bodies(startingOffsets='{"1": 8}', endingOffsets='{"0": 3, "1": 12}') == [8, 9, 10, 11, 12, 20, 21]
    assert bodies(startingOffsets=noon) == list(range(20, 25))
    assert bodies(endingOffsets=noon) == list(range(20))
    assert bodies(startingOffsets='{"0": 10, "1": 15}') == []


def test_the_example_of_the_class_prints_what_it_says(inbox: Inbox, capsys: pytest.CaptureFixture[str]) -> None:
    import inspect

    from bucketmq.spark.source import BucketMQSource

    text = inspect.getdoc(BucketMQSource) or ""
    code, output = text.split("```python\n")[1].split("```")[0], text.split("```text\n")[1].split("```")[0]
    exec(code.replace("/data/inbox", inbox.url), {"spark": inbox.spark, "bucketmq": bucketmq})
    assert capsys.readouterr().out.strip() == output.strip()


def test_a_task_that_fails_and_runs_again_writes_its_rows_once(inbox: Inbox) -> None:
    def sometimes(batches: Any) -> Any:
        from pyspark import TaskContext

        yield from batches
        context = TaskContext.get()
        if context.attemptNumber() < 2 and context.partitionId() == 1:
            raise RuntimeError("bad luck")

    rows = inbox.spark.range(0, 300, 1, 3).selectExpr("id as body").mapInArrow(sometimes, "body long")
    inbox.write(rows, "out")
    assert sorted(inbox.bodies("out")) == list(range(300))


def test_a_schema_of_the_users_own_may_leave_columns_out_but_not_change_them(
    inbox: Inbox, failing: Callable[..., str]
) -> None:
    inbox.bucket.queue("jobs").send({"n": 1})
    made = inbox.spark.read.format("bucketmq").option("path", inbox.url).option("queue", "jobs")
    (row,) = made.schema("offset long, body string").load().collect()
    assert row.asDict() == {"offset": 0, "body": '{"n":1}'}
    text = failing(lambda: made.schema("offset string").load().collect())
    assert "no column 'offset' of type string" in text
    text = failing(lambda: made.schema("id string, _rescued string").load().collect())
    assert "no column '_rescued' of type string" in text  # without a body nothing is left of one


def test_a_session_whose_timestamps_have_no_zone_reads_the_same(inbox: Inbox) -> None:
    inbox.bucket.queue("jobs").send({"n": 1})
    (before,) = inbox.read("jobs").collect()
    inbox.spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        assert inbox.read("jobs").collect() == [before]
    finally:
        inbox.spark.conf.unset("spark.sql.timestampType")


def test_columns_and_a_schema_of_the_body(inbox: Inbox) -> None:
    queue = inbox.bucket.queue("jobs")
    queue.send_many([{"user": "a", "n": 1}, {"user": 2, "n": 2, "new": True}, "text"])
    frame = inbox.read("jobs", columns="offset,body", bodySchema="user string, n int, at timestamp, m map<string,int>")
    assert frame.columns == ["offset", "body", "_rescued"]
    rows = frame.orderBy("offset").collect()
    assert [row.body and (row.body.user, row.body.n) for row in rows] == [("a", 1), (None, 2), None]
    assert [row._rescued and json.loads(row._rescued) for row in rows] == [None, {"user": 2, "new": True}, "text"]


def test_rows_are_divided_into_partitions_also_inside_a_segment_and_inside_parts(inbox: Inbox) -> None:
    inbox.bucket.queue("jobs").send_many(range(1000))
    inbox.write(inbox.spark.range(1000, 3000, 1, 3).selectExpr("id as body"), "jobs")
    frame = inbox.read("jobs", minPartitions=7)
    assert frame.rdd.getNumPartitions() == 7
    rows = frame.collect()
    assert sorted(int(row.body) for row in rows) == list(range(3000))
    assert sorted(row.offset for row in rows) == list(range(3000))


def test_an_empty_queue_is_an_empty_table(inbox: Inbox) -> None:
    inbox.bucket.queue("jobs").stats()
    assert inbox.read("jobs").collect() == []
    inbox.write(inbox.spark.range(0).selectExpr("id as body"), "jobs", txn="t")
    assert inbox.bodies("jobs") == []


def test_dead_letters_are_a_table_too(inbox: Inbox) -> None:
    queue = inbox.bucket.queue("jobs")
    queue.send("bad")
    for delivery in queue.receive(1):
        delivery.bury("no", wait=True)
    assert [row.body for row in inbox.read("jobs.dead").collect()] == ['"bad"']


def test_a_corrupt_segment_is_named_in_the_error(inbox: Inbox, failing: Callable[..., str]) -> None:
    inbox.bucket.queue("jobs").send_many(range(3))
    path = inbox.file(f"queues/jobs/log/0/{0:020}.ndjson")
    path.write_bytes(path.read_bytes().replace(b'"id"', b'"di"', 1))
    text = failing(inbox.read("jobs").collect)
    assert "Corrupt" in text
    assert f"queues/jobs/log/0/{0:020}.ndjson has a line that is not a message" in text


def test_a_part_that_is_not_what_was_written_is_named_though_it_looks_right(
    inbox: Inbox, failing: Callable[..., str]
) -> None:
    inbox.write(inbox.spark.sql("select 'left' as body").coalesce(1), "jobs", bodyFormat="text")
    (part,) = inbox.file("queues/jobs/parts").rglob("*.ndjson")
    part.write_bytes(part.read_bytes().replace(b"left", b"lift"))
    for options in ({}, {"failOnDataLoss": "false"}):
        text = failing(inbox.read("jobs", **options).collect)
        assert "Corrupt" in text and f"{part.name} is not what was written" in text
    # A writer that does not vouch for its lines has them read as they are.
    (log,) = inbox.file("queues/jobs/log").rglob("*.ndjson")
    log.write_bytes(re.sub(rb',"xxh3":"[0-9a-f]{16}"', b"", log.read_bytes()))
    assert [row.body for row in inbox.read("jobs").collect()] == ['"lift"']


def test_a_part_that_is_gone_is_data_loss(inbox: Inbox, failing: Callable[..., str]) -> None:
    inbox.write(inbox.spark.range(10).selectExpr("id as body").coalesce(1), "jobs")
    (part,) = inbox.file("queues/jobs/parts").rglob("*.ndjson")
    part.unlink()
    assert "set failOnDataLoss to false" in failing(inbox.read("jobs").collect)
    assert inbox.read("jobs", failOnDataLoss="false").collect() == []


@pytest.mark.parametrize(
    ("queue", "options", "text"),
    [
        ("jobs", {"startingOffset": "latest"}, "unknown option 'startingoffset'"),
        ("jobs", {"startingOffsets": '{"3": 0}'}, "names shard 3, and 'jobs' has 1 shards"),
        ("jobs", {"startingOffsets": '{"0": 99}'}, "says 99 for shard 0, which ends at 1"),
        ("jobs", {"bodySchema": "n int not null"}, "leave it out and filter"),
        ("jobs", {"bodySchema": "n decimal(10,2)"}, "use string and cast it"),
        ("nothing", {}, "there is no queue 'nothing'"),
    ],
)
def test_what_is_wrong_with_a_read_is_said(
    inbox: Inbox, failing: Callable[..., str], queue: str, options: dict[str, str], text: str
) -> None:
    inbox.bucket.queue("jobs").send({"n": 1})
    assert text in failing(lambda: inbox.read(queue, **options).collect())


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        (["id as amount", "id as body"], {}, "no column 'amount'"),
        (["'not json' as body"], {}, "set bodyFormat to text"),
        (["id as body"], {"txn": "../x"}, "txn '../x' must be"),
        (["id as body"], {"startingOffsets": "latest"}, "unknown option 'startingoffsets'"),
    ],
)
def test_what_is_wrong_with_a_write_is_said_and_nothing_is_appended(
    inbox: Inbox, failing: Callable[..., str], columns: list[str], options: dict[str, str], text: str
) -> None:
    rows = inbox.spark.range(3).selectExpr(*columns)
    assert text in failing(inbox.write, rows, "out", **options)
    assert not inbox.file("queues/out/log").exists()


def test_variants_are_refused_wherever_they_are_and_not_taken_for_what_encodes_them(tmp_path: Path) -> None:
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType, VariantType

    from bucketmq.spark.options import sink_options, source_options
    from bucketmq.spark.read.reader import BatchReader
    from bucketmq.spark.write.sink import BatchWriter

    given = {"path": str(tmp_path), "queue": "out"}
    inside = StructType().add("v", ArrayType(MapType(StringType(), VariantType())))
    for kind in (VariantType(), inside):
        with pytest.raises(bucketmq.Invalid, match=r"column 'body' is or has a variant.*to_json"):
            BatchWriter(sink_options(given), StructType().add("body", kind))
        with pytest.raises(bucketmq.Invalid, match=r"column 'body' is or has a variant.*parse_json"):
            BatchReader(
                source_options(given, streaming=False), StructType().add("body", kind).add("_rescued", "string")
            )


def test_a_queue_cannot_be_overwritten(inbox: Inbox, failing: Callable[..., str]) -> None:
    rows = inbox.spark.range(3).selectExpr("id as body").write.format("bucketmq")
    made = rows.option("path", inbox.url).option("queue", "out").mode("overwrite")
    assert "nothing to overwrite" in failing(made.save)


def test_no_place_and_no_secret_is_in_a_partition_or_a_plan(inbox: Inbox, capsys: pytest.CaptureFixture[str]) -> None:
    from pyspark.sql.types import StructType

    from bucketmq.spark.options import source_options
    from bucketmq.spark.read.reader import BatchReader

    inbox.bucket.queue("jobs").send_many(range(3))
    given = {"path": inbox.url, "queue": "jobs"}
    reader = BatchReader(source_options(given, streaming=False), StructType().add("id", "string"))
    (partition,) = reader.partitions()
    assert inbox.url.encode() not in pickle.dumps(partition)
    frame = inbox.read("jobs")
    frame.explain(True)
    assert inbox.url not in capsys.readouterr().out


def test_a_task_closes_a_part_when_it_is_large_and_all_of_them_become_one_segment(
    plain_inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from bucketmq.spark.options import sink_options
    from bucketmq.spark.write import parts, sink

    monkeypatch.setattr(parts, "PART_BYTES", 200)
    writer = sink.BatchWriter(
        sink_options({"path": plain_inbox.url, "queue": "out", "txn": "t"}), StructType().add("body", "long")
    )
    batches = [pa.record_batch([pa.array(range(n, n + 10))], ["body"]) for n in range(0, 100, 10)]
    writer.commit([writer.write(iter(batches)), writer.write(iter([]))])
    assert len(list(plain_inbox.file("queues/out/log").rglob("*.ndjson"))) == 1
    assert len(list(plain_inbox.file("queues/out/parts/t").iterdir())) == 10
    queue = plain_inbox.bucket.queue("out")
    found = queue.receive(1000)
    assert [delivery.body for delivery in found] == list(range(100))
    assert len({delivery.id for delivery in found}) == 100


def test_a_part_that_cannot_be_written_fails_its_task(plain_inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from bucketmq.spark.options import sink_options
    from bucketmq.spark.write import parts, sink

    create, written = parts.create_part, []

    def failing(*given: Any, **more: Any) -> Any:
        written.append(given)
        if len(written) == 3:
            raise bucketmq.Unavailable("the disk is full")
        return (yield from create(*given, **more))

    monkeypatch.setattr(parts, "PART_BYTES", 200)
    monkeypatch.setattr(parts, "create_part", failing)
    writer = sink.BatchWriter(
        sink_options({"path": plain_inbox.url, "queue": "out", "txn": "t"}), StructType().add("body", "long")
    )
    batches = [pa.record_batch([pa.array(range(n, n + 10))], ["body"]) for n in range(0, 1000, 10)]
    with pytest.raises(bucketmq.Unavailable, match="disk is full"):
        writer.write(iter(batches))
    assert len(written) < 20  # and does not go on for long


def test_an_abort_deletes_nothing(plain_inbox: Inbox) -> None:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from bucketmq.spark.options import sink_options
    from bucketmq.spark.write import sink

    writer = sink.BatchWriter(
        sink_options({"path": plain_inbox.url, "queue": "out", "txn": "t"}), StructType().add("body", "long")
    )
    messages = [writer.write(iter([pa.record_batch([pa.array([1, 2])], ["body"])])), None]
    writer.commit(messages)  # as if its answer had been lost: Spark then calls abort with all messages
    writer.abort(messages)
    assert plain_inbox.bodies("out") == [1, 2]
