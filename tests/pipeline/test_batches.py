"""A pipeline without Spark on several changes at a time: written together, settled one by one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import chunk_stages
from procedures.objects.world import World
from procedures.rules.test_watchers import run as watched
from procedures.rules.test_watchers import run_until_death

import bucketmq
from bucketmq.events.event import ObjectEvent, time_text
from bucketmq.outcomes import Bury, Done, Release, Retry
from bucketmq.pipeline import FromEvents, FromQueue, Later, Outcomes, Pipeline, ToObjects, ToQueue, ToUpserts, stage
from bucketmq.pipeline import watcher as watcher_module
from pipeline.test_lineage import CHUNKS as LINES

SOURCE = FromEvents(filter="key REGEXP '^docs/'", content="text")
CHUNKS = ToUpserts(table="chunks", key="id", group="doc", newer_by="at", delete_when="gone")
INDEX = Pipeline(name="index", source=SOURCE, stages=(chunk_stages.chunks,), target=CHUNKS)
BEGAN = 1_700_000_000.0


@pytest.fixture
def bucket() -> Any:
    with bucketmq.connect("memory://") as made:
        yield made


def watch(bucket: Any, pipeline: Pipeline = INDEX, batch: int = 100, **options: Any) -> None:
    handler = pipeline.watcher(bucket)
    bucket.watch(pipeline.source.filter, name=pipeline.name, start="beginning", batch=batch, **options)(handler)


def put(bucket: Any, count: int, first: int = 0) -> None:
    bucket.put_many({f"docs/{n}.txt": f"text {n}" for n in range(first, first + count)})


def change(key: str, seconds: float = 0.0, kind: str = "created", attempt: int = 1) -> Any:
    at = time_text(BEGAN + seconds)
    event = ObjectEvent(id=f"{key}-{seconds}", kind=kind, key=key, at=at, source="writer")  # type: ignore[arg-type]
    return SimpleNamespace(id=event.id, event=event, attempt=attempt)


def texts(bucket: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in bucket.table("chunks").read().sort_by("id").to_pylist():
        found.setdefault(row["doc"], []).append(row["text"])
    return found


def commits(bucket: Any) -> int:
    version: int = bucket.table("chunks").snapshot().version
    return version


def reasons(bucket: Any) -> list[str]:
    return [letter.reason for letter in bucket.queue("events").dead_letters.peek(100)]


def spent(bucket: Any, things: list[Any]) -> dict[str, int]:
    handle = INDEX.watcher(bucket)
    before = bucket.requests
    assert handle(things) == [Done()] * len(things)
    found = bucket.requests - before
    kinds = ("get", "look", "list", "create", "replace", "delete")
    return {kind: count for kind in kinds if (count := getattr(found, kind))}


def test_changes_that_come_together_are_one_commit_and_cost_a_get_each(bucket: Any) -> None:
    put(bucket, 60)
    bucket.put("docs/warm.txt", "x")
    INDEX.watcher(bucket)(change("docs/warm.txt"))  # makes the table
    keys = [f"docs/{n}.txt" for n in range(60)]
    # For each the look at its size and its content; for all the head, a file read and one written, the head replaced.
    table = {"get": 2, "create": 1, "replace": 1}
    for count, some in ((1, keys[:1]), (9, keys[1:10]), (50, keys[10:])):
        version = commits(bucket)
        assert spent(bucket, [change(key) for key in some]) == {**table, "get": 2 + count, "look": count}
        assert commits(bucket) == version + 1
    assert len(texts(bucket)) == 61
    again = spent(bucket, [change(key) for key in keys])
    assert again == {"get": 2 + 60, "look": 60}, "nothing changes, so nothing is written"


def test_a_watcher_with_batch_commits_at_most_once_for_each_batch(bucket: Any) -> None:
    put(bucket, 30)
    watch(bucket, batch=10)
    watched(bucket)
    assert commits(bucket) <= 3  # those of several handlers at the same time share one
    assert texts(bucket) == {f"docs/{n}.txt": [f"text {n}"] for n in range(30)}


def test_a_bad_document_among_good_ones_dies_alone(bucket: Any) -> None:
    put(bucket, 8)
    bucket.put("docs/bad.txt", "poison")
    put(bucket, 8, first=8)
    watch(bucket)
    watched(bucket)
    assert len(texts(bucket)) == 16
    assert commits(bucket) == 1
    assert reasons(bucket) == ["stage chunks: ValueError: poison in docs/bad.txt"]


@stage(takes="key string", adds="seen boolean")
def away_for_some(batch: Any) -> Any:
    """Its service is away for some rows."""
    if any("away" in key for key in batch.column("key").to_pylist()):
        raise bucketmq.Unavailable("the model does not answer")
    return {"seen": [True] * batch.num_rows}


def seen_by(*stages: Any) -> Pipeline:
    return Pipeline(name="index", source=SOURCE, stages=(*stages, chunk_stages.chunks), target=CHUNKS)


def test_an_error_of_the_place_is_a_failed_attempt_for_those_alone_that_it_is_about(bucket: Any) -> None:
    keys = ["docs/a.txt", "docs/away.txt", "docs/b.txt"]
    bucket.put_many(dict.fromkeys(keys, "x"))
    outcomes = seen_by(away_for_some).watcher(bucket)([change(key) for key in keys])
    assert [type(each) for each in outcomes] == [Done, Retry, Done]
    assert "the model does not answer" in outcomes[1].reason
    assert texts(bucket) == {"docs/a.txt": ["x"], "docs/b.txt": ["x"]}


def test_one_that_is_tried_again_leaves_the_others_settled() -> None:
    world = World("copying")
    bucket = world.connect()
    bucket.put_many(dict.fromkeys(("docs/a.txt", "docs/away.txt", "docs/b.txt"), "x"))
    watch(bucket, seen_by(away_for_some), retry_seconds=[5, 5])
    for _ in range(3):
        watched(bucket)
        world.advance(10)
    assert texts(bucket) == {"docs/a.txt": ["x"], "docs/b.txt": ["x"]}
    (reason,) = reasons(bucket)
    assert "the model does not answer" in reason
    (letter,) = bucket.queue("events").dead_letters.peek(100)
    assert len(letter.failures) == 3
    world.close()


def test_a_row_that_a_stage_puts_off_comes_back_alone(bucket: Any) -> None:
    @stage(takes="key string, at timestamp, content string, content_state string", adds="seen boolean", later_max=2)
    def not_yet(batch: Any) -> Any:
        keys = batch.column("key").to_pylist()
        waits = {row: Later(7.0, "not there yet") for row, key in enumerate(keys) if "late" in key}
        return Outcomes(rows={"seen": [True] * (len(keys) - len(waits))}, later=waits)

    bucket.put_many(dict.fromkeys(("docs/a.txt", "docs/late.txt"), "x"))
    handle = seen_by(not_yet).watcher(bucket)
    done, back = handle([change("docs/a.txt"), change("docs/late.txt")])
    assert (done, back) == (Done(), Retry("stage not_yet: comes back: not there yet", 7.0))
    (given_up,) = handle([change("docs/late.txt", attempt=3)])
    assert isinstance(given_up, Bury) and "given up after coming back 2 times" in given_up.reason
    assert texts(bucket) == {"docs/a.txt": ["x"]}


def test_the_same_change_twice_is_one_row_in_one_batch_and_in_two(bucket: Any) -> None:
    put(bucket, 2)
    both = [change("docs/0.txt"), change("docs/1.txt")]
    handle = INDEX.watcher(bucket)
    assert handle([*both, both[0]]) == [Done()] * 3
    once = bucket.table("chunks").read()
    assert once.num_rows == 2
    version = commits(bucket)
    assert handle([both[1], both[0]]) == [Done()] * 2
    assert commits(bucket) == version and bucket.table("chunks").read().equals(once)


def test_a_put_and_the_delete_after_it_leave_nothing_in_whatever_batches(bucket: Any) -> None:
    bucket.put("docs/a.txt", "x")
    INDEX.watcher(bucket)(change("docs/a.txt"))
    assert texts(bucket) == {"docs/a.txt": ["x"]}
    there, gone = change("docs/a.txt", 1), change("docs/a.txt", 2, "deleted")
    assert INDEX.watcher(bucket)([there, gone]) == [Done(), Done()]  # the object is still there, as for a late reader
    assert texts(bucket) == {}
    INDEX.watcher(bucket)([there])
    assert texts(bucket) == {}, "late"
    bucket.put("docs/b.txt", "y")
    bucket.delete("docs/b.txt")
    bucket.put("docs/b.txt", "z")
    watch(bucket)
    watched(bucket)
    assert texts(bucket)["docs/b.txt"] == ["z"]


def test_messages_about_one_key_are_written_in_their_order(bucket: Any) -> None:
    """Nothing says which is newer, so the last one counts, for rows and deletions alike, and for objects."""
    targets = (
        ToUpserts(table="chunks", key="id", delete_when="gone"),
        ToObjects(template="out/{id}", body="text", if_exists="replace"),
        ToQueue(queue="out", body="text", text=True),
    )
    source = FromQueue("rows", "id string, text string, gone boolean")
    bucket.queue("rows").send_many(
        [{"id": id_, "text": text, "gone": text == "-"} for id_, text in ("a1", "b1", "a2", "b-", "c-", "c1")]
    )
    deliveries = bucket.queue("rows").receive(10)
    handle = Pipeline(name="p", source=source, targets=targets).watcher(bucket)
    assert handle(deliveries) == [Done()] * 6
    rows = bucket.table("chunks").read().sort_by("id").to_pylist()
    assert [(row["id"], row["text"]) for row in rows] == [("a", "2"), ("c", "1")]
    assert {key: bucket.get(f"out/{key}").body for key in "abc"} == {"a": b"2", "b": b"-", "c": b"1"}
    assert [each.body for each in bucket.queue("out").receive(10)] == ["1", "1", "2", "-", "-", "1"]


def test_a_target_that_is_away_loses_nothing(bucket: Any, tmp_path: Path) -> None:
    """The table is committed, the objects elsewhere are not; later both are there, and no row twice."""
    away = tmp_path / "away"
    away.write_text("not a folder")
    targets = (CHUNKS, ToObjects(template="copies/{+doc}", body="text", bucket=str(away)))
    pipeline = Pipeline(name="index", source=SOURCE, stages=(chunk_stages.chunks,), targets=targets)
    put(bucket, 3)
    changes = [change(f"docs/{n}.txt") for n in range(3)]
    outcomes = pipeline.watcher(bucket)(changes)
    assert all(isinstance(each, Retry) and f"bucket {away} of a target" in each.reason for each in outcomes)
    away.unlink()
    assert pipeline.watcher(bucket)(changes) == [Done()] * 3
    with bucketmq.connect(str(away)) as other:
        assert {other.get(f"copies/docs/{n}.txt").body for n in range(3)} == {b"text 0", b"text 1", b"text 2"}
    assert len(texts(bucket)) == 3 and commits(bucket) == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # its threads die with it
def test_a_watcher_killed_between_any_two_requests_of_a_batch_writes_nothing_twice() -> None:
    targets = (CHUNKS, ToObjects(template="seen/{+doc}", body="text"))
    both = Pipeline(name="index", source=SOURCE, stages=(chunk_stages.chunks,), targets=targets)
    at, dead, committed = 0, True, set()
    while dead:
        world = World("copying")
        living = world.connect()
        watch(living, both, lease_seconds=5)
        put(living, 1)
        watched(living)
        put(living, 2, first=1)
        living.put("docs/bad.txt", "poison")
        dying = world.connect(at=-1, fault="dies after")
        watch(dying, both, lease_seconds=5)
        dying.hands.at = dying.hands.count + at  # what opens the bucket is not counted
        run_until_death(dying)
        committed.add(len(texts(living)))
        assert committed <= {1, 3}, "all of the batch, or nothing"
        world.advance(30)
        watched(living)
        assert texts(living) == {f"docs/{n}.txt": [f"text {n}"] for n in range(3)}
        assert commits(living) == 2, "the repeat changed nothing"
        assert {living.get(f"seen/docs/{n}.txt").body for n in range(3)} == {b"text 0", b"text 1", b"text 2"}
        assert reasons(living) == ["stage chunks: ValueError: poison in docs/bad.txt"]
        dead = dying.hands.dead
        world.close()
        at += 1
    assert at > 15 and committed == {1, 3}


def made(bucket: Any) -> list[str]:
    return sorted(key for key in bucket.rules.matching("").keys if key.startswith("out/"))


def test_objects_that_follow_are_written_and_removed_together(bucket: Any) -> None:
    bucket.put_many({"docs/a": "x\ny", "docs/b": "z"})
    watch(bucket, LINES)
    watched(bucket)
    assert made(bucket) == ["out/docs/a/0", "out/docs/a/1", "out/docs/b/0"]
    bucket.put("docs/a", "y")
    bucket.delete("docs/b")
    watched(bucket)
    assert made(bucket) == ["out/docs/a/0"]


@stage(takes="user string, amount bigint", gives="user string, sum bigint", key="user", state="sum bigint")
def total(key: str, rows: Any, state: dict[str, Any] | None) -> Any:
    kept = (state or {"sum": 0})["sum"] + sum(rows.column("amount").to_pylist())
    return {"user": [key], "sum": [kept]}, {"sum": kept}


def test_where_a_stage_keeps_state_messages_are_handled_one_by_one(bucket: Any) -> None:
    """What is remembered of each key is bounded, so a batch that is delivered again must not outlast it."""
    target = ToUpserts(table="chunks", key="user")
    pipeline = Pipeline(
        name="totals", source=FromQueue("spent", "user string, amount bigint"), stages=(total,), target=target
    )
    queue = bucket.queue("spent")
    queue.send_many([{"user": user, "amount": amount} for user, amount in (("ann", 1), ("ann", 2), ("bob", 4))])
    left = list(queue.receive(10))
    handle = pipeline.watcher(bucket)
    assert handle(left) == [Done(), Release(), Release()]
    while left:
        outcomes = handle(left)
        assert outcomes[0] == Done()
        left = left[1:]
    rows = bucket.table("chunks").read().sort_by("user").to_pylist()
    assert rows == [{"user": "ann", "sum": 3}, {"user": "bob", "sum": 4}]


@pytest.mark.parametrize(("quick_seconds", "sizes"), [(0.0, [2, 2, 2, 2, 2]), (600.0, [2, 4, 4])])
def test_rows_that_go_through_quickly_are_followed_by_twice_as_many(
    bucket: Any, monkeypatch: pytest.MonkeyPatch, quick_seconds: float, sizes: list[int]
) -> None:
    monkeypatch.setattr(watcher_module, "QUICK_SECONDS", quick_seconds)
    seen: list[int] = []

    @stage(takes="key string", gives="text string")
    def look(batch: Any) -> Any:
        seen.append(batch.num_rows)
        return {"text": ["1"] * batch.num_rows}

    put(bucket, 10)
    looking = Pipeline(
        name="look", source=SOURCE, stages=(look,), target=ToQueue(queue="seen", body="text"), task_rows=2
    )
    assert looking.watcher(bucket)([change(f"docs/{n}.txt") for n in range(10)]) == [Done()] * 10
    assert seen == sizes


@pytest.mark.parametrize("limit", ["BATCH_SECONDS", "BYTES_AT_ONCE"])
def test_what_a_batch_has_no_time_or_room_for_is_given_back(
    bucket: Any, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(watcher_module, limit, -1)
    put(bucket, 7)
    slow = Pipeline(name="index", source=SOURCE, stages=INDEX.stages, target=CHUNKS, task_rows=3)
    outcomes = slow.watcher(bucket)([change(f"docs/{n}.txt") for n in range(7)])
    assert outcomes == [Done()] * 3 + [Release()] * 4
    assert sorted(texts(bucket)) == ["docs/0.txt", "docs/1.txt", "docs/2.txt"]
    watch(bucket, slow)
    watched(bucket)
    assert len(texts(bucket)) == 7 and reasons(bucket) == []
