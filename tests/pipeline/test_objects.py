"""Objects at both ends of a pipeline: written once and only if that changes something, and read with their events."""

from __future__ import annotations

import json
import os
from collections import Counter
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from spark.conftest import Inbox

import bucketmq
from bucketmq.events.event import ObjectEvent
from bucketmq.pipeline import FromEvents, Pipeline, ToObjects
from bucketmq.pipeline.columns import PLACED_COLUMNS, arrow_schema, ddl_of
from bucketmq.pipeline.dead import DEAD
from bucketmq.pipeline.intake import causes_of
from bucketmq.pipeline.objects import Wanted, write_objects
from bucketmq.pipeline.shape import CAUSE, shape_stage
from bucketmq.pipeline.things import Thing
from bucketmq.procedures.objects.metadata import Cause
from bucketmq.procedures.requests import Create, Procedure, Replace, StoreRequest, Together
from bucketmq.spark.opened import opened
from bucketmq.spark.options import place_of, sink_options, targets_option
from bucketmq.spark.running.flow import Flow
from bucketmq.spark.write.objects_sink import ObjectsStreamWriter, Wrote
from bucketmq.spark.write.targets_sink import TargetsStreamWriter

ROWS = "id string, text string, revision bigint"
NEWER = {"ifExists": "newer", "newerBy": "revision"}


def rows(*made: tuple[Any, ...], columns: str = ROWS) -> Any:
    schema = arrow_schema(columns)
    return pa.RecordBatch.from_pylist([dict(zip(schema.names, row, strict=True)) for row in made], schema=schema)


def write(inbox: Inbox, batch: Any, template: str = "pending/{id}.json", **options: str) -> dict[str, int]:
    """What one task does, and what it tells."""
    given = {"path": inbox.url, "objects": template, **options}
    message = ObjectsStreamWriter(sink_options(given), from_arrow_schema(batch.schema)).write(iter([batch]))
    assert isinstance(message, Wrote)
    return message.counts


def messages(inbox: Inbox) -> list[Any]:
    queue, found, positions = inbox.bucket.queue("events"), [], {0: 0}
    while lot := queue.tail(positions):
        found += lot
    return found


def events(inbox: Inbox) -> list[dict[str, Any]]:
    return [each.body for each in messages(inbox)]


def raw_events(inbox: Inbox) -> Any:
    """The queue of events as Spark's source would give it."""
    made = [
        {
            "id": each.id,
            "key": each.key,
            "body": json.dumps(each.body),
            "sent_at": each.sent_at,
            "shard": each.shard,
            "offset": each.offset,
        }
        for each in messages(inbox)
    ]
    return pa.RecordBatch.from_pylist(made, schema=arrow_schema(ddl_of(PLACED_COLUMNS)))


def flow_rows(inbox: Inbox, source: FromEvents, raw: Any = None) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What comes of the events: rows, and what died."""
    pipeline = Pipeline(name="look", source=source, target=ToObjects(template="seen/{event_id}.json"))
    out = list(Flow(pipeline, place_of(inbox.url, "events", {}))(iter([raw_events(inbox) if raw is None else raw])))
    made = [row for batch in out for row in batch.to_pylist()]
    living = [json.loads(row["_0"][0]["body"]) for row in made if row["_dead"] is None]
    return living, [json.loads(row["_dead"]) for row in made if row["_dead"] is not None]


def test_a_row_is_an_object_and_the_same_row_again_changes_and_reports_nothing(plain_inbox: Inbox) -> None:
    batch = rows(("a", "one", 1), ("b", "two", 1))
    assert write(plain_inbox, batch) == {"written": 2, "same": 0, "kept": 0}
    assert write(plain_inbox, batch) == {"written": 0, "same": 2, "kept": 0}
    read = plain_inbox.bucket.get("pending/a.json")
    assert json.loads(read.body) == {"id": "a", "text": "one", "revision": 1}
    assert read.content_type == "application/json"
    assert sorted((each["key"], each["kind"]) for each in events(plain_inbox)) == [
        ("pending/a.json", "created"),
        ("pending/b.json", "created"),
    ]
    assert write(plain_inbox, rows(("a", "other", 1))) == {"written": 1, "same": 0, "kept": 0}
    assert [each["kind"] for each in events(plain_inbox)] == ["created", "created", "changed"]


def test_a_column_is_the_content_if_one_is_named(plain_inbox: Inbox) -> None:
    write(plain_inbox, rows(("a", "plain", 1)), "t/{id}.txt", body="text", contentType="text/x-note")
    read = plain_inbox.bucket.get("t/a.txt")
    assert (read.body, read.content_type) == (b"plain", "text/x-note")


def test_what_is_there_is_kept_if_that_is_wanted(plain_inbox: Inbox) -> None:
    plain_inbox.bucket.put("pending/a.json", {"by": "somebody else"})
    assert write(plain_inbox, rows(("a", "one", 1), ("b", "two", 1)), ifExists="keep")["kept"] == 1
    assert plain_inbox.bucket.get_json("pending/a.json") == {"by": "somebody else"}
    assert plain_inbox.bucket.get_json("pending/b.json")["text"] == "two"


def test_only_what_is_newer_replaces(plain_inbox: Inbox) -> None:
    assert write(plain_inbox, rows(("a", "ninth", 9)), **NEWER)["written"] == 1
    assert write(plain_inbox, rows(("a", "tenth", 10)), **NEWER)["written"] == 1  # as numbers, not as texts
    for older in (rows(("a", "ninth", 9)), rows(("a", "another tenth", 10))):
        assert write(plain_inbox, older, **NEWER) == {"written": 0, "same": 0, "kept": 1}
    assert plain_inbox.bucket.get_json("pending/a.json")["text"] == "tenth"
    plain_inbox.bucket.put("pending/foreign.json", {})
    assert write(plain_inbox, rows(("foreign", "x", 99)), **NEWER)["kept"] == 1  # it does not say how old it is
    newest = {**NEWER, "ifExists": "newest"}
    assert write(plain_inbox, rows(("foreign", "x", 1)), **newest)["written"] == 1
    assert write(plain_inbox, rows(("foreign", "y", 0)), **newest)["kept"] == 1  # it does now
    at_once = rows(("b", "first", 1), ("b", "third", 3), ("b", "second", 2))
    assert write(plain_inbox, at_once, **NEWER) == {"written": 1, "same": 0, "kept": 2}
    assert plain_inbox.bucket.get_json("pending/b.json")["text"] == "third"


@pytest.mark.parametrize("rival", [1, 3])
@pytest.mark.parametrize("there", [False, True])
def test_of_two_that_race_the_newer_stays(plain_inbox: Inbox, rival: int, there: bool) -> None:
    """The rival writes after we have looked and before we write, whichever of the two is newer."""
    place = place_of(plain_inbox.url, "events", {})
    here = opened(place, create=True)
    target = ToObjects(template="x/{id}", if_exists="newer", newer_by="revision")
    if there:
        here.run(write_objects(here.queue.bucket, [Wanted(target, Thing("x/a", b"zero", "0"))]))
    ours = write_objects(here.queue.bucket, [Wanted(target, Thing("x/a", b"ours", "2"))])
    theirs = Wanted(target, Thing("x/a", b"theirs", str(rival)))
    (did,) = here.run(interrupted(ours, lambda: here.run(write_objects(here.queue.bucket, [theirs]))))
    newer = rival > 2
    assert did == ("kept" if newer else "written")
    assert plain_inbox.bucket.get("x/a").body == (b"theirs" if newer else b"ours")


def interrupted(procedure: Procedure[Any], meanwhile: Any) -> Procedure[Any]:
    """A procedure before whose first write of a user's object something else happens."""
    answer, done = None, False
    while True:
        try:
            request = procedure.send(answer)
        except StopIteration as stop:
            return stop.value
        if writes(request, "x/a") and not done:
            done = True
            meanwhile()
        answer = yield request


def writes(request: Any, key: str) -> bool:
    """Whether a request, or one of those that travel together, writes this object."""
    return any(isinstance(each, Create | Replace) and each.key == key for each in single(request))


def test_a_write_that_lands_without_an_answer_is_one_write(plain_inbox: Inbox) -> None:
    """The process dies when the object is written: the note tells of it, and the row done again adds nothing."""
    here = opened(place_of(plain_inbox.url, "events", {}), create=True)
    wanted = [Wanted(ToObjects(template="x/{id}"), Thing("x/a", b"ours"))]
    died = write_objects(here.queue.bucket, wanted)
    with pytest.raises(KeyboardInterrupt):
        here.run(dying_after(died, "x/a"))
    assert here.run(write_objects(here.queue.bucket, wanted)) == ["same"]
    assert events(plain_inbox) == []
    for note in plain_inbox.file("inventory/notes").iterdir():
        age(note, 60)
    plain_inbox.bucket.recover()
    assert [each["key"] for each in events(plain_inbox)] == ["x/a"]


def dying_after(procedure: Procedure[Any], key: str) -> Procedure[Any]:
    answer = None
    while True:
        request = procedure.send(answer)
        answer = yield request
        if writes(request, key):
            raise KeyboardInterrupt


def single(request: Any) -> tuple[Any, ...]:
    """What is asked for, one by one."""
    return request.requests if isinstance(request, Together) else (request,)


def age(path: Any, seconds: float) -> None:
    stat = path.stat()
    os.utime(path, (stat.st_atime - seconds, stat.st_mtime - seconds))


def test_what_is_written_because_of_an_event_carries_its_hops(plain_inbox: Inbox) -> None:
    cause = json.dumps({"hops": 3, "lineage": ["evt_a"]})
    targets = (ToObjects(template="pending/{id}.json"),)
    shaped = shape_stage(targets, "id string").run(rows(("a",), columns="id string"))
    batch = shaped.append_column(DEAD, pa.nulls(1, pa.string())).append_column(CAUSE, pa.array([cause]))
    given = {"path": plain_inbox.url, "targets": targets_option("p", targets), "deadLetters": "jobs"}
    TargetsStreamWriter(sink_options(given), from_arrow_schema(batch.schema)).write(iter([batch]))
    (event,) = events(plain_inbox)
    assert (event["hops"], event["lineage"]) == (3, ["evt_a"])


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"objects": "a/{name}"}, "need a column 'name'; there are id, text, revision"),
        ({"objects": "a/{id}", "queue": "jobs"}, "queue is for writing messages"),
        ({"objects": "a/{id}", "ifExists": "newer", "newerBy": "sha256"}, "rename the column"),
        ({"objects": "a/{id}", "deadLetters": "jobs"}, "go together"),
        ({"queue": "jobs", "contentType": "text/plain"}, "contentType is for writing objects"),
    ],
)
def test_options_that_make_no_sense_are_told(plain_inbox: Inbox, options: dict[str, str], complaint: str) -> None:
    schema = from_arrow_schema(arrow_schema(ROWS))
    with pytest.raises(bucketmq.Invalid, match=complaint):
        ObjectsStreamWriter(sink_options({"path": plain_inbox.url, **options}), schema)


def test_events_come_with_what_their_objects_hold_now(plain_inbox: Inbox) -> None:
    bucket = plain_inbox.bucket
    bucket.put("incoming/a.txt", "first")
    bucket.put("incoming/gone.txt", "x")
    bucket.put("incoming/bad.txt", b"\xff\xfe")
    bucket.put("incoming/large.txt", "y" * 2000)
    bucket.put("other/b.txt", "not asked for")
    before = raw_events(plain_inbox)
    bucket.put("incoming/a.txt", "second")
    bucket.delete("incoming/gone.txt")
    source = FromEvents(filter="key REGEXP '^incoming/'", content="text", size_bytes_max=1000)
    living, dead = flow_rows(plain_inbox, source, before)
    assert [(row["key"], row["content"], row["content_state"]) for row in living] == [
        ("incoming/a.txt", "second", "replaced"),
        ("incoming/gone.txt", None, "gone"),
    ]
    assert [each["error"].partition(";")[0] for each in dead] == [
        "stage content: 'incoming/bad.txt' is not UTF-8 text: 'utf-8' codec can't decode byte 0xff in position 0: "
        "invalid start byte",
        "stage content: 'incoming/large.txt' has 2,000 bytes, more than 1,000",
    ]
    assert [each["offset"] for each in dead] == [2, 3]


def test_a_filter_may_ask_for_what_only_the_object_knows(plain_inbox: Inbox) -> None:
    plain_inbox.bucket.put("a.json", {"violation": True})
    plain_inbox.bucket.put("b.json", {"violation": False})
    living, dead = flow_rows(plain_inbox, FromEvents(filter="body.violation = true"))
    assert [row["key"] for row in living] == ["a.json"]
    assert dead == []


def test_an_event_told_twice_is_one_row_and_one_that_is_none_is_a_dead_letter(plain_inbox: Inbox) -> None:
    stored = plain_inbox.bucket.put("a.txt", "x")
    plain_inbox.bucket.report([stored.event])
    plain_inbox.bucket.queue("events").send({"hello": 1})
    living, dead = flow_rows(plain_inbox, FromEvents())
    assert [row["event_id"] for row in living] == [stored.event.id]
    assert [each["message"]["body"] for each in dead] == [{"hello": 1}]


def test_a_chain_of_events_ends(plain_inbox: Inbox) -> None:
    event = ObjectEvent(id="evt_1", kind="created", key="a", at="2026-11-16T08:00:00Z", source="trigger", hops=5)
    plain_inbox.bucket.report([event])
    assert flow_rows(plain_inbox, FromEvents(hops_max=5))[1] == []
    (dead,) = flow_rows(plain_inbox, FromEvents(hops_max=4))[1]
    assert "loop guard: 'a' was written in the 5th hop" in dead["error"]


def test_objects_are_fetched_for_so_many_bytes_at_a_time(plain_inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        plain_inbox.bucket.put(f"a/{number}", "x" * 100)
    for module in ("bucketmq.pipeline.intake", "bucketmq.pipeline.content"):
        monkeypatch.setattr(f"{module}.BYTES_AT_ONCE", 500)
    pipeline = Pipeline(name="look", source=FromEvents(content="bytes"), target=ToObjects(template="b/{event_id}"))
    out = Flow(pipeline, place_of(plain_inbox.url, "events", {}))(iter([raw_events(plain_inbox)]))
    assert [batch.num_rows for batch in out] == [5, 5, 5, 5]


def test_rows_made_of_others_carry_the_highest_count_of_hops() -> None:
    causes = [Cause(1, ("a",)), Cause(4, ("b",)), Cause(2)]
    assert causes_of(causes, 3) == causes
    assert causes_of(causes, 2) == [Cause(4, ("b",))] * 2


def test_spark_writes_objects_from_a_table_of_its_own(inbox: Inbox) -> None:
    made = inbox.spark.createDataFrame([("a/b", 1), ("..", 2)], "id string, revision bigint")
    writer = made.write.format("bucketmq").option("path", inbox.url).option("objects", "pending/{id}.json")
    for name, text in NEWER.items():
        writer = writer.option(name, text)
    writer.mode("append").save()
    writer.mode("append").save()
    assert inbox.bucket.get_json("pending/a%2Fb.json") == {"id": "a/b", "revision": 1}
    assert inbox.bucket.get_json("pending/%2E%2E.json") == {"id": "..", "revision": 2}
    assert len(events(inbox)) == 2


def test_things_that_are_written_together_share_a_note_and_a_report(plain_inbox: Inbox) -> None:
    here = opened(place_of(plain_inbox.url, "events", {}), create=True)
    target = ToObjects(template="x/{id}", if_exists="newer", newer_by="revision")

    def put(*things: Thing) -> tuple[list[str], Counter[str]]:
        asked: Counter[str] = Counter()
        writing = write_objects(here.queue.bucket, [Wanted(target, thing) for thing in things])
        return here.run(counted(writing, asked)), asked

    put(Thing("x/warm", b"", "1"))
    fresh = [Thing(f"x/{n}", b"1", "1") for n in range(10)]
    assert put(*fresh) == (["written"] * 10, Counter(Create=12, Delete=1))
    mixed = [Thing("x/0", b"1", "1"), Thing("x/1", b"0", "0"), Thing("x/2", b"2", "2"), Thing("x/new", b"1", "1")]
    did, asked = put(*mixed, Thing("x/2", b"3", "3"))
    assert did == ["same", "kept", "written", "written", "written"]
    assert plain_inbox.bucket.get("x/2").body == b"3"
    assert asked["Replace"] == 2
    told = [each["key"] for each in events(plain_inbox)]
    assert sorted(told) == sorted(["x/warm", *(thing.key for thing in fresh), "x/new", "x/2", "x/2"])


def counted(procedure: Procedure[Any], asked: Counter[str]) -> Procedure[Any]:
    answer = None
    while True:
        try:
            request = procedure.send(answer)
        except StopIteration as stop:
            return stop.value
        asked.update(type(each).__name__ for each in single(request) if isinstance(each, StoreRequest))
        answer = yield request
