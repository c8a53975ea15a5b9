"""Typed rows: models in place of columns, and what does not fit."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal

import msgspec
import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pydantic")

import pyarrow as pa
import pydantic

import bucketmq
from bucketmq.pipeline import FromQueue, Misshapen, Outcomes, Pipeline, ToQueue, stage
from bucketmq.pipeline.chain import Chain
from bucketmq.pipeline.columns import arrow_schema
from bucketmq.pipeline.models import columns_of


class Colour(enum.Enum):
    RED = "red"


class Inner(msgspec.Struct):
    n: int
    at: datetime | None = None


class Everything(msgspec.Struct, rename={"text": "Text"}):
    text: str
    raw: bytes
    price: Decimal
    inner: Inner
    many: list[Inner]
    by_name: dict[str, int]
    colour: Colour
    size: Literal["s", "m"]
    flag: bool = False
    rate: float | None = None


def test_a_model_has_the_columns_of_its_fields() -> None:
    assert arrow_schema(columns_of(Everything)).equals(
        arrow_schema(
            "Text string, raw binary, price decimal(38,9), inner struct<n: bigint, at: timestamp>, "
            "many array<struct<n: bigint, at: timestamp>>, by_name map<string,bigint>, colour string, size string, "
            "flag boolean, rate double"
        )
    )


EVERYTHING = Everything(
    "t",
    b"\x00\xff",
    Decimal("1.5"),
    Inner(2**60, datetime(2026, 1, 2, tzinfo=UTC)),
    [Inner(1)],
    {"a": 1},
    Colour.RED,
    "s",
)


def test_every_field_comes_out_as_it_went_in() -> None:
    came = []

    @stage(takes=Everything, gives=Everything)
    def same(rows: list[Everything]) -> list[Everything]:
        came.extend(rows)
        return rows

    @stage(takes="n bigint", gives=Everything)
    def made(batch: Any) -> list[Everything]:
        return [EVERYTHING] * batch.num_rows

    ran = Chain([made, same]).run(pa.RecordBatch.from_pydict({"n": [1, 2]}))
    assert came == [EVERYTHING] * 2
    assert ran.batches[0].column("rate").to_pylist() == [None, None]


class Post(msgspec.Struct):
    id: str
    text: str
    stars: int = 3


@dataclass
class PostData:
    id: str
    text: str
    stars: int = 3
    tags: list[str] = field(default_factory=list, init=False)


class PostModel(pydantic.BaseModel):
    id: str
    text: str
    stars: int = 3


class Judged(msgspec.Struct):
    words: int


POSTS = "id string, text string, stars bigint, other string"


@pytest.mark.parametrize("model", [Post, PostData, PostModel], ids=lambda model: model.__name__)
def test_rows_that_do_not_fit_fail_with_the_path_and_the_others_go_on(model: Any) -> None:
    given: list[Any] = []

    @stage(takes=model, adds=Judged)
    def judge(rows: list[Any]) -> list[Judged]:
        given.extend(rows)
        return [Judged(len(row.text.split()) * row.stars) for row in rows]

    rows = [
        {"id": "a", "text": "one two", "stars": 1, "other": "x"},
        {"id": "b", "text": None, "stars": 1, "other": "y"},
        {"id": "c", "text": "three", "stars": None, "other": "z"},
    ]
    ran = Chain([judge]).run(pa.RecordBatch.from_pylist(rows, schema=arrow_schema(POSTS)))
    assert [(row["id"], row["other"], row["words"]) for row in ran.batches[0].to_pylist()] == [
        ("a", "x", 2),
        ("c", "z", 3),
    ]
    assert [type(each) for each in given] == [model] * 2, "those that fit are given once"
    (failed,) = ran.failed
    assert failed.row == 1
    assert failed.error.startswith(f"stage judge: does not fit {model.__name__} at $.text: ")


def test_outcomes_speak_of_the_rows_that_were_given_and_not_of_those_that_did_not_fit() -> None:
    @stage(takes=Post, gives=Judged)
    def picky(rows: list[Post]) -> Outcomes:
        bad = {place: "two" for place, row in enumerate(rows) if row.id == "2"}
        good = [place for place in range(len(rows)) if place not in bad]
        return Outcomes(rows=[Judged(int(rows[place].id)) for place in good], failed=bad, of=good)

    rows = [{"id": str(n), "text": None if n == 0 else "x", "stars": 1} for n in range(4)]
    ran = Chain([picky]).run(pa.RecordBatch.from_pylist(rows, schema=arrow_schema(POSTS)))
    assert [(each.row, each.error.partition(": ")[2][:15]) for each in ran.failed] == [
        (0, "does not fit Po"),
        (2, "two"),
    ]
    assert [row["words"] for row in ran.batches[0].to_pylist()] == [1, 3]
    assert [list(each.of or ()) for each in ran.passed] == [[1, 3]]


def test_a_batch_of_which_nothing_fits_does_not_reach_the_function() -> None:
    @stage(takes=Post, adds=Judged)
    def never(rows: list[Post]) -> list[Judged]:
        raise AssertionError

    batch = pa.RecordBatch.from_pylist([{"id": None, "text": "x"}], schema=arrow_schema(POSTS))
    assert [each.error for each in Chain([never]).run(batch).failed] == [
        "stage never: does not fit Post at $.id: Expected `str`, got `null`"
    ]


@pytest.mark.parametrize("returned", [{"words": [1]}, [Post("a", "b")]])
def test_a_stage_that_returns_something_else_is_wrong(returned: Any) -> None:
    odd = stage(takes=Post, adds=Judged, name="odd")(lambda rows: returned)
    batch = pa.RecordBatch.from_pylist([{"id": "a", "text": "x"}], schema=arrow_schema(POSTS))
    with pytest.raises(Misshapen, match=r"what stage 'odd' adds (is dict|has a Post among)"):
        odd.run(batch)


class Odd(msgspec.Struct):
    either: int | str


class Endless(msgspec.Struct):
    inside: Endless | None = None


@pytest.mark.parametrize(
    ("model", "complaint"),
    [(Odd, "Odd.either is .* for which there is no column"), (Endless, "nest deeper"), (int, "a model must be")],
)
def test_a_model_that_columns_cannot_hold_is_told_when_the_stage_is_made(model: Any, complaint: str) -> None:
    with pytest.raises(bucketmq.Invalid, match=complaint):
        stage(takes="n bigint", gives=model, name="s")(print)


def test_models_and_columns_are_joined_alike() -> None:
    source = FromQueue("posts", columns_of(Post))
    judge = stage(takes=Post, adds=Judged, name="judge")(lambda rows: [Judged(1) for _ in rows])
    with bucketmq.connect("memory://") as bucket:
        queue = bucket.queue("posts")
        queue.send_many([{"id": "a", "text": "x"}, {"id": "b"}])
        pipeline = Pipeline(name="p", source=source, stages=(judge,), target=ToQueue(queue="out"))
        queue.run(pipeline.watcher(bucket), stop_when_empty=True, signals=False)
        assert [(each.body["id"], each.body["words"]) for each in bucket.queue("out").receive(9)] == [("a", 1)]
        (letter,) = queue.dead_letters.peek()
        assert letter.reason == "stage judge: does not fit Post at $.text: Expected `str`, got `null`"
