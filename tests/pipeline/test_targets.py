"""Several targets of one pipeline: which rows go where, what each object carries, and what happens when one is away.

Without Spark, on a bucket in a folder and one in another; `test_targets_on_spark` has the same with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bucketmq
from bucketmq.pipeline import FromEvents, FromQueue, FromTable, Pipeline, ToObjects, ToQueue, ToTable, ToUpserts, stage
from bucketmq.pipeline.columns import arrow_schema
from bucketmq.pipeline.shape import shape_stage
from bucketmq.pipeline.where import Where
from pipeline.dying import Stopped, dying_after

POST = "id string, text string, score double, flagged boolean"


class Home:
    """A bucket with posts, and another one."""

    def __init__(self, folder: Path) -> None:
        self.bucket = bucketmq.connect(str(folder / "home"))
        self.other = bucketmq.connect(str(folder / "other"))
        self.elsewhere = str(folder / "other")
        self.posts = self.bucket.queue("posts")

    def run(self, *targets: Any, source: str = POST) -> None:
        pipeline = Pipeline(name="p", source=FromQueue("posts", source), targets=targets)
        self.posts.run(pipeline.watcher(self.bucket), stop_when_empty=True, signals=False)

    def bodies(self, queue: str, bucket: Any = None) -> list[Any]:
        return [each.body for each in (bucket or self.bucket).queue(queue).receive(100)]

    def reasons(self) -> list[str]:
        return [letter.reason for letter in self.posts.dead_letters.peek()]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path)
    yield made
    made.bucket.close()
    made.other.close()


def post(name: str, score: float | None = 0.5, *, flagged: bool | None = False, text: str = "x") -> dict[str, Any]:
    return {"id": name, "text": text, "score": score, "flagged": flagged}


def test_each_row_goes_to_the_targets_whose_condition_is_true_of_it(home: Home) -> None:
    home.posts.send_many([post("a", 0.9), post("b", 0.1, flagged=True), post("c", None, flagged=None)])
    home.run(
        ToObjects(template="all/{id}.json"),
        ToObjects(template="flagged/{id}.json", where="flagged"),
        ToQueue(queue="likely", body="id", text=True, where="score >= 0.8 AND id != 'z'"),
        ToQueue(queue="unlikely", body="id", text=True, where="NOT score >= 0.8"),
    )
    found = {each for each in "abc" for folder in ("all",) if home.bucket.look(f"{folder}/{each}.json")}
    assert found == {"a", "b", "c"}
    assert [home.bucket.look(f"flagged/{each}.json") is not None for each in "abc"] == [False, True, False]
    assert (home.bodies("likely"), home.bodies("unlikely")) == (["a"], ["b"])  # unknown is neither


@pytest.mark.parametrize(
    ("where", "true_of"),
    [
        ("flagged", [1]),
        ("flagged = false", [0, 3]),
        ("`score` > 0.5 OR text LIKE 'sp%'", [0, 1]),
        ("score IS NULL", [2]),
        ("about.kind IN ('a', 'b')", [0, 3]),
        ("n = 2", [1]),
    ],
)
def test_conditions_on_columns(where: str, true_of: list[int]) -> None:
    columns = "flagged boolean, score double, text string, n int, about struct<kind: string>"
    rows = [
        (False, 0.9, "x", 1, {"kind": "a"}),
        (True, 0.5, "spam", 2, {"kind": "c"}),
        (None, None, None, None, None),
        (False, 0.1, "y", 3, {"kind": "b"}),
    ]
    schema = arrow_schema(columns)
    batch = pa.RecordBatch.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)
    assert [row for row, true in enumerate(Where(where, columns).rows(batch)) if true] == true_of


@pytest.mark.parametrize(
    ("where", "complaint"),
    [
        ("nothing", "there is no column 'nothing'"),
        ("score", "a column of no truth values"),
        ("score >", "expected a value"),
        ("at > '2026-01-01'", "where compares text, numbers and truth values"),
        ("score.x = 1", "has no fields"),
        ("score > '5'", "never compared with '5'"),
        ("score IN (1, 'two')", "never compared with 'two'"),
        ("score = true", "never compared with True"),
        ("score LIKE '5%'", "column 'score' is double"),
        ("", "where is empty"),
    ],
)
def test_a_condition_that_cannot_be_is_told_before_anything_runs(where: str, complaint: str) -> None:
    target = ToQueue(queue="out", where=where)
    with pytest.raises(bucketmq.Invalid, match=complaint) as caught:
        shape_stage((target,), "score double, at timestamp")
    assert "queue 'out'" in str(caught.value)


@pytest.mark.parametrize("source", [FromQueue("posts", POST), FromEvents()], ids=["queue", "events"])
def test_a_pipeline_that_would_feed_itself_is_refused(source: FromQueue | FromEvents) -> None:
    with pytest.raises(bucketmq.Invalid, match="writes into the queue that it reads"):
        Pipeline(name="p", source=source, target=ToQueue(queue=source.log))


def test_a_pipeline_that_feeds_itself_some_rows_is_not_refused() -> None:
    Pipeline(name="p", source=FromQueue("posts", POST), target=ToQueue(queue="posts", where="flagged"))


def test_elements_of_a_row_that_become_one_object_make_a_dead_letter(home: Home) -> None:
    home.posts.send({"id": "a", "parts": [{"name": "x"}, {"name": "y"}, {"name": "x"}]})
    home.run(ToObjects(template="{id}/{name}", each="parts"), source="id string, parts array<struct<name:string>>")
    (reason,) = home.reasons()
    assert "two elements of column 'parts' become the object 'a/x'" in reason


def test_a_row_that_one_target_cannot_take_goes_to_none(home: Home) -> None:
    home.posts.send_many([post("a"), post("", text="no key"), post("b")])
    home.run(ToQueue(queue="out", body="text", text=True), ToObjects(template="out/{id}"))
    assert home.bodies("out") == ["x", "x"]
    (reason,) = home.reasons()
    assert reason == "stage target: Invalid: column 'id' is empty here; a key needs a value"


def test_a_row_with_a_number_that_json_has_not_is_a_dead_letter_that_names_the_column(home: Home) -> None:
    @stage(takes="id string", gives="id string, at struct<x: double>")
    def lose(batch: Any) -> dict[str, Any]:
        return {
            "id": batch.column("id"),
            "at": [{"x": float("nan" if n == "b" else n)} for n in batch["id"].to_pylist()],
        }

    home.posts.send_many([{"id": "1"}, {"id": "b"}, {"id": "2"}])
    for name, target in {
        "rows": ToObjects(template="rows/{id}"),
        "column": ToObjects(template="column/{id}", body="at"),
        "queue": ToQueue(queue="out"),
    }.items():
        pipeline = Pipeline(name=name, source=FromQueue("posts", "id string"), stages=(lose,), target=target)
        home.posts.subscription(name).run(pipeline.watcher(home.bucket), stop_when_empty=True, signals=False)
    assert home.bucket.get_json("rows/1") == {"id": "1", "at": {"x": 1.0}}
    assert home.bucket.get_json("column/2") == {"x": 2.0}
    assert home.bucket.look("rows/b") is None and home.bucket.look("column/b") is None
    assert [letter.body for letter in home.posts.dead_letters.peek()] == [{"id": "b"}] * 3
    assert sum("column 'at': body.x is nan, which JSON does not have" in each for each in home.reasons()) == 2
    assert sum("at.x is nan" in each for each in home.reasons()) == 1


def test_metadata_that_a_row_has_no_more_goes_and_the_same_row_again_writes_nothing(home: Home) -> None:
    target = ToObjects(template="out/{id}", body="id", metadata=("page", "size"), if_exists="replace")
    versions = []
    for page in ("7", None, None):
        home.posts.send({"id": "a", "page": page, "size": 1})
        home.run(target, source="id string, page string, size int")
        found = home.bucket.get("out/a")
        assert found.metadata.get("page") == page
        versions.append(found.version)
    assert versions[0] != versions[1] == versions[2]


def test_content_type_metadata_and_tags_come_from_columns(home: Home) -> None:
    source = "id string, kind string, about map<string,string>, size int, hot boolean, page string"
    row = {"id": "a", "kind": "image/webp", "about": {"Owner": "rosa"}, "size": 7, "hot": True, "page": None}
    home.posts.send_many([row, {**row, "id": "b", "kind": None, "about": None}])
    home.run(
        ToObjects(template="one/{id}", body="id", content_type="kind", metadata="about", tags=("size", "hot")),
        ToObjects(template="two/{id}.txt", body="id", metadata=("size", "page"), content_type="text/x-note"),
        source=source,
    )
    one, two, bare = (home.bucket.get(key) for key in ("one/a", "two/a.txt", "one/b"))
    assert (one.content_type, bare.content_type) == ("image/webp", "application/octet-stream")
    assert {**one.metadata, "sha256": ""} == {"owner": "rosa", "tag-size": "7", "tag-hot": "true", "sha256": ""}
    assert (two.content_type, two.metadata["size"], "page" in two.metadata) == ("text/x-note", "7", False)


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"kind": "no type\n"}, "is not a content type"),
        ({"about": {"sha256": "x"}}, "metadata 'sha256' means something else"),
        ({"about": {"owner": "Zoë"}}, "must be printable ASCII"),
        ({"about": {"a b": "x"}}, "metadata name 'a b'"),
        ({"about": {"long": "x" * 1900}}, "leaves no room"),
    ],
)
def test_what_no_store_could_keep_beside_an_object_is_a_dead_letter(
    home: Home, row: dict[str, Any], complaint: str
) -> None:
    home.posts.send_many([{"id": "bad", **row}, {"id": "good"}])
    target = ToObjects(template="out/{id}", body="id", content_type="kind", metadata="about")
    home.run(target, source="id string, kind string, about map<string,string>")
    assert home.bucket.look("out/good") is not None and home.bucket.look("out/bad") is None
    (reason,) = home.reasons()
    assert complaint in reason


def test_one_row_becomes_several_objects(home: Home) -> None:
    parts = "array<struct<size: int, body: binary, kind: string>>"

    @stage(takes="id string", gives=f"id string, thumbs {parts}")
    def shrink(batch: Any) -> dict[str, Any]:
        made = [
            None if name == "none" else [{"size": n, "body": b"x" * n, "kind": "image/webp"} for n in (2, 8)]
            for name in batch["id"].to_pylist()
        ]
        return {"id": batch.column("id"), "thumbs": pa.array(made, arrow_schema(f"x {parts}").field("x").type)}

    home.posts.send_many([{"id": "a/b"}, {"id": "none"}])
    thumbs = ToObjects(
        template="thumbs/{size}/{+id}", each="thumbs", body="body", content_type="kind", metadata=("size",)
    )
    facts = ToObjects(template="facts/{size}/{id}", each="thumbs", body="size")
    pipeline = Pipeline(name="p", source=FromQueue("posts", "id string"), stages=(shrink,), targets=(thumbs, facts))
    home.posts.run(pipeline.watcher(home.bucket), stop_when_empty=True, signals=False)
    small, large = home.bucket.get("thumbs/2/a/b"), home.bucket.get("thumbs/8/a/b")
    assert (small.body, large.body, large.content_type, large.metadata["size"]) == (b"xx", b"x" * 8, "image/webp", "8")
    assert home.bucket.get_json("facts/8/a%2Fb") == 8
    assert home.reasons() == []


@pytest.mark.parametrize(
    ("target", "complaint"),
    [
        (ToObjects(template="{id}", each="text"), "not array<struct"),
        (ToObjects(template="{id}", each="parts"), "need a column 'parts'"),
        (ToObjects(template="{id}", content_type="kind"), r"need a column 'kind' \(a content type has a slash\)"),
        (ToObjects(template="{id}", content_type="score"), "content type of the objects '{id}' is a text"),
        (ToObjects(template="{id}", metadata="text"), "not map<string,string>; name columns as a tuple"),
        (ToObjects(template="{id}", metadata=("text", "more")), "need a column 'more'"),
        (ToQueue(queue="out", key="more"), "needs a column 'more'"),
    ],
)
def test_columns_that_do_not_fit_are_told_before_anything_runs(target: Any, complaint: str) -> None:
    pipeline = Pipeline(name="p", source=FromQueue("posts", POST), targets=(ToQueue(queue="all"), target))
    with pytest.raises(bucketmq.Invalid, match=complaint):
        pipeline.chain()


def made(**ends: Any) -> Callable[[], Pipeline]:
    return lambda: Pipeline(name="p", source=FromQueue("posts", POST), **ends)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (made(), "needs a target"),
        (made(target=ToQueue(queue="a"), targets=(ToQueue(queue="b"),)), "and not both"),
        (made(targets=[ToQueue(queue="a")]), "must be a tuple"),
        (made(targets=("queue",)), "must be a tuple of ToQueue"),
        (made(target=ToObjects(template="{id}", follows="id")), "the source must be FromEvents"),
        (lambda: ToObjects(template="{id}", follows="id", if_exists="newer", newer_by="n"), "leave if_exists and"),
        (lambda: ToQueue(queue="a", bucket="ftp://x"), "begins with no known scheme"),
    ],
)
def test_pipelines_that_make_no_sense_are_told(make: Callable[[], Any], complaint: str) -> None:
    with pytest.raises(bucketmq.Invalid, match=complaint):
        make()


def test_a_table_among_several_targets_needs_spark(home: Home) -> None:
    ends = (ToQueue(queue="a"), ToTable(path="x"))
    pipeline = Pipeline(name="p", source=FromTable("in", "id string"), targets=ends)
    with pytest.raises(bucketmq.Invalid, match="needs Spark"):
        pipeline.watcher(home.bucket)


def test_targets_in_another_bucket_are_written_and_reported_there(home: Home) -> None:
    home.posts.send_many([post("a"), post("b")])
    home.run(
        ToObjects(template="out/{id}", body="text", bucket=home.elsewhere),
        ToQueue(queue="out", body="id", text=True, bucket=home.elsewhere),
        ToQueue(queue="out", body="id", text=True),
    )
    assert home.other.get("out/a").body == b"x"
    assert home.bucket.look("out/a") is None
    assert sorted(home.bodies("out", home.other)) == sorted(home.bodies("out")) == ["a", "b"]
    assert sorted(body["key"] for body in home.bodies("events", home.other)) == ["out/a", "out/b"]


def test_a_key_that_another_bucket_has_no_room_for_is_a_dead_letter(home: Home) -> None:
    home.posts.send_many([post("x" * 300), post("short")])
    home.run(
        ToObjects(template="out/{id}", body="text", bucket=home.elsewhere), ToQueue(queue="out", body="id", text=True)
    )
    assert home.bodies("out") == ["short"]
    (reason,) = home.reasons()
    assert "use shorter names" in reason and f"bucket {home.elsewhere} of a target" in reason


def test_a_bucket_that_is_away_loses_nothing_and_says_which_it_is(home: Home, tmp_path: Path) -> None:
    """The folder cannot be written: somebody put a file in its place. Later it can."""
    away = tmp_path / "away"
    away.write_text("not a folder")
    home.posts.send(post("a"))
    targets = (ToObjects(template="here/{id}"), ToObjects(template="out/{id}", bucket=str(away)), ToQueue(queue="out"))
    pipeline = Pipeline(name="p", source=FromQueue("posts", POST), targets=targets)
    (delivery,) = home.posts.receive(1)
    with pytest.raises(bucketmq.BucketMQError, match=f"bucket {away} of a target"):
        pipeline.watcher(home.bucket)(delivery)
    assert home.bodies("out") == []  # messages come last
    away.unlink()
    assert pipeline.watcher(home.bucket)(delivery) == bucketmq.Done()
    other = bucketmq.connect(str(away))
    assert other.get_json("out/a")["id"] == home.bucket.get_json("here/a")["id"] == "a"
    assert [body["id"] for body in home.bodies("out")] == ["a"]
    other.close()


def test_a_message_out_of_attempts_while_a_bucket_is_away_names_it_and_is_redriven(home: Home, tmp_path: Path) -> None:
    away = tmp_path / "away"
    away.write_text("not a folder")
    once = home.bucket.queue("once", attempts_max=1)
    once.send(post("a"))
    pipeline = Pipeline(
        name="p", source=FromQueue("once", POST), target=ToObjects(template="out/{id}", bucket=str(away))
    )
    reader = once.subscription("p", start="earliest")
    reader.run(pipeline.watcher(home.bucket), stop_when_empty=True, signals=False)
    (letter,) = once.dead_letters.peek()
    assert f"bucket {away} of a target" in letter.reason
    away.unlink()
    once.dead_letters.redrive()
    reader.run(pipeline.watcher(home.bucket), stop_when_empty=True, signals=False)
    assert (away / "out" / "a").exists()


@pytest.mark.parametrize("writes", range(12))
def test_a_handler_that_dies_between_any_two_writes_and_runs_again_completes_every_target(
    home: Home, writes: int
) -> None:
    targets = (
        ToQueue(queue="first", body="id", text=True),
        ToObjects(template="here/{id}", body="text"),
        ToObjects(template="there/{id}", body="text", bucket=home.elsewhere),
        ToQueue(queue="second", body="id", text=True),
    )
    pipeline = Pipeline(name="p", source=FromQueue("posts", POST), targets=targets)
    home.posts.send(post("a"))
    (delivery,) = home.posts.receive(1)
    home.bucket.queue("first"), home.bucket.queue("second"), home.bucket.queue("events")
    died = False
    try:
        with dying_after(writes):
            pipeline.watcher(home.bucket)(delivery)
    except Stopped:
        died = True
    first, second = home.bodies("first"), home.bodies("second")
    if first or second:  # a message tells of objects that are there
        assert home.bucket.get("here/a").body == home.other.get("there/a").body == b"x"
    assert pipeline.watcher(home.bucket)(delivery) == bucketmq.Done()
    assert home.bucket.get("here/a").body == home.other.get("there/a").body == b"x"
    first, second = first + home.bodies("first"), second + home.bodies("second")
    assert set(first) == set(second) == {"a"}  # at least once, as workers are
    assert died or writes > 4
    assert [body["key"] for body in home.bodies("events", home.other)] == ["there/a"]


def test_an_event_and_its_objects_in_one_pipeline_with_two_targets(home: Home) -> None:
    home.bucket.put("in/a.txt", "abc")
    targets = (ToObjects(template="out/{+key}", body="content"), ToQueue(queue="done", body="key", text=True))
    source = FromEvents(filter="key LIKE 'in/%'", content="text")
    pipeline = Pipeline(name="two", source=source, targets=targets)
    home.bucket.watch(source.filter, name="two", start="beginning")(pipeline.watcher(home.bucket))
    home.bucket.run_watchers(stop_when_empty=True, signals=False)
    assert home.bucket.get("out/in/a.txt").body == b"abc"
    assert home.bodies("done") == ["in/a.txt"]
    assert json.dumps(home.reasons()) == "[]"


def test_a_table_has_the_columns_that_its_target_names() -> None:
    target = ToUpserts(table="t", key="id", columns=("text", "id"), where="revision > 1")
    pipeline = Pipeline(
        name="some",
        source=FromQueue("rows", "id string, text string, revision bigint"),
        target=target,
    )
    with bucketmq.connect("memory://") as bucket:
        bucket.queue("rows").send_many([{"id": f"r{n}", "text": "x", "revision": n} for n in range(4)])
        bucket.queue("rows").run(pipeline.watcher(bucket), stop_when_empty=True, signals=False)
        assert bucket.table("t").read().sort_by("id").to_pylist() == [{"text": "x", "id": f"r{n}"} for n in (2, 3)]
    with pytest.raises(bucketmq.Invalid, match="needs a column 'id'; name it among its columns too"):
        ToUpserts(table="t", key="id", columns=("text",))
    with pytest.raises(bucketmq.Invalid, match="needs a column 'other'"):
        Pipeline(
            name="some", source=pipeline.source, target=ToUpserts(table="t", key="id", columns=("id", "other"))
        ).chain()
