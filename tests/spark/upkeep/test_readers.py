"""Readers: how far queries have come, as the queue knows it; what that holds back, and what it shows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from procedures.bulk.test_orphans import process_of_today
from procedures.bulk.test_publish import FaultyStore, Process, quick, store
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import StructType

import bucketmq
from bucketmq.procedures.upkeep.readers import (
    NOTES_KEEP_SECONDS,
    Reader,
    begin_reader,
    forget_reader,
    note_progress,
    read_reader,
)
from bucketmq.procedures.upkeep.trim import trim
from bucketmq.spark.options import source_options
from bucketmq.spark.read import reader as reading
from bucketmq.spark.read.reader import StreamReader
from bucketmq.spark.source import BucketMQSource
from bucketmq.spark.upkeep.restore import restore_from_reader
from spark.conftest import Inbox

__all__ = ["quick", "store"]  # fixtures


def documents(inbox: Inbox, queue: str = "jobs") -> dict[str, dict[str, Any]]:
    paths = inbox.file(f"queues/{queue}/readers").glob("*.json")
    return {path.stem: json.loads(path.read_bytes()) for path in paths}


def old_segments(inbox: Inbox, count: int) -> Any:
    """A queue that nobody subscribes to, with ten messages in each segment, old enough to be trimmed."""
    queue = inbox.bucket.queue("jobs", main=False, keep_seconds=0, dedup_seconds=0)
    for n in range(count):
        queue.send_many([n * 10 + m for m in range(10)])
    inbox.age("jobs", 10_000)
    return queue


# With Spark


def committed_source() -> type[BucketMQSource]:
    """A source that notes, whenever Spark asks for the end of a batch, where it asks from and where the last batch of
    the commit log ended. (Made here, because Spark's processes know nothing of this module.)"""

    class Committed(StreamReader):
        def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
            folder = Path(self._options.place.url).parent
            done = sorted(int(path.name) for path in (folder / "cp" / "commits").glob("[0-9]*"))
            lines = (folder / "cp" / "offsets" / str(done[-1])).read_text().splitlines() if done else []
            with (folder / "asked").open("a") as asked:
                asked.write(json.dumps([start["shards"], json.loads(lines[2])["shards"] if done else None]) + "\n")
            return super().latestOffset(start, limit)

    class CommittedSource(BucketMQSource):
        @classmethod
        def name(cls) -> str:
            return "committed"

        def streamReader(self, schema: StructType) -> StreamReader:
            made = super().streamReader(schema)
            return Committed(made._options, made._schema)

    return CommittedSource


def test_spark_asks_for_the_next_batch_when_the_one_before_is_committed(inbox: Inbox) -> None:
    """What is told to the queue depends on it: see `StreamReader._tell`."""
    inbox.spark.dataSource.register(committed_source())
    inbox.bucket.queue("jobs").send_many(range(10))
    options = {"path": inbox.url, "queue": "jobs", "maxRowsPerTrigger": 4}
    for more in range(2):
        rows = inbox.spark.readStream.format("committed").options(**options).load()
        inbox.stream_to(rows, "copy", "cp")
        inbox.bucket.queue("jobs").send_many(range(more + 1))
    asked = [json.loads(line) for line in (inbox.folder / "asked").read_text().splitlines()]
    assert asked[0] == [{"0": 0}, None]
    assert all(start == last for start, last in asked[1:])
    assert {start["0"] for start, _ in asked} == {0, 4, 8, 10, 11}


def test_a_slow_query_with_a_name_holds_back_what_it_has_not_read(inbox: Inbox) -> None:
    queue = old_segments(inbox, 5)
    read = {"subscription": "slow", "maxRowsPerTrigger": 35}
    inbox.stream_to(inbox.read_stream("jobs", **read), "copy", "cp")
    (known,) = queue.stats().readers
    assert (known.name, known.holds, known.lag) == ("slow", True, 0)
    for n in range(5, 10):
        queue.send_many([n * 10 + m for m in range(10)])
    inbox.age("jobs", 10_000)
    queue.send("last")
    assert queue.stats().readers[0].lag == 51
    assert queue.trim().segments == 5  # what it has read, and nothing else
    shutil.rmtree(inbox.folder / "cp")
    restored = restore_from_reader(inbox.url, "jobs", "slow", inbox.folder / "cp")
    assert restored.offsets == {"jobs": {"0": 50}}
    inbox.stream_to(inbox.read_stream("jobs", **read), "copy", "cp")
    assert inbox.bodies("copy") == [*range(100), "last"]
    assert queue.stats().readers[0].lag == 0


def test_a_redriven_dead_letter_comes_to_the_query_that_has_its_name(inbox: Inbox) -> None:
    queue = inbox.bucket.queue("jobs")
    classify = queue.subscription("classify")
    queue.send_many(["good", "bad"])
    for delivery in classify.receive(10):
        delivery.ack() if delivery.body == "good" else delivery.bury("no")
    classify.flush()
    assert queue.dead_letters.redrive().redriven == 1
    for name in ("classify", "other"):
        inbox.stream_to(inbox.read_stream("jobs", subscription=name), f"copy-{name}", f"cp-{name}")
    assert inbox.bodies("copy-classify") == ["good", "bad", "bad"]
    assert inbox.bodies("copy-other") == ["good", "bad"]


def test_a_query_without_a_name_shows_its_lag_and_holds_nothing_back(inbox: Inbox) -> None:
    queue = old_segments(inbox, 5)
    queue.send("last")
    inbox.stream_to(inbox.read_stream("jobs"), "copy", "cp")
    (known,) = queue.stats().readers
    assert (known.name.startswith("query-"), known.holds, known.lag) == (True, False, 0)
    queue.send_many(range(7))
    assert queue.stats().readers[0].lag == 7
    inbox.stream_to(inbox.read_stream("jobs"), "copy", "cp")
    (again,) = queue.stats().readers
    assert (again.name, again.lag) == (known.name, 0)


# The reader by itself


def stream_reader(inbox: Inbox, **options: str) -> StreamReader:
    given = {"path": inbox.url, "queue": "jobs", "pollInterval": "0", **options}
    return StreamReader(source_options(given, streaming=True), StructType().add("id", "string"))


def step(made: StreamReader, start: dict[str, Any], rows: int = 10) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(made.latestOffset(start, ReadMaxRows(rows))))
    return found


def test_a_query_that_lost_its_checkpoint_goes_on_where_its_reader_is(plain_inbox: Inbox) -> None:
    plain_inbox.bucket.queue("jobs").send_many(range(30))
    made = stream_reader(plain_inbox, subscription="nightly")
    made.prepareForTriggerAvailableNow()
    end = step(made, made.initialOffset(), rows=12)
    step(made, end)
    again = stream_reader(plain_inbox, subscription="nightly", startingOffsets="latest").initialOffset()
    assert again == {"queue": "jobs", "shards": {"0": 12}, "bases": {"0": 0}}


def test_a_query_that_goes_on_under_a_new_name_is_known_from_its_first_batch(plain_inbox: Inbox) -> None:
    plain_inbox.bucket.queue("jobs").send_many(range(30))
    before = {"queue": "jobs", "shards": {"0": 12}, "bases": {"0": 0}}
    step(stream_reader(plain_inbox, subscription="nightly"), before)
    assert documents(plain_inbox)["nightly"]["offsets"] == {"0": 12}


def test_a_query_whose_checkpoint_knows_no_name_gets_one_with_its_next_batch(plain_inbox: Inbox) -> None:
    """As of a checkpoint that was made again, or of a query that had a name and gave it up."""
    plain_inbox.bucket.queue("jobs").send_many(range(30))
    made = stream_reader(plain_inbox)
    made.prepareForTriggerAvailableNow()
    end = step(made, {"queue": "jobs", "shards": {"0": 12}, "bases": {"0": 0}})
    assert documents(plain_inbox) == {}  # nothing is done yet
    again = step(made, end)
    assert again["reader"] == end["reader"]
    assert documents(plain_inbox)[end["reader"]]["offsets"] == {"0": 22}
    nothing = {"queue": "jobs", "shards": {"0": 30}}
    assert step(stream_reader(plain_inbox), nothing) == nothing


def test_a_checkpoint_made_of_a_reader_without_a_name_of_its_own_goes_on_as_this_reader(plain_inbox: Inbox) -> None:
    plain_inbox.bucket.queue("jobs").send_many(range(30))
    made = stream_reader(plain_inbox)
    made.prepareForTriggerAvailableNow()
    end = step(made, made.initialOffset(), rows=12)
    step(made, end)
    restore_from_reader(plain_inbox.url, "jobs", end["reader"], plain_inbox.folder / "cp")
    lines = (plain_inbox.folder / "cp" / "offsets" / "0").read_text().splitlines()
    assert json.loads(lines[-1]) == end


def test_progress_is_told_once_in_a_while(plain_inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    plain_inbox.bucket.queue("jobs").send_many(range(30))
    now = [1000.0]
    monkeypatch.setattr(reading.time, "monotonic", lambda: now[0])
    made = stream_reader(plain_inbox, subscription="nightly")
    place = step(made, made.initialOffset())
    place = step(made, place)
    assert documents(plain_inbox)["nightly"]["offsets"] == {"0": 0}
    now[0] += reading.NOTE_SECONDS
    step(made, place)
    assert documents(plain_inbox)["nightly"]["offsets"] == {"0": 20}
    known = documents(plain_inbox)["nightly"]
    now[0] += reading.NOTE_SECONDS
    step(made, place)
    assert documents(plain_inbox)["nightly"] == known  # nothing new is nothing to tell


def test_a_queue_that_cannot_be_told_does_not_end_a_query(
    plain_inbox: Inbox, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plain_inbox.bucket.queue("jobs").send_many(range(30))
    made = stream_reader(plain_inbox, subscription="nightly")
    made.prepareForTriggerAvailableNow()
    end = step(made, made.initialOffset())
    plain_inbox.file("queues/jobs/readers/nightly.json").write_text("not a reader")
    assert step(made, end)["shards"] == {"0": 20}
    assert "progress of reader nightly could not be told" in caplog.text


@pytest.mark.parametrize("name", ["", "../up", "a b"])
def test_bad_names_are_refused(name: str) -> None:
    with pytest.raises(bucketmq.Invalid, match="subscription"):
        source_options({"path": "x", "queue": "jobs", "subscription": name}, streaming=True)


# The document by itself


def progress(process: Process, offsets: dict[int, int], **more: Any) -> bool:
    told: bool = process.run(note_progress(process.queue, "r", offsets, more.get("bases", {}), holds=True))
    return told


def known(process: Process) -> Reader:
    found: Reader = process.run(read_reader(process.queue, "r"))
    return found


@pytest.mark.parametrize("fault", ["lost", "landed", "refused", "landed and refused"])
def test_progress_is_monotone_whatever_the_store_answers(store: FaultyStore, fault: str) -> None:
    process = Process(store)
    process.run(begin_reader(process.queue, "r", {0: 5}, {}, holds=True))
    for request in range(2):
        store.arm(request, fault)
        assert progress(process, {0: 20 + request, 1: 3}, bases={0: 18})
    assert progress(process, {0: 10, 1: 4})
    found = known(process)
    assert (found.offsets, found.bases, found.holds) == ({0: 21, 1: 4}, {0: 18}, True)


def test_whoever_is_first_decides_where_a_reader_begins(store: FaultyStore) -> None:
    for offset in (5, 9):
        process = Process(store)
        assert process.run(begin_reader(process.queue, "r", {0: offset}, {}, holds=True)).offsets == {0: 5}


def test_a_reader_that_is_forgotten_is_gone(store: FaultyStore) -> None:
    process = Process(store)
    progress(process, {0: 5})
    assert process.run(forget_reader(process.queue, "r")).offsets == {0: 5}
    with pytest.raises(bucketmq.NotFound, match="no reader 'r'"):
        process.run(forget_reader(process.queue, "r"))


def test_readers_that_hold_nothing_are_forgotten_when_idle_and_others_never(store: FaultyStore) -> None:
    process = Process(store)
    for name, holds in (("query-1", False), ("nightly", True)):
        process.run(begin_reader(process.queue, name, {0: 0}, {}, holds=holds))
    store.ahead += NOTES_KEEP_SECONDS + 60
    later = process_of_today(store)
    later.run(trim(later.queue))
    left: Callable[[str], Any] = lambda name: later.run(read_reader(later.queue, name))  # noqa: E731
    assert (left("query-1"), left("nightly") is not None) == (None, True)
