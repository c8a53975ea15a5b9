"""Stages and chains: declared columns, rows that fail among rows that do not, and errors that are not about rows."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
import word_stages as stages

import bucketmq
from bucketmq.pipeline import FromQueue, FromTable, Misshapen, Pipeline, Stage, ToObjects, ToQueue, ToTable, stage
from bucketmq.pipeline.chain import Chain
from bucketmq.pipeline.columns import arrow_schema, type_text
from bucketmq.pipeline.template import encoded, filler
from bucketmq.queue.message import ATTEMPT_ERROR_CHARS_MAX

EVERY_TYPE = (
    "a string, b binary, c boolean, d tinyint, e smallint, f int, g bigint, h float, i double, j date, k timestamp, "
    "l timestamp_ntz, m decimal(12,3), n array<string>, o map<string,bigint>, p struct<x: int, `y z`: array<double>>"
)


def batch_of(ddl: str, rows: list[dict[str, Any]]) -> Any:
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(ddl))


def post_batch(*texts: str | None) -> Any:
    return batch_of(stages.POST, [{"id": f"p{n}", "text": text, "revision": 1} for n, text in enumerate(texts)])


def test_columns_mean_what_they_mean_to_spark(spark: Any) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    theirs = spark.createDataFrame([], EVERY_TYPE).schema
    assert to_arrow_schema(theirs, timezone="UTC").equals(arrow_schema(EVERY_TYPE))


def test_a_type_is_written_as_it_was_read() -> None:
    written = ", ".join(f"`{field.name}` {type_text(field.type)}" for field in arrow_schema(EVERY_TYPE))
    assert arrow_schema(written).equals(arrow_schema(EVERY_TYPE))


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ("", "the name of a column, not the end"),
        ("id", "a type, not the end"),
        ("id text", "a type such as string"),
        ("id string not null", "a comma or the end behind column 'id', not 'not'"),
        ("id string, id int", "'id' twice"),
        ("ID string, id int", "'ID' twice"),
        ("tags array<string", "'>', not the end"),
        ("n decimal(50,2)", "up to 38 digits"),
        ("n string; drop", "from '; drop' on"),
        ("n " + "array<" * 60, "nest deeper"),
    ],
)
def test_columns_that_are_none_are_told_where_they_go_wrong(columns: str, complaint: str) -> None:
    with pytest.raises(bucketmq.Invalid, match=complaint.replace("(", r"\(")):
        arrow_schema(columns)


def test_a_stage_is_given_what_it_takes_and_gives_what_it_declares() -> None:
    rows = batch_of("other int, " + stages.POST, [{"other": 1, "id": "a", "text": "one two", "revision": 4}])
    made = stages.count_words.run(rows)
    assert made.schema.equals(arrow_schema(stages.count_words.gives))
    assert made.to_pylist() == [{"id": "a", "words": 2, "revision": 4}]


def test_a_stage_of_pandas_has_nulls_and_whole_numbers_as_declared() -> None:
    @stage(takes="id string, n bigint", gives="id string, n int, tags array<string>", kind="pandas")
    def tagged(rows: Any) -> Any:
        rows["tags"] = [["a"] if n == n else None for n in rows["n"]]  # noqa: PLR0124  # NaN
        return rows

    made = tagged.run(batch_of("id string, n bigint", [{"id": "a", "n": 1}, {"id": "b", "n": None}]))
    assert made.to_pylist() == [{"id": "a", "n": 1, "tags": ["a"]}, {"id": "b", "n": None, "tags": None}]


@pytest.mark.parametrize("neighbour", [[], [None]])
def test_a_large_number_comes_out_of_pandas_as_it_went_in_whatever_is_beside_it(neighbour: list[None]) -> None:
    large = 2**53 + 1
    columns = "n bigint, tags array<bigint>, part struct<n: bigint>"
    same = Stage(name="same", takes=columns, gives=columns, function=lambda rows: rows, kind="pandas")
    rows = [{"n": n, "tags": [n, *neighbour], "part": {"n": n}} for n in (large, *neighbour)]
    assert same.run(batch_of(columns, rows)).to_pylist() == rows


@pytest.mark.parametrize(
    ("returned", "complaint"),
    [
        ({"id": ["a"]}, "lacks column 'n'; there are id"),
        ({"id": ["a"], "n": ["7"]}, "column 'n' is string, not int64"),
        ({"id": [1], "n": [7]}, "column 'id' is int64, not string"),
        ([{"id": "a", "n": 7}], "is list; it should be a pyarrow RecordBatch"),
    ],
)
def test_a_stage_that_gives_something_else_is_wrong_whatever_the_rows_are(returned: object, complaint: str) -> None:
    odd = Stage(name="odd", takes="id string", gives="id string, n bigint", function=lambda _: returned)
    with pytest.raises(Misshapen, match=complaint):
        Chain([odd]).run(batch_of("id string", [{"id": "a"}]))


def test_rows_that_fail_are_found_one_by_one_and_the_others_go_on_in_order() -> None:
    texts = ["one two"] * 1000
    for place in (0, 17, 18, 999):
        texts[place] = "poison"
    ran = Chain([stages.count_words, stages.judge]).run(post_batch(*texts))
    assert [each.row for each in ran.failed] == [0, 17, 18, 999]
    assert {each.error.splitlines()[0] for each in ran.failed} == {"stage count_words: ValueError: no words in poison"}
    ids = [row["id"] for each in ran.batches for row in each.to_pylist()]
    assert ids == [f"p{n}" for n in range(1000) if n not in (0, 17, 18, 999)]
    for passed in ran.passed:
        assert [row["id"] for row in passed.batch.to_pylist()] == [f"p{n}" for n in passed.rows]


def test_finding_a_row_takes_few_runs() -> None:
    sizes = []

    @stage(takes=stages.POST, gives="id string")
    def counted(batch: Any) -> Any:
        sizes.append(batch.num_rows)
        if "poison" in batch.column("text").to_pylist():
            raise ValueError
        return batch.select(["id"])

    assert len(Chain([counted]).run(post_batch(*["x"] * 700, "poison", *["x"] * 323)).failed) == 1
    assert len(sizes) == 21


def test_rows_that_passed_a_stage_do_not_run_through_it_again_because_of_a_bad_neighbour() -> None:
    runs: Counter[str] = Counter()

    @stage(takes=stages.POST, gives="id string, text string")
    def dear(batch: Any) -> Any:
        runs.update(batch.column("id").to_pylist())
        return batch.select(["id", "text"])

    @stage(takes="id string, text string", gives="id string")
    def picky(batch: Any) -> Any:
        if "poison" in batch.column("text").to_pylist():
            raise ValueError
        return batch.select(["id"])

    texts = ["x"] * 100
    texts[17] = texts[60] = "poison"
    ran = Chain([dear, picky]).run(post_batch(*texts))
    assert [(each.row, each.stage) for each in ran.failed] == [(17, "picky"), (60, "picky")]
    assert {id_ for id_, count in runs.items() if count > 1} == {"p17", "p60"}, (
        "only to make sure whose results they are"
    )
    assert max(runs.values()) == 2


SHUFFLES: dict[str, Callable[[list[int]], list[int]]] = {
    "reversed": lambda numbers: numbers[::-1],
    "some dropped, some doubled": lambda numbers: [n for n in numbers for _ in range(n % 3)],
    "doubled": lambda numbers: [n for n in numbers for _ in range(2)],
    "most dropped": lambda numbers: [n for n in numbers if n % 4 == 0],
    "all alike": lambda numbers: [n - n % 4 for n in numbers],
}


@pytest.mark.parametrize("name", SHUFFLES)
@pytest.mark.parametrize("poison", [{0}, {4}, {5, 8}, {1, 2, 3}, set(range(12))], ids=str)
def test_whatever_a_stage_makes_of_rows_the_ones_at_fault_are_told_and_the_others_complete(
    name: str, poison: set[int]
) -> None:
    shuffled = SHUFFLES[name]
    made = stage(takes="n bigint", gives="n bigint", name="shuffle")(
        lambda batch: {"n": pa.array(shuffled(batch.column("n").to_pylist()), pa.int64())}
    )

    @stage(takes="n bigint", gives="n bigint")
    def picky(batch: Any) -> Any:
        if poison & set(batch.column("n").to_pylist()):
            raise ValueError
        return batch

    ran = Chain([made, picky]).run(batch_of("n bigint", [{"n": n} for n in range(12)]))
    bad = [n for n in range(12) if poison & set(shuffled([n]))]
    assert [each.row for each in ran.failed] == bad
    passed = sorted(row["n"] for each in ran.batches for row in each.to_pylist())
    assert passed == sorted(m for n in range(12) if n not in bad for m in shuffled([n]))


def test_a_value_that_does_not_fit_its_column_fails_its_row() -> None:
    small = Stage(name="small", takes="n bigint", gives="n tinyint", function=lambda batch: batch)
    ran = Chain([small]).run(batch_of("n bigint", [{"n": 1}, {"n": 1000}, {"n": 3}]))
    assert [each.row for each in ran.failed] == [1]
    assert "1000 not in range" in ran.failed[0].error


@pytest.mark.parametrize("error", [bucketmq.Unavailable, bucketmq.Denied, bucketmq.Unsupported, ImportError])
def test_an_error_of_the_place_is_not_the_rows(error: type[Exception]) -> None:
    def fails(_: Any) -> Any:
        raise error("not today")

    with pytest.raises(error, match="not today"):
        Chain([Stage(name="fails", takes="id string", gives="id string", function=fails)]).run(
            batch_of("id string", [{"id": "a"}])
        )


def test_the_text_of_an_error_is_bounded_and_begins_with_what_was_said() -> None:
    def fails(_: Any) -> Any:
        raise ValueError("x" * 100_000)

    (failed,) = (
        Chain([Stage(name="fails", takes="id string", gives="id string", function=fails)])
        .run(batch_of("id string", [{"id": "a"}]))
        .failed
    )
    assert len(failed.error) <= ATTEMPT_ERROR_CHARS_MAX
    assert failed.error.startswith("stage fails: ValueError: xxx")


class PanicException(BaseException):
    """As libraries of Rust raise it."""


@pytest.mark.parametrize("error", [SystemExit(2), PanicException("index out of bounds")])
def test_a_row_that_makes_a_library_give_up_altogether_fails_alone(error: BaseException) -> None:
    @stage(takes="n bigint", gives="n bigint")
    def fragile(batch: Any) -> Any:
        if 3 in batch.column("n").to_pylist():
            raise error
        return batch

    ran = Chain([fragile]).run(batch_of("n bigint", [{"n": n} for n in range(8)]))
    assert [each.row for each in ran.failed] == [3]
    assert ran.failed[0].error.startswith(f"stage fragile: {type(error).__name__}: {error}")


def test_a_row_that_asks_for_more_memory_than_there_can_be_fails_alone() -> None:
    @stage(takes="n bigint", gives="n bigint")
    def roomy(batch: Any) -> Any:
        return {"n": [len(bytearray(n)) for n in batch.column("n").to_pylist()]}

    ran = Chain([roomy]).run(batch_of("n bigint", [{"n": n} for n in (1, 2, 1 << 60, 3)]))
    assert [(each.row, each.error.splitlines()[0]) for each in ran.failed] == [(2, "stage roomy: MemoryError")]
    assert [row["n"] for each in ran.batches for row in each.to_pylist()] == [1, 2, 3]


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("no word: \ud800"), r"stage fails: ValueError: no word: \ud800"),
        (Mute(), "stage fails: Mute"),
    ],
)
def test_an_error_that_cannot_be_written_as_it_is_fails_its_row_and_not_the_query(error: Exception, told: str) -> None:
    def fails(_: Any) -> Any:
        raise error

    odd = Stage(name="fails", takes="id string", gives="id string", function=fails)
    (failed,) = Chain([odd]).run(batch_of("id string", [{"id": "a"}])).failed
    assert failed.error.splitlines()[0] == told
    assert failed.error.encode()


def test_a_stage_is_given_no_more_rows_than_it_wants() -> None:
    sizes = []

    @stage(takes="id string", gives="id string", rows_max=3)
    def few(batch: Any) -> Any:
        sizes.append(batch.num_rows)
        return batch

    assert few.run(batch_of("id string", [{"id": str(n)} for n in range(7)])).num_rows == 7
    assert sizes == [3, 3, 1]


def test_rows_that_a_stage_leaves_out_do_not_fail_in_the_next_one() -> None:
    @stage(takes="n bigint", gives="n bigint")
    def even(batch: Any) -> Any:
        return {"n": [n for n in batch.column("n").to_pylist() if n % 2 == 0]}

    @stage(takes="n bigint", gives="n bigint, most bigint")
    def compared(batch: Any) -> Any:
        most = max(batch.column("n").to_pylist())
        return {"n": batch.column("n"), "most": [most] * batch.num_rows}

    for numbers in ([1, 3, 5], [1], []):
        ran = Chain([even, compared]).run(batch_of("n bigint", [{"n": n} for n in numbers]))
        assert not ran.failed
        assert sum(each.num_rows for each in ran.batches) == 0
    assert compared.run(batch_of("n bigint", [])).schema.equals(arrow_schema(compared.gives))


def test_a_stage_travels_by_its_name_where_it_has_one() -> None:
    assert pickle.loads(pickle.dumps(stages.count_words)) is stages.count_words
    assert b"poison" not in pickle.dumps(stages.count_words)


def test_stages_that_do_not_fit_together_are_told_before_anything_runs() -> None:
    source, target = FromQueue("posts", stages.POST), ToQueue(queue="out")
    with pytest.raises(bucketmq.Invalid, match="'count_words' gives to stage 'count_words' lacks column 'text'"):
        Pipeline(name="p", source=source, stages=(stages.count_words, stages.count_words), target=target).chain()
    with pytest.raises(bucketmq.Invalid, match="the source gives to stage 'judge' lacks column 'words'"):
        Pipeline(name="p", source=source, stages=(stages.judge,), target=target).chain()
    with pytest.raises(bucketmq.Invalid, match="need a column 'name'; there are id, words, revision"):
        Pipeline(
            name="p", source=source, stages=(stages.count_words,), target=ToObjects(template="a/{name}.json")
        ).chain()
    with pytest.raises(bucketmq.Invalid, match="a table has a column 'Batch' of its own"):
        Pipeline(name="p", source=FromQueue("posts", "id string, Batch int"), target=ToTable(path="t")).chain()


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: ToObjects(template="all.json"), "names no column"),
        (lambda: ToObjects(template="a/{id}{id!r}"), "braces"),
        (lambda: ToObjects(template="queues/{id}"), "own keys"),
        (lambda: ToObjects(template="a/../{id}"), "none of them empty"),
        (lambda: ToObjects(template="a/{id}", if_exists="newer"), "goes with newer_by"),
        (lambda: ToTable(path="/t", format="delta"), "must be one of parquet"),
        (lambda: FromTable("/t", "id strin"), "a type such as"),
        (lambda: FromQueue("posts", "message_id string"), "are taken"),
        (lambda: ToQueue(queue="posts.dead"), "for dead letters"),
    ],
)
def test_ends_that_cannot_be_are_told_when_they_are_made(make: Any, complaint: str) -> None:
    with pytest.raises(bucketmq.Invalid, match=complaint):
        make()


HOSTILE = ["../../x", "a/b", "..", ".", "...", "%2e%2e", "a%2Fb", "é", "e\u0301", "\x00", "a\nb", "\\", "*", "~", "a b"]


def test_no_value_leaves_its_place_in_a_key_and_no_two_share_one() -> None:
    fill = filler("pending/{id}.json")
    keys = {}
    for value in HOSTILE:
        keys[value] = fill({"id": value})
        assert keys[value].startswith("pending/")
        assert keys[value].count("/") == 1
    assert len(set(keys.values())) == len(keys)
    with pytest.raises(bucketmq.Invalid, match="is empty"):
        fill({"id": ""})
    with pytest.raises(bucketmq.Invalid, match="lone surrogate"):
        encoded("\ud800")
    with pytest.raises(bucketmq.Invalid, match="bytes in UTF-8"):
        fill({"id": "x" * 1000})


def test_a_value_that_is_a_key_keeps_its_slashes_and_nothing_else() -> None:
    fill = filler("done/{+key}")
    assert fill({"key": "incoming/a/b.txt"}) == "done/incoming/a/b.txt"
    for value in ("../x", "/x", "a//b", "a/", "a\\b"):
        with pytest.raises(bucketmq.Invalid):
            fill({"key": value})
    with pytest.raises(bucketmq.Invalid, match="own keys"):
        filler("{+key}")({"key": "queues/jobs/queue.json"})
