"""Running a pipeline again: it alone is told, what is told is what was asked for, and equal results are not written."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyarrow")

from bucketmq.bucket.port import Found
from bucketmq.client import Bucket, connect
from bucketmq.errors import Invalid, NotFound
from bucketmq.pipeline import FromEvents, FromQueue, FromTable, Pipeline, ToObjects, ToQueue, stage
from bucketmq.pipeline.again import Retold, Which, retell
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.upkeep.readers import begin_reader

BODY = "id string, text string"


@stage(takes=BODY, gives="id string, size int")
def measure(batch: Any) -> Any:
    return {"id": batch.column("id"), "size": [len(text) for text in batch.column("text").to_pylist()]}


@stage(takes="key string, content string", gives="id string, text string")
def as_post(batch: Any) -> Any:
    return {"id": batch.column("key"), "text": batch.column("content")}


POSTS = Pipeline(
    name="measuring", source=FromQueue("posts", BODY), stages=(measure,), target=ToObjects(template="sizes/{id}.json")
)
COPIES = Pipeline(name="copying", source=FromQueue("posts"), target=ToQueue(queue="copies", body="body"))
NOTES = Pipeline(
    name="noting",
    source=FromEvents(filter='WHERE `key` LIKE "notes/%"', content="text"),
    stages=(as_post, measure),
    target=ToObjects(template="sizes/{+id}.json"),
)


@pytest.fixture
def bucket() -> Any:
    with connect("memory://") as made:
        yield made


def again(bucket: Bucket, pipeline: Pipeline, *, dry_run: bool = False, **which: Any) -> Retold:
    def work() -> Procedure[Retold]:
        opened = yield from bucket.api.open()
        return (yield from retell(opened, pipeline, Which(**which), dry_run=dry_run))

    return bucket.run(work())


def work_off(bucket: Bucket, pipeline: Pipeline) -> None:
    if isinstance(pipeline.source, FromEvents):
        bucket.run_watchers(pipeline.name, stop_when_empty=True)
    else:
        reader = bucket.queue(pipeline.source.log).subscription(pipeline.name, start="earliest")
        reader.run(pipeline.watcher(bucket), stop_when_empty=True)


def send(bucket: Bucket, *ids: str, text: str = "hello") -> None:
    for each in ids:
        bucket.queue("posts").send({"id": each, "text": text}, key=each)


def seen(bucket: Bucket, subscription: str, *, queue: str = "posts", field: str = "id") -> list[str]:
    found = []
    reader = bucket.queue(queue).subscription(subscription, start="earliest")
    while batch := reader.receive(100):
        for delivery in batch:
            found.append(delivery.body[field])
            delivery.ack()
    return found


def version(bucket: Bucket, key: str) -> str:
    found = bucket.store.look(key)
    assert isinstance(found, Found)
    return found.version


def test_a_message_is_told_to_this_pipeline_alone_and_its_result_comes_back(bucket: Bucket) -> None:
    send(bucket, "a", "b")
    work_off(bucket, POSTS)
    assert seen(bucket, "others") == ["a", "b"]
    bucket.delete("sizes/a.json")
    told = again(bucket, POSTS, keys=("a",))
    assert (told.told, told.looked_at) == (1, 2)
    work_off(bucket, POSTS)
    assert bucket.get_json("sizes/a.json") == {"id": "a", "size": 5}
    assert seen(bucket, "others") == []


def test_a_result_that_would_be_equal_is_not_written_again(bucket: Bucket) -> None:
    send(bucket, "a")
    work_off(bucket, POSTS)
    before = version(bucket, "sizes/a.json")
    again(bucket, POSTS, prefix="")
    work_off(bucket, POSTS)
    assert version(bucket, "sizes/a.json") == before


def test_what_was_told_again_is_not_told_twice_by_the_next_time(bucket: Bucket) -> None:
    send(bucket, "a", "b", "c")
    work_off(bucket, POSTS)
    assert [again(bucket, POSTS, prefix="").told for _ in range(3)] == [3, 3, 3]


def test_messages_are_chosen_by_key_prefix_and_time(bucket: Bucket) -> None:
    send(bucket, "a1", "a2", "b1")
    work_off(bucket, POSTS)
    now = bucket.now_seconds

    def told(**which: Any) -> int:
        return again(bucket, POSTS, dry_run=True, **which).told

    assert told(prefix="a") == 2
    assert told(prefix="") == 3
    assert told(keys=("a1", "b1", "none")) == 2
    assert told(since=now - 3600) == 3
    assert told(since=now - 3600, prefix="b") == 1
    assert told(since=now - 3600, until=now - 1800) == 0
    assert told(since=now + 3600) == 0


def test_a_dry_run_writes_nothing_and_bounds_the_cost(bucket: Bucket) -> None:
    send(bucket, "a", "b")
    work_off(bucket, POSTS)
    before = bucket.requests
    told = again(bucket, POSTS, dry_run=True, prefix="")
    assert (bucket.requests - before).writes == 0
    assert (told.told, told.reads_max, told.writes_max) == (2, 2, 1 + 2 * 3)


def test_telling_costs_one_write_for_a_shard_and_a_read_for_each_segment(bucket: Bucket) -> None:
    send(bucket, *(str(number) for number in range(20)))
    work_off(bucket, POSTS)
    before = bucket.requests
    again(bucket, POSTS, prefix="")
    spent = bucket.requests - before
    assert spent.writes == 1
    assert spent.reads <= 20 + 3


def test_large_bodies_come_along(bucket: Bucket) -> None:
    send(bucket, "large", text="x" * 400_000)
    work_off(bucket, POSTS)
    bucket.delete("sizes/large.json")
    again(bucket, POSTS, keys=("large",))
    work_off(bucket, POSTS)
    assert bucket.get_json("sizes/large.json")["size"] == 400_000


def test_events_are_told_to_the_watcher_of_this_pipeline_alone(bucket: Bucket) -> None:
    bucket.watch(NOTES.source.filter, name=NOTES.name, start="beginning")(NOTES.watcher(bucket))  # type: ignore[union-attr]
    bucket.rules.add("others", to="queue:others", filter='WHERE `key` LIKE "notes/%"')
    bucket.put("notes/a", "hello")
    bucket.put("notes/b", "good morning")
    work_off(bucket, NOTES)
    bucket.notify(stop_when_empty=True)
    assert bucket.queue("others").stats().ready == 2
    bucket.delete("sizes/notes/a.json")
    assert again(bucket, NOTES, keys=("notes/a",)).told == 1
    assert again(bucket, NOTES, prefix="notes/", dry_run=True).told == 2
    assert again(bucket, NOTES, since=bucket.now_seconds - 60, dry_run=True).told == 2
    work_off(bucket, NOTES)
    bucket.notify(stop_when_empty=True)
    assert bucket.get_json("sizes/notes/a.json")["size"] == 5
    assert bucket.queue("others").stats().ready == 2


def test_events_for_a_query_on_spark_go_to_its_reader(bucket: Bucket) -> None:
    bucket.put("notes/a", "hello")

    def begin() -> Procedure[None]:
        queue = yield from bucket.api.queue("events").open()
        yield from begin_reader(queue, NOTES.name, {0: 0}, {}, holds=True)

    bucket.run(begin())
    assert again(bucket, NOTES, keys=("notes/a",)).told == 1
    assert seen(bucket, NOTES.name, queue="events", field="key") == ["notes/a", "notes/a"]
    assert seen(bucket, "others", queue="events", field="key") == ["notes/a"]


def test_a_pipeline_that_never_ran_cannot_be_told(bucket: Bucket) -> None:
    send(bucket, "a")
    for pipeline in (POSTS, COPIES, NOTES):
        with pytest.raises(NotFound, match="has never run on this bucket"):
            again(bucket, pipeline, prefix="")


def test_a_pipeline_of_a_table_cannot_be_told(bucket: Bucket) -> None:
    table = Pipeline(name="t", source=FromTable("x", BODY), target=ToQueue(queue="out"))
    with pytest.raises(Invalid, match="reads a table"):
        again(bucket, table, prefix="")


def test_a_pipeline_with_state_is_not_told_twice(bucket: Bucket) -> None:
    @stage(takes=BODY, gives="id string, size int", key="id", state="count int")
    def tally(key: Any, rows: Any, before: Any) -> Any:
        raise NotImplementedError

    counting = Pipeline(name="tally", source=POSTS.source, stages=(tally,), target=ToQueue(queue="out"))
    with pytest.raises(Invalid, match="stage 'tally' keeps state by key"):
        again(bucket, counting, prefix="")


@pytest.mark.parametrize(
    ("which", "said"),
    [
        ({}, "say what to run again"),
        ({"keys": ("a",), "prefix": "b"}, "keys or a prefix, not both"),
        ({"prefix": "a", "until": 1.0}, "until goes with since"),
    ],
)
def test_what_is_not_said_clearly_is_refused(which: dict[str, Any], said: str) -> None:
    with pytest.raises(Invalid, match=said):
        Which(**which)
