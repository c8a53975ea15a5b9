"""Archiving: everything settled, once each, whoever dies when; and trimming waits for it."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow.parquet as pq
from spark.conftest import Inbox

from bucketmq import Queue
from bucketmq.chores import archive
from bucketmq.errors import Corrupt, NotFound
from bucketmq.procedures.upkeep.archive import Archive, finish, read_archive
from bucketmq.spark.history.archive import make_files, pieces_of, prepare, works
from bucketmq.spark.opened import Opened, opened
from bucketmq.spark.options import place_of

DAY = 86400.0

COLUMNS = [
    "id",
    "key",
    "headers",
    "body",
    "body_bytes",
    "sent_at",
    "shard",
    "offset",
    "to",
    "fence",
    "died",
    "outcomes",
    "attempts",
    "deaths",
]
"""As `docs/format` says: files that are there stay as they are."""


def here(inbox: Inbox, queue: str = "jobs") -> Opened:
    return opened(place_of(inbox.url, queue, {}))


def register(inbox: Inbox, queue: str = "jobs") -> Archive:
    return here(inbox, queue).run(read_archive(here(inbox, queue).queue))


def files(inbox: Inbox, queue: str = "jobs") -> list[Path]:
    return sorted(inbox.file(f"queues/{queue}/archive").rglob("*.parquet"))


def rows(inbox: Inbox, queue: str = "jobs") -> list[dict[str, Any]]:
    found = [row for path in files(inbox, queue) for row in pq.read_table(io.BytesIO(path.read_bytes())).to_pylist()]
    return sorted(found, key=lambda row: (row["shard"], row["offset"]))


def send(queue: Queue, count: int, *, per_segment: int = 10) -> None:
    for start in range(0, count, per_segment):
        queue.send_many([{"n": n} for n in range(start, min(count, start + per_segment))])


def settle(queue: Queue, count: int) -> None:
    """Acknowledge the next so many messages."""
    while count:
        batch = queue.receive(count)
        assert batch, f"{count} messages are missing"
        for delivery in batch:
            delivery.ack()
        count -= len(batch)
    queue.flush()


def test_settled_messages_are_archived_and_others_wait(inbox: Inbox) -> None:
    jobs = inbox.bucket.queue("jobs", inline_bytes_max=100)
    jobs.send({"n": 0, "text": "x" * 500}, key="k", headers={"trace": "t-1"})
    jobs.send(b"\x00\xff")
    send(jobs, 30)
    settle(jobs, 2 + 25)
    done = archive.run(inbox.spark, inbox.url, queue="jobs")
    assert (done.queue, done.rounds, done.rows, done.skipped) == ("jobs", 1, 22, 0)  # whole segments only
    first, second, *others = rows(inbox)
    assert (first["key"], dict(first["headers"])) == ("k", {"trace": "t-1"})
    assert first["body"] == '{"n":0,"text":"' + "x" * 500 + '"}'
    assert (second["body"], second["body_bytes"]) == (None, b"\x00\xff")
    assert [row["body"] for row in others] == [f'{{"n":{n}}}' for n in range(20)]
    assert all(dict(row["outcomes"]) == {"main": "done"} for row in [first, second, *others])
    assert list(first) == COLUMNS
    day = first["sent_at"].date().isoformat()
    assert [path.parent.name for path in files(inbox)] == [f"date={day}"]
    settle(jobs, 5)
    assert archive.run(inbox.spark, inbox.url, queue="jobs").rows == 10
    assert archive.run(inbox.spark, inbox.url, queue="jobs").rounds == 0
    assert [row["offset"] for row in rows(inbox)] == list(range(32))


def test_nothing_is_trimmed_before_it_is_archived_not_even_what_expired(inbox: Inbox) -> None:
    jobs = inbox.bucket.queue("jobs", keep_seconds=0, expire_seconds=10 * DAY, dedup_seconds=0)
    send(jobs, 50)
    settle(jobs, 20)
    archive.run(inbox.spark, inbox.url, queue="jobs")
    settle(jobs, 10)
    inbox.age("jobs", 20 * DAY)
    assert jobs.trim().segments == 2
    done = archive.run(inbox.spark, inbox.url, queue="jobs")
    assert done.rows == 30
    assert [dict(row["outcomes"])["main"] for row in rows(inbox)] == ["done"] * 30 + ["expired"] * 20
    assert jobs.trim().segments == 2  # the last one always stays
    assert [row["offset"] for row in rows(inbox)] == list(range(50))


def test_an_archive_that_is_released_holds_nothing_back_until_it_is_run_again(inbox: Inbox) -> None:
    jobs = inbox.bucket.queue("jobs", keep_seconds=0, dedup_seconds=0)
    send(jobs, 10)
    settle(jobs, 10)
    archive.run(inbox.spark, inbox.url, queue="jobs")
    send(jobs, 30)
    settle(jobs, 30)
    inbox.age("jobs", DAY)
    assert jobs.trim().segments == 1
    archive.run(inbox.spark, inbox.url, queue="jobs", release=True)
    assert jobs.trim().segments == 2
    done = archive.run(inbox.spark, inbox.url, queue="jobs")
    assert (done.rows, done.skipped, done.lost) == (10, 20, 0)
    assert register(inbox).skipped == {0: ((10, 30),)}


def test_rows_tell_what_became_of_them_for_each_subscription(inbox: Inbox) -> None:
    jobs = inbox.bucket.queue("jobs", attempts_max=1)
    other = jobs.subscription("other")
    send(jobs, 6, per_segment=3)
    for delivery in jobs.receive(6):
        if delivery.body["n"] == 2:
            delivery.retry("no such page")
        else:
            delivery.ack()
    jobs.flush()
    for delivery in other.receive(6):
        delivery.ack()
    other.flush()
    assert [letter.body["n"] for letter in jobs.dead_letters.peek(10)] == [2]
    done = archive.run(inbox.spark, inbox.url, queue="jobs")
    assert done.rows == 6
    assert done.dead_letters is not None and done.dead_letters.rows == 0  # nobody has dealt with it yet
    outcomes = [dict(row["outcomes"]) for row in rows(inbox)]
    assert outcomes[2] == {"main": "dead", "other": "done"}
    assert all(each == {"main": "done", "other": "done"} for n, each in enumerate(outcomes) if n != 2)
    [death] = rows(inbox)[2]["deaths"]
    assert (death["subscription"], death["attempts"], death["error"]) == ("main", 1, "no such page")
    jobs.dead_letters.redrive()
    settle(jobs, 1)
    assert not other.receive(1)  # passes over what is for another
    other.flush()
    done = archive.run(inbox.spark, inbox.url, queue="jobs")
    assert (done.rows, done.dead_letters and done.dead_letters.rows) == (1, 1)
    again = rows(inbox)[6]
    assert (again["to"], dict(again["outcomes"]), again["died"]["offset"]) == ("main", {"main": "done"}, 2)
    [letter] = rows(inbox, "jobs.dead")
    assert letter["died"]["failures"][0]["error"] == "no such page"


def test_an_archiver_that_died_is_finished_by_the_next_one_and_nothing_is_there_twice(inbox: Inbox) -> None:
    jobs = inbox.bucket.queue("jobs", shards=2)
    send(jobs, 400, per_segment=20)
    settle(jobs, 400)
    place, opened_here = place_of(inbox.url, "jobs", {}), here(inbox)
    # It entered its intent and made one file, then died. What came later is not in the intent.
    intended = opened_here.run(prepare(opened_here.queue, file_bytes=1024))
    tasks, gone = works(place, intended, opened_here.run(pieces_of(opened_here.queue, intended)), {})
    assert len(tasks) > 3 and not gone
    make_files(tasks[1])
    before = {path: path.read_bytes() for path in files(inbox)}
    assert register(inbox).watermark == {0: 0, 1: 0}
    send(jobs, 40, per_segment=20)
    settle(jobs, 40)
    done = archive.run(inbox.spark, inbox.url, queue="jobs", file_bytes=64 << 10)
    assert done.rounds == 2
    made = {path: path.read_bytes() for path in files(inbox)}
    assert made.items() >= before.items() and len(made) == len(tasks) + 2
    # A rival that slept through all that makes the same files once more, and does not move the watermark back.
    watermark = register(inbox).watermark
    for task in tasks:
        make_files(task)
    assert intended.intent is not None
    opened_here.run(finish(opened_here.queue, intended.intent, {}, {}))
    assert {path: path.read_bytes() for path in files(inbox)} == made
    assert register(inbox).watermark == watermark
    places = [(row["shard"], row["offset"]) for row in rows(inbox)]
    assert len(places) == len(set(places)) == 440
    assert sorted(int(row["body"][5:-1]) for row in rows(inbox)) == sorted([*range(400), *range(40)])


def test_a_day_has_its_own_files_whatever_the_order(inbox: Inbox) -> None:
    jobs = inbox.bucket.queue("jobs")
    send(jobs, 4, per_segment=4)
    path = next(inbox.file("queues/jobs/log/0").iterdir())
    lines = path.read_bytes().split(b"\n")
    lines[2] = lines[2].replace(b'"at":"20', b'"at":"19')  # long ago, in the middle
    path.write_bytes(b"\n".join(lines))
    settle(jobs, 4)
    done = archive.run(inbox.spark, inbox.url, queue="jobs")
    assert (done.files, done.rows) == (2, 4)
    assert [len(pq.read_table(io.BytesIO(path.read_bytes()))) for path in files(inbox)] == [1, 3]
    assert len({path.name for path in files(inbox)}) == 1


@pytest.mark.parametrize(("base", "told"), [(0, NotFound), (10, Corrupt)])
def test_a_lost_segment_is_told_and_skipped_only_if_asked(inbox: Inbox, base: int, told: type[Exception]) -> None:
    jobs = inbox.bucket.queue("jobs")
    send(jobs, 30)
    settle(jobs, 30)
    inbox.file(f"queues/jobs/log/0/{base:020}.ndjson").unlink()
    with pytest.raises(told, match=r"offsets 0 to 9 of shard 0 .*skip_lost|has 10 messages, not offset 19"):
        archive.run(inbox.spark, inbox.url, queue="jobs")
    done = archive.run(inbox.spark, inbox.url, queue="jobs", skip_lost=True)
    assert (done.rows, done.skipped, done.lost) == (20, 10, 10)
    assert register(inbox).skipped == register(inbox).lost == {0: ((base, base + 10),)}


def test_files_that_were_made_before_a_loss_was_told_are_not_cut_anew(inbox: Inbox) -> None:
    jobs = inbox.bucket.queue("jobs")
    send(jobs, 100)
    settle(jobs, 100)
    path = inbox.file(f"queues/jobs/log/0/{10:020}.ndjson")
    size = path.stat().st_size
    path.unlink()
    for skip_lost in (False, True):  # the first fails, but only the task that meets the hole
        with contextlib.suppress(Corrupt):
            archive.run(inbox.spark, inbox.url, queue="jobs", file_bytes=size * 7 // 4, skip_lost=skip_lost)
    assert [row["offset"] for row in rows(inbox)] == [*range(10), *range(20, 100)]


def test_a_queue_nobody_reads_is_archived_to_its_end(inbox: Inbox) -> None:
    send(inbox.bucket.queue("journal", main=False), 25)
    assert archive.run(inbox.spark, inbox.url, queue="journal").rows == 25
    with pytest.raises(NotFound, match="no queue 'nothing'"):
        archive.run(inbox.spark, inbox.url, queue="nothing")


def test_bulk_writes_are_archived_too(inbox: Inbox) -> None:
    inbox.write(inbox.spark.range(3000).selectExpr("struct(id as n) as body"), "jobs")
    settle(inbox.bucket.queue("jobs"), 3000)
    assert archive.run(inbox.spark, inbox.url, queue="jobs", file_bytes=20_000).rows == 3000
    assert [row["offset"] for row in rows(inbox)] == list(range(3000))
    by_spark = inbox.spark.read.parquet(f"file://{inbox.file('queues/jobs/archive')}")
    assert by_spark.where("date is not null").count() == 3000
