"""Several targets on Spark: each has each row once, whatever is run again, and stages run once for all of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import msgspec
import pyarrow as pa
import word_stages as stages
from pyspark.sql.pandas.types import from_arrow_schema
from spark.conftest import Inbox

import bucketmq
from bucketmq.pipeline import FromEvents, FromQueue, Pipeline, ToObjects, ToQueue, ToTable
from bucketmq.pipeline.dead import DEAD
from bucketmq.pipeline.ends import Target
from bucketmq.pipeline.shape import shape_stage
from bucketmq.procedures.requests import Copy, Create, Delete, Remove, Replace
from bucketmq.spark.options import sink_options, targets_option
from bucketmq.spark.write.targets_sink import TargetsStreamWriter, Wrote
from pipeline.dying import Stopped, dying_after
from pipeline.test_lineage import CHUNKS, found_in, pipelined
from pipeline.test_pipeline import posts, run, run_again


def test_messages_objects_and_a_table_of_a_batch_that_is_run_again_are_there_once_and_stages_ran_once(
    inbox: Inbox,
) -> None:
    marks = inbox.folder / "marks"
    marks.mkdir()
    queue = inbox.bucket.queue("posts")
    queue.send_many([{"id": f"p{n}", "text": str(marks), "revision": 1} for n in range(20)])
    out = str(inbox.folder / "table")
    other = Inbox(inbox.folder / "elsewhere")
    pipeline = Pipeline(
        name="all",
        source=FromQueue("posts", stages.POST),
        stages=(stages.counted,),
        targets=(
            ToTable(path=out, where="id != 'p0'"),
            ToQueue(queue="first", key="id"),
            ToObjects(template="here/{id}"),
            ToQueue(queue="second", where="id IN ('p1', 'p2')"),
            ToQueue(queue="third", bucket=other.url),
            ToObjects(template="there/{id}", bucket=other.url),
            ToObjects(template="copied/{id}", copy_of="id", where="id = 'p1'"),
            ToObjects(template="moved/{id}", copy_of="id", move=True, where="id IN ('p1', 'p2')"),
        ),
    )
    for name in ("p1", "p2"):
        inbox.bucket.put(name, name)
    run(inbox, pipeline)
    assert len(list(marks.iterdir())) == 20  # however many targets there are
    run_again(inbox, pipeline)
    names = sorted(f"p{n}" for n in range(20))
    assert sorted(body["id"] for body in inbox.bodies("first")) == names
    assert sorted(body["id"] for body in inbox.bodies("second")) == ["p1", "p2"]
    assert sorted(body["id"] for body in other.bodies("third")) == names
    assert sorted(row["id"] for row in inbox.spark.read.parquet(out).collect()) == names[1:]
    copied, moved = ["copied/p1"], ["moved/p1", "moved/p2"]
    told = [*copied, *(f"here/{name}" for name in names), *moved, "p1", "p2"]
    assert sorted(body["key"] for body in inbox.bodies("events")) == told
    assert [inbox.bucket.get(key).body for key in (*copied, *moved)] == [b"p1", b"p1", b"p2"]
    assert sorted(body["key"] for body in other.bodies("events")) == [f"there/{name}" for name in names]
    other.bucket.close()


def shaped(targets: tuple[Target, ...], count: int) -> pa.RecordBatch:
    """Rows as a chain gives them."""
    columns = "id string, text string, revision bigint"
    batch = shape_stage(targets, columns).run(pa.RecordBatch.from_pylist(posts(count)))
    return batch.append_column(DEAD, pa.nulls(count, pa.string()))


@pytest.mark.parametrize("writes", range(0, 40, 3))
def test_a_batch_that_dies_between_any_two_writes_and_is_run_again_completes_every_target_once(
    plain_inbox: Inbox, writes: int
) -> None:
    other = Inbox(plain_inbox.folder / "elsewhere")
    targets = (
        ToQueue(queue="first", body="id", text=True),
        ToObjects(template="here/{id}", body="text"),
        ToQueue(queue="second", body="id", text=True, bucket=other.url),
        ToObjects(template="there/{id}", body="text", bucket=other.url),
        ToQueue(queue="third", body="id", text=True),
    )
    batch = shaped(targets, 3)
    given = {"path": plain_inbox.url, "targets": targets_option("p", targets), "deadLetters": "posts", "txn": "t"}

    def attempt() -> None:
        writer = TargetsStreamWriter(sink_options(given), from_arrow_schema(batch.schema))
        writer.commit([writer.write(iter([batch]))], 0)

    try:
        with dying_after(writes):
            attempt()
        died = False
    except Stopped:
        died = True
    assert died or writes > 20
    if any(plain_inbox.file("queues").glob("first/log/0/*")):  # a message tells of objects that are there
        assert len(list(plain_inbox.file("here").iterdir())) == len(list(other.file("there").iterdir())) == 3
    attempt()
    attempt()
    names = ["p0", "p1", "p2"]
    assert [sorted(plain_inbox.bodies(queue)) for queue in ("first", "third")] == [names, names]
    assert sorted(other.bodies("second")) == names
    for each, folder in ((plain_inbox, "here"), (other, "there")):
        assert sorted(path.name for path in each.file(folder).iterdir()) == names
    other.bucket.close()


@pytest.mark.parametrize("writes", range(0, 16, 3))
def test_a_batch_that_copies_and_moves_dies_between_any_two_writes_and_is_completed_when_it_is_run_again(
    plain_inbox: Inbox, writes: int
) -> None:
    """Every source is copied before it goes."""
    targets = (
        ToObjects(template="moved/{id}", copy_of="text", copy_version="version", move=True),
        ToObjects(template="copied/{id}", copy_of="text", copy_version="version"),
    )
    made = {f"in/{n}": plain_inbox.bucket.put(f"in/{n}", str(n)).version for n in range(3)}
    rows = [{"id": key[-1], "text": key, "version": version} for key, version in made.items()]
    stage = shape_stage(targets, "id string, text string, version string")
    batch = stage.run(pa.RecordBatch.from_pylist(rows)).append_column(DEAD, pa.nulls(3, pa.string()))
    given = {"path": plain_inbox.url, "targets": targets_option("p", targets), "deadLetters": "posts", "txn": "t"}

    def attempt() -> dict[str, int]:
        written = TargetsStreamWriter(sink_options(given), from_arrow_schema(batch.schema)).write(iter([batch]))
        assert isinstance(written, Wrote)
        return written.counts

    with contextlib.suppress(Stopped), dying_after(writes, (Create, Replace, Copy, Remove, Delete)):
        attempt()
        assert writes > 13
    attempt()
    assert attempt() == {"written": 0, "same": 6, "kept": 0}
    for folder in ("moved", "copied"):
        assert {path.name: path.read_text() for path in plain_inbox.file(folder).iterdir()} == {
            str(n): str(n) for n in range(3)
        }
    assert not list(plain_inbox.file("in").glob("*"))


def test_a_target_that_is_away_fails_the_batch_by_its_name_and_loses_nothing(
    inbox: Inbox, failing: Callable[..., str]
) -> None:
    queue = inbox.bucket.queue("posts")
    queue.send_many(posts(5))
    away = inbox.folder / "away"
    away.write_text("a file in the bucket's place")
    targets = (ToQueue(queue="out", key="id"), ToObjects(template="{id}", bucket=str(away)))
    pipeline = Pipeline(name="p", source=FromQueue("posts", stages.POST), targets=targets)
    assert f"bucket {away} of a target" in failing(run, inbox, pipeline)
    assert inbox.bodies("out") == []
    assert queue.dead_letters.peek() == []
    away.unlink()
    run(inbox, pipeline)
    assert sorted(body["id"] for body in inbox.bodies("out")) == [f"p{n}" for n in range(5)]
    assert sorted(path.name for path in away.glob("p*")) == [f"p{n}" for n in range(5)]


def test_objects_are_followed_on_spark_as_without_it(inbox: Inbox, tmp_path: Path) -> None:
    plain = Inbox(tmp_path / "plain")
    away = ToObjects(template="out/{+key}/{line}", body="text", follows="key", bucket=str(tmp_path / "away"))
    chunks = msgspec.structs.replace(CHUNKS, targets=(*CHUNKS.targets, away))
    steps: tuple[Callable[[Any], Any], ...] = (
        lambda bucket: bucket.put("docs/a", "one\ntwo long\nthree"),
        lambda bucket: bucket.put("docs/a", "uno\ndue"),
        lambda bucket: bucket.put("docs/a", ""),
        lambda bucket: bucket.move("docs/b", "docs/c"),
        lambda bucket: bucket.delete("docs/c"),
    )
    for each in (inbox, plain):
        each.bucket.put("docs/b", "bee")
    seen = []
    for step in steps:
        step(inbox.bucket)
        step(plain.bucket)
        run(inbox, chunks)
        pipelined(plain.bucket)
        assert found_in(Path(inbox.url)) == found_in(Path(plain.url))
        here = {key: text for key, text in found_in(Path(inbox.url)).items() if not key.startswith("long/")}
        assert found_in(tmp_path / "away") == here
        seen.append(sorted(found_in(Path(inbox.url))))
    assert seen == [
        ["docs/a/0", "docs/a/1", "docs/a/2", "docs/b/0", "long/docs/a"],
        ["docs/a/0", "docs/a/1", "docs/b/0"],
        ["docs/b/0"],
        ["docs/c/0"],
        [],
    ]
    assert (Path(inbox.url) / "inventory/home.json").exists()
    assert isinstance(CHUNKS.source, FromEvents)
    assert inbox.bucket.queue("events").dead_letters.peek() == []
    plain.bucket.close()


def test_a_table_of_a_pipeline_with_a_row_that_fails_has_the_others_and_the_letter_is_written_once(
    inbox: Inbox,
) -> None:
    queue = inbox.bucket.queue("posts")
    queue.send_many(posts(6, p4="poison"))
    out = str(inbox.folder / "table")
    targets = (ToTable(path=out), ToObjects(template="out/{id}", where="words > 99"))
    source = FromQueue("posts", stages.POST)
    pipeline = Pipeline(name="p", source=source, stages=(stages.count_words,), targets=targets)
    run(inbox, pipeline)
    run_again(inbox, pipeline)
    assert sorted(row["id"] for row in inbox.spark.read.parquet(out).collect()) == ["p0", "p1", "p2", "p3", "p5"]
    assert [letter.body["id"] for letter in queue.dead_letters.peek()] == ["p4"]
    assert isinstance(bucketmq.connect(inbox.url).look("out/p0"), type(None))
