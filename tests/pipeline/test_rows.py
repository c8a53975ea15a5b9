"""What becomes of each row: columns that pass by, rows that fail or come back, and who runs twice because of whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

import bucketmq
from bucketmq.pipeline import FromQueue, Later, Misshapen, Outcomes, Pipeline, Stage, ToQueue, stage
from bucketmq.pipeline.chain import Chain
from bucketmq.pipeline.columns import arrow_schema


def numbers(count: int) -> Any:
    return pa.RecordBatch.from_pydict({"n": range(count), "name": [f"r{n}" for n in range(count)]})


def adding(columns: str, function: Any, takes: str = "n bigint", **options: Any) -> Stage:
    return Stage(name="adding", takes=takes, adds=columns, function=function, **options)


def rows_of(ran: Any) -> list[dict[str, Any]]:
    return [row for each in ran.batches for row in each.to_pylist()]


double = adding("twice bigint", lambda batch: {"twice": [n * 2 for n in batch.column("n").to_pylist()]})


def test_columns_that_a_stage_does_not_name_go_on_beside_those_it_adds() -> None:
    made = double.run(numbers(2))
    assert made.to_pylist() == [{"n": 0, "name": "r0", "twice": 0}, {"n": 1, "name": "r1", "twice": 2}]
    assert double.run(numbers(2).slice(0, 0)).schema.equals(made.schema)


def test_a_column_that_a_stage_takes_and_adds_is_replaced_in_its_place() -> None:
    text = adding("n string", lambda batch: {"n": [str(n) for n in batch.column("n").to_pylist()]})
    assert text.run(numbers(1)).schema.names == ["n", "name"]
    pipeline = Pipeline(name="p", source=FromQueue("q", "n bigint, m int"), stages=(text,), target=ToQueue(queue="o"))
    names = arrow_schema(pipeline.gives).names
    assert names[:2] == ["n", "m"]
    assert arrow_schema(pipeline.gives).field("n").type == pa.string()


def test_columns_add_up_and_are_compared_when_the_pipeline_is_made() -> None:
    source, target = FromQueue("q", "n bigint"), ToQueue(queue="o", body="twice")
    pipeline = Pipeline(name="p", source=source, stages=(double,), target=target)
    assert arrow_schema(pipeline.gives).names == [*arrow_schema(source.columns).names, "twice"]
    uses_it = adding("more int", lambda batch: batch, takes="twice string")
    with pytest.raises(bucketmq.Invalid, match="'adding' gives to stage 'adding': column 'twice' is int64, not string"):
        Pipeline(name="p", source=source, stages=(double, uses_it), target=target)


@pytest.mark.parametrize("columns", ["name string", "Twice int", "message_id string"])
def test_an_added_column_must_not_hide_another(columns: str) -> None:
    source = FromQueue("q", "n bigint, name string, twice int")
    with pytest.raises(bucketmq.Invalid, match=r"choose another name, or let the stage take the column to replace it"):
        Pipeline(name="p", source=source, stages=(adding(columns, lambda batch: batch),), target=ToQueue(queue="o"))


@pytest.mark.parametrize("made", [{}, {"gives": "n int", "adds": "m int"}])
def test_a_stage_reshapes_or_adds(made: dict[str, str]) -> None:
    with pytest.raises(bucketmq.Invalid, match=r"needs gives= .* or adds="):
        Stage(name="s", takes="n bigint", function=print, **made)


@pytest.mark.parametrize(
    ("returned", "complaint"),
    [
        ({"m": [1, 2, 3]}, "has 3 rows for 4: one for each"),
        (Outcomes(rows={"m": [1, 2, 3, 4]}, failed={0: "x"}), "has 4 rows for 3"),
        (Outcomes(rows={"m": [1, 2, 3]}, failed={4: "x"}), "speaks of row 4, but it was given 4"),
        (Outcomes(rows={"m": [1, 2, 3]}, failed={1: "x"}, later={1: Later()}), "row 1 among those that failed and"),
        (Outcomes(rows={"m": [1, 2, 3, 4]}, of=[0, 1, 2, 3]), "of=, which goes with gives="),
        (Outcomes(rows={"m": [1, 2, 3]}, failed=[0]), "failed= and later= are dicts"),  # type: ignore[arg-type]
        (Outcomes(rows={"m": [1, 2, 3]}, failed={0: None}), "failed= has None for row 0"),  # type: ignore[dict-item]
        (Outcomes(rows={"m": [1, 2, 3]}, later={0: 30}), "later= has 30 for row 0"),  # type: ignore[dict-item]
    ],
)
def test_a_stage_that_speaks_of_rows_that_there_are_not_is_wrong(returned: Any, complaint: str) -> None:
    with pytest.raises(Misshapen, match=complaint):
        Chain([adding("m bigint", lambda _: returned)]).run(numbers(4))


def test_what_a_stage_says_of_each_row_becomes_of_it() -> None:
    def picky(batch: Any) -> Outcomes:
        good = [n for n in batch.column("n").to_pylist() if n not in (1, 2)]
        return Outcomes(
            rows={"m": [n + 100 for n in good]}, failed={1: "no ones"}, later={2: Later(5.0, "twos are asleep")}
        )

    ran = Chain([adding("m bigint", picky), double]).run(numbers(4))
    assert [(row["name"], row["m"], row["twice"]) for row in rows_of(ran)] == [("r0", 100, 0), ("r3", 103, 6)]
    assert [(each.row, each.error) for each in ran.failed] == [(1, "stage adding: no ones")]
    (off,) = ran.put_off
    assert (off.row, off.later.delay_seconds, off.later.reason) == (2, 5.0, "twos are asleep")
    assert off.failed("comes back").error == "stage adding: comes back: twos are asleep"


class Counting:
    """An expensive stage that notes what it was asked for."""

    def __init__(self) -> None:
        self.calls: Counter[int] = Counter()

    def __call__(self, batch: Any) -> dict[str, Any]:
        self.calls.update(batch.column("n").to_pylist())
        return {"cost": batch.column("n")}


def picky(bad: set[int]) -> Stage:
    def raises(batch: Any) -> Any:
        if bad & set(batch.column("n").to_pylist()):
            raise ValueError("bad")
        return {"fine": [True] * batch.num_rows}

    return Stage(name="picky", takes="n bigint", adds="fine boolean", function=raises)


@pytest.mark.parametrize("bad", [{17}, {0, 1, 99}, set(range(100))], ids=len)
def test_an_expensive_stage_runs_once_for_each_row_although_neighbours_fail_behind_it(bad: set[int]) -> None:
    dear = Counting()
    ran = Chain([adding("cost bigint", dear), picky(bad)]).run(numbers(100))
    assert [each.row for each in ran.failed] == sorted(bad)
    assert [row["n"] for row in rows_of(ran)] == [n for n in range(100) if n not in bad]
    assert dear.calls == Counter(range(100))


def test_a_stage_that_says_which_rows_failed_runs_once_for_each_row() -> None:
    calls: Counter[int] = Counter()

    def says(batch: Any) -> Outcomes:
        rows = batch.column("n").to_pylist()
        calls.update(rows)
        bad = {place: "odd" for place, n in enumerate(rows) if n % 2}
        return Outcomes(rows={"half": [n // 2 for n in rows if n % 2 == 0]}, failed=bad)

    ran = Chain([adding("half bigint", says, rows_max=7)]).run(numbers(100))
    assert len(ran.failed) == 50
    assert calls == Counter(range(100))


def test_a_stage_that_raises_in_one_of_its_pieces_does_not_run_the_others_again() -> None:
    calls: Counter[int] = Counter()

    def raises(batch: Any) -> Any:
        rows = batch.column("n").to_pylist()
        calls.update(rows)
        if 25 in rows:
            raise ValueError
        return {"m": rows}

    ran = Chain([adding("m bigint", raises, rows_max=10)]).run(numbers(40))
    assert [each.row for each in ran.failed] == [25]
    assert {n for n, count in calls.items() if count > 1} <= set(range(20, 30))


def repeated(batch: Any) -> Outcomes:
    """Each row n times, and where they come from."""
    rows = batch.column("n").to_pylist()
    of = [place for place, n in enumerate(rows) for _ in range(n % 4)]
    return Outcomes(rows={"n": [rows[place] for place in of], "copy": range(len(of))}, of=of)


@pytest.mark.parametrize("bad", [{3}, {5, 6, 7}, {0}], ids=str)
def test_rows_whose_origin_is_told_are_traced_through_all_that_follows(bad: set[int]) -> None:
    dear = Counting()
    spread = Stage(name="spread", takes="n bigint", gives="n bigint, copy bigint", function=repeated)
    ran = Chain([spread, adding("cost bigint", dear), picky(bad)]).run(numbers(12))
    gone = {n for n in bad if n % 4}
    assert {each.row for each in ran.failed} == gone, "a row fails as a whole, and once"
    assert [row["n"] for row in rows_of(ran)] == [n for n in range(12) if n not in gone for _ in range(n % 4)]
    assert dear.calls == Counter({n: n % 4 for n in range(12) if n % 4})
    assert [list(each.of or ()) for each in ran.passed] == [[row["n"] for row in rows_of(ran)]]


@pytest.mark.parametrize("told", [True, False], ids=["of told", "of not told"])
@pytest.mark.parametrize("shuffle", ["reversed", "doubled", "some"])
def test_rows_that_a_stage_says_failed_are_found_whatever_came_before(told: bool, shuffle: str) -> None:
    orders: dict[str, Any] = {
        "reversed": lambda count: list(range(count))[::-1],
        "doubled": lambda count: [n for n in range(count) for _ in range(2)],
        "some": lambda count: [n for n in range(count) if n % 3],
    }

    def before(batch: Any) -> Any:
        if shuffle == "some":  # by the row, so that it is pure
            of: Sequence[int] = [place for place, n in enumerate(batch.column("n").to_pylist()) if n % 3]
        else:
            of = orders[shuffle](batch.num_rows)
        rows = batch.take(pa.array(of, pa.int64())).select(["n"])
        return Outcomes(rows=rows, of=of) if told else rows

    def says(batch: Any) -> Outcomes:
        rows = batch.column("n").to_pylist()
        failed = {place: "four" for place, n in enumerate(rows) if n == 4}
        later = {place: Later() for place, n in enumerate(rows) if n == 7}
        good = [n for place, n in enumerate(rows) if place not in failed and place not in later]
        return Outcomes(rows={"m": good}, failed=failed, later=later)

    first = Stage(name="first", takes="n bigint", gives="n bigint", function=before)
    ran = Chain([first, adding("m bigint", says)]).run(numbers(10))
    assert [each.row for each in ran.failed] == [4]
    assert [each.row for each in ran.put_off] == [7]
    expected = [n for n in orders[shuffle](10) if n not in (4, 7)]
    assert sorted(row["m"] for row in rows_of(ran)) == sorted(expected)


def test_a_row_that_failed_in_part_takes_the_rest_along_also_through_a_stage_that_tells_nothing() -> None:
    spread = Stage(name="spread", takes="n bigint", gives="n bigint, copy bigint", function=repeated)

    def last_copy_fails(batch: Any) -> Any:
        rows = batch.to_pylist()
        bad = {place: "the last of them" for place, row in enumerate(rows) if (row["n"], row["copy"]) == (3, 5)}
        return Outcomes(rows={"n": [row["n"] for place, row in enumerate(rows) if place not in bad]}, failed=bad)

    mute = Stage(name="mute", takes="n bigint, copy bigint", gives="n bigint", function=last_copy_fails)
    ran = Chain([spread, mute]).run(numbers(6))
    assert [each.row for each in ran.failed] == [3]
    assert [row["n"] for row in rows_of(ran)] == [1, 2, 2, 5]


def test_a_delay_is_bounded() -> None:
    with pytest.raises(bucketmq.Invalid, match="after 0 to 604800 seconds"):
        Later(-1)


@stage(takes="n bigint", adds="twice bigint", kind="pandas")
def doubled(rows: Any) -> Any:
    return rows.rename(columns={"n": "twice"}) * 2


def test_a_stage_of_pandas_adds_columns_too() -> None:
    assert doubled.run(numbers(3)).column("twice").to_pylist() == [0, 2, 4]
