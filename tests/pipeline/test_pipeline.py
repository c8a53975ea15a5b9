"""Pipelines on Spark: what arrives, what dies and comes back, and what happens to a batch that is run again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import word_stages as stages
from pyspark.sql.pandas.types import from_arrow_schema
from spark.conftest import Inbox

import bucketmq.pipeline
import bucketmq.spark
from bucketmq.bucket.urls import open_store
from bucketmq.log.layout import join
from bucketmq.pipeline import FromEvents, FromQueue, FromTable, Pipeline, ToObjects, ToQueue, ToTable
from bucketmq.pipeline.chain import Failed
from bucketmq.pipeline.columns import arrow_schema
from bucketmq.pipeline.dead import DEAD, Back, Fallen, fallen_row
from bucketmq.pipeline.ends import Source, Target
from bucketmq.procedures.bulk.publish import publish
from bucketmq.procedures.requests import Create, Procedure, Replace
from bucketmq.queue.message import Message
from bucketmq.spark.opened import opened
from bucketmq.spark.options import place_of, sink_options, targets_option
from bucketmq.spark.running.run import start
from bucketmq.spark.write.targets_sink import TargetsStreamWriter, Wrote

COUNT = Pipeline(
    name="count",
    source=FromQueue("posts", stages.POST),
    stages=(stages.count_words,),
    target=ToQueue(queue="counts", key="id"),
)


def run(inbox: Inbox, pipeline: Pipeline, checkpoint: str = "cp", **options: str) -> Any:
    """Run a pipeline until it has read what there is."""
    location = str(inbox.folder / checkpoint)
    query = start(pipeline, inbox.url, inbox.spark, once=True, checkpoint=location, options=options)
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return query


def posts(count: int, **others: str) -> list[dict[str, Any]]:
    return [{"id": f"p{n}", "text": others.get(f"p{n}", "one two three"), "revision": 1} for n in range(count)]


def test_a_poison_row_becomes_a_dead_letter_and_the_others_arrive_and_it_does_once_the_stage_is_repaired(
    inbox: Inbox,
) -> None:
    queue = inbox.bucket.queue("posts")
    queue.send_many(posts(1000, p417="poison"), key="k", headers={"from": "tests"})
    run(inbox, COUNT)
    counts = inbox.bodies("counts")
    assert sorted(each["id"] for each in counts) == sorted(f"p{n}" for n in range(1000) if n != 417)
    assert counts[0] == {"id": "p0", "words": 3, "revision": 1}
    (letter,) = queue.dead_letters.peek()
    assert letter.reason == "stage count_words: ValueError: no words in poison"
    assert (letter.subscription, letter.body, letter.key) == ("count", posts(418, p417="poison")[417], "k")
    assert letter.headers == {"from": "tests"}
    assert letter.message.died is not None and letter.message.died.offset == 417
    assert queue.dead_letters.redrive().redriven == 1
    run(inbox, COUNT)
    (letter,) = queue.dead_letters.peek()
    assert [failure["error"].partition("\n")[0] for failure in letter.failures] == [letter.reason] * 2
    assert queue.dead_letters.redrive().redriven == 1
    repaired = Pipeline(
        name="count", source=COUNT.source, stages=(stages.count_all,), target=ToQueue(queue="counts", key="id")
    )
    run(inbox, repaired)
    assert {each["id"]: each["words"] for each in inbox.bodies("counts")}["p417"] == 1
    assert len(inbox.bodies("counts")) == 1000


def run_again(inbox: Inbox, pipeline: Pipeline, batch: int = 0) -> None:
    """What Spark does after a driver was killed behind its target's commit and before its own: the batch once more."""
    for name in (f"{batch}", f".{batch}.crc"):
        (inbox.folder / "cp/commits" / name).unlink(missing_ok=True)
    if not isinstance(pipeline.source, FromTable):
        # The queue is told after Spark's commit: without its register a first batch begins where it began.
        store, prefix = open_store(inbox.url)
        store.delete(join(prefix, f"queues/{pipeline.source.log}/readers/{pipeline.name}.json"))
        store.close()
    query = run(inbox, pipeline)
    again = [each for each in query.recentProgress if each.batchId == batch]
    assert again and again[0].numInputRows > 0  # the rows of that batch, not none


def test_a_batch_that_is_run_again_adds_neither_messages_nor_dead_letters(inbox: Inbox) -> None:
    queue = inbox.bucket.queue("posts", shards=2)
    queue.send_many(posts(50, p7="poison", p30="poison"), key=lambda body: body["id"])
    run(inbox, COUNT)
    run_again(inbox, COUNT)
    assert len(inbox.bodies("counts")) == 48
    assert sorted(letter.body["id"] for letter in queue.dead_letters.peek()) == ["p30", "p7"]


def test_objects_of_a_batch_that_is_run_again_are_reported_once(inbox: Inbox) -> None:
    queue = inbox.bucket.queue("posts")
    queue.send_many([*posts(5, p3="poison"), {"id": "..", "text": "dots", "revision": 1}, {"id": 7}])
    pipeline = Pipeline(
        name="words",
        source=COUNT.source,
        stages=COUNT.stages,
        target=ToObjects(template="words/{id}.json", if_exists="newer", newer_by="revision"),
    )
    run(inbox, pipeline)
    run_again(inbox, pipeline)
    assert inbox.bucket.get_json("words/%2E%2E.json") == {"id": "..", "words": 1, "revision": 1}
    assert sorted(body["key"] for body in inbox.bodies("events")) == [
        "words/%2E%2E.json",
        *(f"words/p{n}.json" for n in (0, 1, 2, 4)),
    ]
    assert [letter.reason for letter in queue.dead_letters.peek()] == [
        "stage count_words: ValueError: no words in poison",
        "stage body: field 'id' of the body is not string as declared: 7",
    ]


def test_rows_of_a_table_go_through_stages_into_a_table_and_a_batch_that_is_run_again_replaces_itself(
    inbox: Inbox,
) -> None:
    into, out = str(inbox.folder / "in"), str(inbox.folder / "out")
    inbox.spark.createDataFrame([(p["id"], p["text"], 1) for p in posts(20, p4="poison")], stages.POST).write.parquet(
        into
    )
    pipeline = Pipeline(
        name="tables",
        source=FromTable(into, stages.POST),
        stages=(stages.count_words,),
        target=ToTable(path=out, partition_by=("revision",)),
    )
    run(inbox, pipeline)
    run_again(inbox, pipeline)
    table = inbox.spark.read.parquet(out)
    assert sorted(row["id"] for row in table.collect()) == sorted(f"p{n}" for n in range(20) if n != 4)
    assert {(row["words"], row["revision"], row["batch"]) for row in table.collect()} == {(3, 1, 0)}
    (letter,) = inbox.bucket.queue("tables").dead_letters.peek()
    assert letter.body == {"id": "p4", "text": "poison", "revision": 1}


def test_a_stage_that_is_unavailable_is_tried_again_and_no_row_dies_of_it(inbox: Inbox) -> None:
    queue = inbox.bucket.queue("posts")
    queue.send_many([{"id": f"p{n}", "text": str(inbox.folder / "asked"), "revision": 1} for n in range(10)])
    run(inbox, Pipeline(name="away", source=COUNT.source, stages=(stages.away,), target=ToQueue(queue="out")))
    assert (inbox.folder / "asked").exists()
    assert len(inbox.bodies("out")) == 10
    assert queue.dead_letters.peek() == []


FROM_POSTS = COUNT.source
FROM_FILES = FromEvents(filter="key REGEXP '^incoming/'", content="text", size_bytes_max=100)


@pytest.mark.parametrize(
    ("source", "stage", "targets"),
    [
        (FROM_POSTS, stages.count_words, (ToQueue(queue="out", key="id"),)),
        (FROM_POSTS, stages.count_or_wait, (ToQueue(queue="out", body="words"),)),
        (FROM_POSTS, stages.count_or_wait, (ToObjects(template="out/{id}", body="words"),)),
        (FROM_POSTS, stages.count_words, (ToObjects(template="out/{id}", if_exists="newer", newer_by="revision"),)),
        (FROM_POSTS, stages.so_far, (ToObjects(template="out/{text}"),)),
        (
            FROM_FILES,
            stages.measure,
            (
                ToObjects(template="out/{+key}"),
                ToObjects(template="out/moved/{+key}", copy_of="key", move=True),
                ToObjects(template="out/copied/{+key}", copy_of="key"),
            ),
        ),
        (FROM_FILES, stages.measure, (ToQueue(queue="out"),)),
        (
            FROM_POSTS,
            stages.count_words,
            (
                ToObjects(template="out/long/{id}", where="words > 2", metadata=("words",), tags=("revision",)),
                ToObjects(template="out/short/{id}", where="words <= 2", body="id", content_type="text/x-id"),
                ToQueue(queue="out", key="id", where="words = 3"),
            ),
        ),
        (FROM_POSTS, stages.spell, (ToObjects(template="out/{id}/{place}", each="letters", content_type="kind"),)),
    ],
)
def test_without_spark_the_same_comes_of_the_same(
    inbox: Inbox, tmp_path: Any, source: Source, stage: Any, targets: tuple[Target, ...]
) -> None:
    pipeline = Pipeline(name="same", source=source, stages=(stage,), targets=targets)
    other = Inbox(tmp_path / "other")
    for each in (inbox, other):
        long = {"id": "x" * 300, "text": "no file has such a name", "revision": 1}
        odd = {"id": "a/b", "text": "x", "revision": 2}
        each.bucket.queue("posts").send_many([*posts(5, p2="poison", p4="asleep"), odd, [1], long])
        for key, body in (("a.txt", b"abc"), ("bad.txt", b"\xff"), ("large.txt", b"x" * 200)):
            each.bucket.put(f"incoming/{key}", body)
    run(inbox, pipeline)
    for _ in range(20):  # what comes back does so twice, each time when it is due
        if stage is not stages.count_or_wait or any("given up" in reason for reason in results(inbox)[1]):
            break
        run(inbox, pipeline)
    if isinstance(source, FromEvents):
        other.bucket.watch(source.filter, name="same", start="beginning")(pipeline.watcher(other.bucket))
        other.bucket.run_watchers(stop_when_empty=True, signals=False)
    else:
        other.bucket.queue("posts").run(pipeline.watcher(other.bucket), stop_when_empty=True, signals=False)
    assert results(inbox) == results(other)
    assert results(inbox)[0]
    other.bucket.close()


def test_a_row_comes_back_to_its_own_pipeline_and_goes_on_when_its_time_has_come(inbox: Inbox) -> None:
    queue = inbox.bucket.queue("posts")
    queue.send_many([{"id": "a", "text": str(inbox.folder / "up"), "revision": 1}], key="k", headers={"from": "tests"})
    pipeline = Pipeline(
        name="waits", source=COUNT.source, stages=(stages.count_when_up,), target=ToQueue(queue="out", key="id")
    )
    run(inbox, pipeline)
    assert inbox.bodies("out") == []
    run_again(inbox, pipeline)  # the batch would pass now, but it was decided that it comes back
    run(inbox, pipeline)
    (came,) = inbox.bodies("out")
    assert (came["id"], came["words"], came["message_key"]) == ("a", 1, "k")
    assert came["message_headers"] == {"from": "tests"}
    run(inbox, pipeline)
    assert len(inbox.bodies("out")) == 1
    assert queue.dead_letters.peek() == []
    assert [each.body["id"] for each in queue.receive(10)] == ["a"], "other readers see it once"


def results(inbox: Inbox) -> tuple[list[Any], list[str]]:
    """What came out, wherever, and what died and why."""
    came: list[Any] = sorted(map(str, inbox.bodies("out")))
    folder = inbox.file("out")
    for path in sorted(folder.rglob("*")) if folder.exists() else ():
        if path.is_file():
            read = inbox.bucket.get(f"out/{path.relative_to(folder)}")
            beside = {name: value for name, value in read.metadata.items() if name != "copy-of"}  # has a version in it
            came.append((read.key, read.body, read.content_type, beside, "copy-of" in read.metadata, read.hops))
    queues = (inbox.bucket.queue(name) for name in ("posts", "events"))
    reasons = (letter.reason for queue in queues for letter in queue.dead_letters.peek())
    return came, sorted(reason.replace(inbox.url, "the bucket") for reason in reasons)


def fallen(body: Any, subscription: str = "p", back: Back | None = None) -> str:
    """A row that failed, as the chain tells of it."""
    message = Message(f"m{str(body)[:5]}", "2026-11-16T08:00:00.000Z", body=body)
    return msgspec.json.encode(Fallen(message, subscription, 0, 0, "e", back=back)).decode()


TO_OUT = (ToQueue(queue="out"),)
SHAPED = arrow_schema(f"_0 struct<body:string>, {DEAD} string")


def writer_of(inbox: Inbox, targets: tuple[Target, ...] = TO_OUT, schema: pa.Schema = SHAPED) -> TargetsStreamWriter:
    """The sink of a pipeline that reads the queue `posts`."""
    given = {"path": inbox.url, "targets": targets_option("p", targets), "deadLetters": "posts", "txn": "t"}
    return TargetsStreamWriter(sink_options(given), from_arrow_schema(schema))


def part_of_rows(inbox: Inbox, dead: set[int], back: Iterable[int] = ()) -> tuple[TargetsStreamWriter, Wrote]:
    """Ten rows written by a task, some of which failed or come back."""
    lost = {n: fallen(n) for n in dead} | {n: fallen(n, back=Back("posts", 0.0, 1)) for n in back}
    made = [{"_0": None if n in lost else {"body": str(n)}, DEAD: lost.get(n)} for n in range(10)]
    writer = writer_of(inbox)
    message = writer.write(iter([pa.RecordBatch.from_pylist(made, schema=SHAPED)]))
    assert isinstance(message, Wrote)
    return writer, message


def test_a_row_whose_key_the_store_has_no_room_for_is_a_dead_letter(plain_inbox: Inbox) -> None:
    queue = plain_inbox.bucket.queue("posts")
    queue.send_many([{"id": each} for each in ("x" * 250, "x" * 251, "short", "\N{BLACK STAR}" * 30)])
    source = FromQueue("posts", "id string")
    pipeline = Pipeline(name="p", source=source, target=ToObjects(template="out/{id}.json"))
    queue.run(pipeline.watcher(plain_inbox.bucket), stop_when_empty=True, signals=False)
    assert len(list(plain_inbox.file("out").iterdir())) == 2
    letters = queue.dead_letters.peek()
    assert [len(letter.body["id"]) for letter in letters] == [251, 30]
    assert all(len(letter.failures) == 1 and "use shorter names" in letter.reason for letter in letters)


@pytest.mark.parametrize("writes", range(5))
def test_a_row_is_a_message_or_a_dead_letter_whichever_attempt_counts(plain_inbox: Inbox, writes: int) -> None:
    """The driver dies after so many writes of its commit; when the batch is run again other rows fail."""
    _, first = part_of_rows(plain_inbox, dead={1, 2, 3})
    here = opened(place_of(plain_inbox.url, "posts.dead", {}), create=True)
    with pytest.raises(KeyboardInterrupt):
        here.run(dying(publish(here.queue, "t", 0, first.made), writes))
    writer, second = part_of_rows(plain_inbox, dead={3, 4})
    writer.commit([second], 0)
    letters = [letter.body for letter in plain_inbox.bucket.queue("posts").dead_letters.peek()]
    assert sorted([*plain_inbox.bodies("out"), *letters]) == list(range(10))
    assert sorted(letters) == ([3, 4] if writes == 0 else [1, 2, 3])


@pytest.mark.parametrize("writes", range(8))
def test_a_row_comes_back_once_or_passes_or_dies_whichever_attempt_counts(plain_inbox: Inbox, writes: int) -> None:
    """The driver dies after so many writes of its commit; when the batch is run again other rows come back."""
    _, first = part_of_rows(plain_inbox, dead={1}, back={2, 3})
    here = opened(place_of(plain_inbox.url, "posts.dead", {}), create=True)
    with pytest.raises(KeyboardInterrupt):
        here.run(dying(publish(here.queue, "t", 0, first.made), writes))
    writer, second = part_of_rows(plain_inbox, dead={2}, back={3, 4})
    writer.commit([second], 0)
    writer.commit([second], 0)
    queue = plain_inbox.bucket.queue("posts")
    letters = [letter.body for letter in queue.dead_letters.peek()]
    back = queue.subscription("p").receive(100, wait_seconds=30)  # they are due within a second
    assert sorted([*plain_inbox.bodies("out"), *letters, *(each.body for each in back)]) == list(range(10))
    assert sorted(each.body for each in back) == ([3, 4] if writes == 0 else [2, 3])
    assert [each.message.died.later for each in back if each.message.died is not None] == [1, 1]
    assert plain_inbox.bodies("posts") == [], "nobody else sees them"


def dying(procedure: Procedure[Any], writes: int) -> Procedure[Any]:
    """A procedure whose process dies before its next write after so many."""
    answer = None
    while True:
        try:
            request = procedure.send(answer)
        except StopIteration:
            raise KeyboardInterrupt from None
        if isinstance(request, Create | Replace) and not request.key.endswith("queue.json"):
            if writes == 0:
                raise KeyboardInterrupt
            writes -= 1
        answer = yield request


def test_a_row_of_a_table_with_a_time_that_python_has_no_room_for_can_die() -> None:
    kind = "t timestamp, d date, n map<string,struct<l: array<timestamp_ntz>>>, id string"
    far = 253_402_300_800_000_000  # the year 10000
    row = {"t": far, "d": 2_932_897, "n": [("x", {"l": [far, 0]})], "id": "a"}
    text = fallen_row(pa.RecordBatch.from_pylist([row], schema=arrow_schema(kind)), "p", Failed(0, "s", "e"))
    assert msgspec.json.decode(text)["message"]["body"] == {
        "t": "10000-01-01 00:00:00.000000Z",
        "d": "10000-01-01",
        "n": {"x": {"l": ["10000-01-01 00:00:00.000000", "1970-01-01 00:00:00.000000"]}},
        "id": "a",
    }


def test_a_row_of_a_table_with_a_number_that_json_has_not_dies_as_it_was() -> None:
    row = {"x": float("nan"), "y": [1.5, float("-inf")], "z": {"w": float("inf")}, "n": None}
    schema = arrow_schema("x double, y array<double>, z struct<w: float>, n double")
    text = fallen_row(pa.RecordBatch.from_pylist([row], schema=schema), "p", Failed(0, "s", "e"))
    assert msgspec.json.decode(text)["message"]["body"] == {
        "x": "nan",
        "y": [1.5, "-inf"],
        "z": {"w": "inf"},
        "n": None,
    }


def test_a_large_body_dies_with_its_message_and_comes_back(plain_inbox: Inbox) -> None:
    queue = plain_inbox.bucket.queue("posts", inline_bytes_max=1000)
    text = "long " * 1000
    row = {"_0": None, DEAD: fallen(text, "main")}
    batch = pa.RecordBatch.from_pylist([row], schema=SHAPED)
    writer = writer_of(plain_inbox)
    writer.commit([writer.write(iter([batch]))], 0)
    assert queue.dead_letters.redrive().redriven == 1
    assert [delivery.body for delivery in queue.receive(10)] == [text]


def test_pipelines_need_no_pyspark() -> None:
    code = (
        "import importlib, pkgutil, sys; sys.modules['pyspark'] = None; import bucketmq.pipeline as room\n"
        "names = [each.name for each in pkgutil.iter_modules(room.__path__)]\n"
        "for name in names: importlib.import_module(f'bucketmq.pipeline.{name}')\n"
        "print(len(names), all(getattr(room, name).__name__ == name for name in room.__all__))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    count, named = done.stdout.split() or (done.stderr, "")
    assert (int(count) >= 15, named) == (True, "True")


@pytest.mark.parametrize("room", [bucketmq.pipeline, bucketmq.spark], ids=lambda room: room.__name__)
def test_every_public_name_can_be_imported_and_no_other(room: Any) -> None:
    assert room.__all__ == sorted(room.__all__)
    for name in room.__all__:
        assert callable(getattr(room, name))
    with pytest.raises(AttributeError, match=f"module '{room.__name__}' has no attribute 'nothing'"):
        room.nothing  # noqa: B018


def test_nothing_of_a_pipeline_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys; from bucketmq.pipeline import FromEvents, FromQueue, Pipeline, ToObjects, ToQueue, stage; "
        "print([name for name in ('pyspark', 'pyarrow', 'pandas', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_planner_does_not_import_pandas() -> None:
    """Spark starts several for every query, and it takes longer than all the rest of ours."""
    code = "import sys, bucketmq.spark.source, pyspark_bucketmq; print('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False"
