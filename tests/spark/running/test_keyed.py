"""State by key on Spark: restarts, batches that are run again, timeouts, and rows that fail on either side."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

import word_stages as stages

from bucketmq.pipeline import FromQueue, Pipeline, ToObjects, ToQueue
from bucketmq.spark.running.run import start
from spark.conftest import Inbox

SO_FAR = Pipeline(
    name="so-far",
    source=FromQueue("posts", stages.POST),
    stages=(stages.so_far, stages.crowd),
    target=ToQueue(queue="out"),
)


def run(inbox: Inbox, pipeline: Pipeline = SO_FAR) -> None:
    query = start(pipeline, inbox.url, inbox.spark, once=True, checkpoint=str(inbox.folder / "cp"))
    try:
        query.awaitTermination()
    finally:
        query.stop()


def send(inbox: Inbox, *texts: str | None) -> None:
    rows = [{"id": f"p{n}", "text": text, "revision": 1} for n, text in enumerate(texts)]
    inbox.bucket.queue("posts").send_many(rows, key=lambda row: row["id"])


def counts(inbox: Inbox) -> list[tuple[str, int, bool]]:
    return sorted((body["text"], body["posts"], body["many"]) for body in inbox.bodies("out"))


@pytest.mark.timeout(300)
def test_state_outlives_the_query_and_a_batch_that_is_run_again_counts_once(inbox: Inbox) -> None:
    inbox.bucket.queue("posts", shards=2)
    send(inbox, "a", "b", "a", None, "poison", "thirteen")
    run(inbox)
    assert counts(inbox) == [("a", 2, False), ("b", 1, False)]
    letters = inbox.bucket.queue("posts").dead_letters.peek()
    assert sorted((letter.reason, str(letter.body.get("id"))) for letter in letters) == [
        ("stage crowd: ValueError: thirteen is too many", "None"),
        ("stage so_far: Invalid: the key is null", "p3"),
        ("stage so_far: ValueError: poison is not counted", "p4"),
    ], "a row that dies of the state is its message; behind it, it is the row that came out"
    assert {letter.subscription for letter in letters} == {"so-far"}
    send(inbox, "a", "c")
    run(inbox)
    for name in ("1", ".1.crc"):  # a driver that was killed before its own commit
        (inbox.folder / "cp/commits" / name).unlink(missing_ok=True)
    run(inbox)
    send(inbox, "a")
    run(inbox)
    assert counts(inbox) == [("a", 2, False), ("a", 3, True), ("a", 4, True), ("b", 1, False), ("c", 1, False)]


@pytest.mark.timeout(300)
def test_a_key_times_out_on_spark_and_a_late_row_begins_anew(inbox: Inbox) -> None:
    target = ToObjects(template="out/{text}{posts}.json")
    pipeline = Pipeline(name="a-while", source=SO_FAR.source, stages=(stages.for_a_while, stages.crowd), target=target)
    send(inbox, "a", "a")
    query = start(pipeline, inbox.url, inbox.spark, checkpoint=str(inbox.folder / "cp"), trigger_seconds=0.1)
    try:
        for name in ("a2", "a-2"):  # what was counted, and what is said when nobody came any more
            until(query, inbox, name)
        send(inbox, "a")
        until(query, inbox, "a1")
    finally:
        query.stop()


def until(query: Any, inbox: Inbox, name: str) -> None:
    """Let the query run until it has written something."""
    for _ in range(1000):
        if inbox.file(f"out/{name}.json").exists():
            return
        query.awaitTermination(0.2)  # raises what ended it
    raise AssertionError(f"{name} never came")
