"""A table with upserts as the target of a pipeline: the same with and without Spark, whatever is run again."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import chunk_stages
from procedures.objects.world import World
from procedures.rules.test_watchers import run as watched
from procedures.rules.test_watchers import run_until_death
from spark.conftest import Inbox

import bucketmq
from bucketmq.pipeline import FromEvents, FromQueue, Pipeline, ToObjects, ToUpserts
from bucketmq.procedures.tables import files as table_files
from bucketmq.tables import Delete
from bucketmq.tables.head import Mark
from pipeline.test_pipeline import run, run_again

pytestmark = pytest.mark.timeout(300)

INDEX = Pipeline(
    name="index",
    source=FromEvents(filter="key REGEXP '^docs/'", content="text"),
    stages=(chunk_stages.chunks,),
    target=ToUpserts(table="chunks", key="id", group="doc", newer_by="at", delete_when="gone"),
)


def watch(inbox: Inbox, pipeline: Pipeline) -> None:
    if pipeline.name not in inbox.bucket.watchers.by_name:
        handler = pipeline.watcher(inbox.bucket)
        inbox.bucket.watch(pipeline.source.filter, name=pipeline.name, start="beginning")(handler)
    inbox.bucket.run_watchers(stop_when_empty=True, signals=False)


def texts(inbox: Inbox) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in inbox.bucket.table("chunks").read().sort_by("id").to_pylist():
        found.setdefault(row["doc"], []).append(row["text"])
    return found


def test_documents_are_indexed_changed_and_deleted_the_same_with_and_without_spark(
    inbox: Inbox, tmp_path: Path
) -> None:
    other = Inbox(tmp_path / "other")
    both = ((inbox, run), (other, watch))
    for each, go in both:
        each.bucket.put("docs/a.txt", "one\ntwo\nthree")
        each.bucket.put("docs/b.txt", "alpha\nbeta")
        each.bucket.put("docs/bad.txt", "poison")
        go(each, INDEX)
        assert texts(each) == {"docs/a.txt": ["one", "two", "three"], "docs/b.txt": ["alpha", "beta"]}
        each.bucket.put("docs/a.txt", "uno")  # shorter than before
        each.bucket.delete("docs/b.txt")
        each.bucket.put("docs/c.txt", "")  # nothing to index
        go(each, INDEX)
        assert texts(each) == {"docs/a.txt": ["uno"]}
        assert "gone" not in each.bucket.table("chunks").read().column_names
        reasons = [letter.reason for letter in each.bucket.queue("events").dead_letters.peek()]
        assert reasons == ["stage chunks: ValueError: poison in docs/bad.txt"]
    other.bucket.close()


def test_a_batch_that_is_run_again_changes_nothing(inbox: Inbox) -> None:
    inbox.bucket.put("docs/a.txt", "one")
    run(inbox, INDEX)
    table = inbox.bucket.table("chunks")
    version = table.snapshot().version
    table.commit(Delete(["docs/a.txt"]))  # somebody else's, later than the batch
    run_again(inbox, INDEX)
    assert table.snapshot().version == version + 1
    assert texts(inbox) == {}


def test_a_batch_of_many_shards_is_one_commit(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "SPLIT_BYTES", 3_000)
    rows = [{"id": f"r{n}", "n": n, "text": hashlib.sha512(b"%d" % n).hexdigest()} for n in range(300)]
    table = inbox.bucket.table("rows", key="id")
    table.upsert([{**row, "n": -1} for row in rows[:200]])
    assert len(table.snapshot().files) > 1
    version = table.snapshot().version
    inbox.bucket.queue("rows").send_many([*rows[100:], {"id": None, "n": 1, "text": "no key"}])
    source = FromQueue("rows", "id string, n bigint, text string")
    pipeline = Pipeline(name="rows", source=source, target=ToUpserts(table="rows", key="id"))
    run(inbox, pipeline)
    assert table.snapshot().version == version + 1
    assert {row["id"]: row["n"] for row in table.read().to_pylist()} == {
        f"r{n}": n if n >= 100 else -1 for n in range(300)
    }
    files = [str(inbox.file(key)) for key in table.snapshot().files]
    read = inbox.spark.read.option("mergeSchema", "true").parquet(*files)
    assert {row.id: row.n for row in read.collect()} == {row["id"]: row["n"] for row in table.read().to_pylist()}
    (letter,) = inbox.bucket.queue("rows").dead_letters.peek()
    assert "column 'id' is null here" in letter.reason


def test_a_rival_that_commits_while_executors_work_loses_nothing(inbox: Inbox) -> None:
    """What a driver does when another process was quicker: only the shards that changed are made again."""
    from bucketmq.pipeline.upserts import table_of
    from bucketmq.procedures.tables.commit import Job, Made, commit_elsewhere, write_shard
    from bucketmq.procedures.tables.files import read_schema
    from bucketmq.procedures.tables.steps import step_of
    from bucketmq.tables import Upsert

    bucket = inbox.bucket
    table = bucket.table("t", key="id")
    table.upsert([{"id": "a", "n": 1}])
    target = ToUpserts(table="t", key="id")
    opened = table_of(bucket.run(bucket.api.open()), target)
    step = step_of(Upsert([{"id": "b", "n": 2}]), opened.shape)
    assert step.rows is not None
    jobs: list[Job] = []

    def make(job: Job) -> dict[str, Made]:
        jobs.append(job)
        shard = job.head.shards[0]
        made = bucket.run(write_shard(opened, job.head, shard, read_schema(job.schema, ""), [step]))
        if len(jobs) == 1:
            table.upsert([{"id": "c", "n": 3}])
        return {shard.file: made}

    done = bucket.run(commit_elsewhere(opened, step.rows.schema, Mark("q", 7), make))
    assert (len(jobs), done.version) == (2, 3)
    assert sorted(row["id"] for row in table.read().to_pylist()) == ["a", "b", "c"]
    assert bucket.run(commit_elsewhere(opened, step.rows.schema, Mark("q", 6), make)).already


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # its threads die with it
def test_a_watcher_killed_between_any_two_requests_leaves_a_document_whole() -> None:
    """A document is replaced while its indexer dies: readers find its old rows or its new ones, these in the end."""
    assert INDEX.target is not None
    targets = (INDEX.target, ToObjects(template="seen/{+doc}", body="text"))
    both = Pipeline(name="index", source=INDEX.source, stages=(chunk_stages.chunks,), targets=targets)
    at, dead, states = 0, True, []
    while dead:
        world = World("copying")
        living = world.connect()
        living.watch(both.source.filter, name="index", start="beginning", lease_seconds=5)(both.watcher(living))
        living.put("docs/a.txt", "one\ntwo")
        watched(living)
        living.put("docs/a.txt", "uno")
        dying = world.connect(at=-1, fault="dies after")
        dying.watch(both.source.filter, name="index", start="beginning", lease_seconds=5)(both.watcher(dying))
        dying.hands.at = dying.hands.count + at  # what opens the bucket is not counted
        run_until_death(dying)
        states.append(living.table("chunks").read().sort_by("id").column("text").to_pylist())
        assert states[-1] in (["one", "two"], ["uno"])
        world.advance(30)
        watched(living)
        assert living.table("chunks").read().column("text").to_pylist() == ["uno"]
        dead = dying.hands.dead
        world.close()
        at += 1
    assert at > 10 and states[0] != states[-1]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"key": "id", "group": "doc"}, "group goes with newer_by"),
        ({"key": "doc", "group": "doc", "newer_by": "at"}, "another column than group"),
        ({"key": "id", "delete_when": "id"}, "a column of its own"),
        ({"key": "nothing"}, "needs a column 'nothing'"),
        ({"key": "id", "delete_when": "text"}, "true or false"),
        ({"key": "gone"}, "'gone' is bool"),
        ({"key": "id", "newer_by": "text"}, "a whole number or a time"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_written_down(options: dict[str, Any], says: str) -> None:
    with pytest.raises(bucketmq.Invalid, match=says):
        target = ToUpserts(table="t", **options)
        Pipeline(name="p", source=INDEX.source, stages=INDEX.stages, target=target).chain()
