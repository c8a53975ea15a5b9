"""Bodies with a schema, without a session: whichever way they are read, the same comes out."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bucketmq.errors import BucketMQError
from bucketmq.pipeline.bodies import BodyReader

KIND = pa.struct(
    [
        ("n", pa.int64()),
        ("small", pa.int8()),
        ("text", pa.string()),
        ("yes", pa.bool_()),
        ("price", pa.float64()),
        ("tags", pa.list_(pa.field("element", pa.string()))),
        ("in", pa.struct([("x", pa.int32()), ("ys", pa.list_(pa.field("element", pa.struct([("z", pa.float64())]))))])),
    ]
)

texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=6)
floats = st.floats(allow_nan=False, allow_infinity=False)
NAMES = ("n", "small", "text", "yes", "price", "tags", "in", "x", "ys", "z", "other")


def fitting(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """What fits a type, and now and then not quite: numbers too large for it."""
    if pa.types.is_struct(kind):
        return st.none() | st.fixed_dictionaries({}, optional={field.name: fitting(field.type) for field in kind})
    if pa.types.is_list(kind):
        return st.none() | st.lists(fitting(kind.value_type), max_size=3)
    by_type = {pa.string(): texts, pa.bool_(): st.booleans(), pa.float64(): floats | st.integers()}
    return st.none() | by_type.get(kind, st.integers(-130, 130) | st.integers())


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | floats | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def bodies(draw: st.DrawFn) -> bytes | None:
    value = draw(fitting(KIND) | fitting(KIND) | anything)
    if value is None and draw(st.booleans()):
        return None
    compact = {"separators": (",", ":")} if draw(st.booleans()) else {}
    return json.dumps(value, ensure_ascii=draw(st.booleans()), **compact).encode()  # type: ignore[arg-type]


def outcome(reader: BodyReader, stored: list[bytes | None]) -> Any:
    """As text: zero and minus zero are two things, and so are 1 and 1.0."""
    try:
        # A slice, as batches are.
        sliced = pa.array([b'{"n":', *stored, b"}"], pa.binary())[1:-1]
        structs, rescued = reader.arrays(sliced)
    except BucketMQError as error:
        return str(error)
    structs.validate(full=True)
    assert structs.type == KIND
    return [repr(row) for row in structs.to_pylist()], rescued.to_pylist()


@settings(deadline=None)  # the first one has Arrow import pandas
@given(st.lists(bodies(), min_size=1, max_size=5))
@example([b"null"])
@example([b'{"n":1}{"n":2}', b'{"in":', b'{"x":1}}'])
@example([b'{"text":"}', b'{"}', b"{}{}"])
@example([b'{"n":1,"n":2}'])
@example([b"", b"{}"])
@example([b'{"text":"\\ud800"}'])
@example([b'{"n":1', b"}"])
def test_read_by_arrow_or_one_by_one_they_are_the_same(stored: list[bytes | None]) -> None:
    slow = BodyReader(KIND)
    slow._columns = None
    assert outcome(BodyReader(KIND), stored) == outcome(slow, stored)


def test_arrow_reads_bodies_that_fit() -> None:
    """Or the comparison above would compare nothing."""
    stored = [json.dumps({"n": n, "tags": ["a"], "in": {"ys": [{"z": n / 2}]}}).encode() for n in range(100)]
    stored[7:7] = [None]  # type: ignore[list-item]
    found = BodyReader(KIND)._by_arrow(pa.array(stored, pa.binary()))
    assert found is not None
    assert [None if row is None else row["n"] for row in found.to_pylist()] == [*range(7), None, *range(7, 100)]


def test_a_number_too_large_for_its_column_is_rescued_and_not_made_infinite() -> None:
    reader = BodyReader(pa.struct([("a", pa.float32()), ("b", pa.float64())]))
    stored = [b'{"a":3.4028234e38,"b":1e308}', b'{"a":-1e39,"b":1}', b'{"a":1,"b":1e309}']
    structs, rescued = reader.arrays(pa.array(stored, pa.binary()))
    assert structs.to_pylist() == [
        {"a": pa.scalar(3.4028234e38, pa.float32()).as_py(), "b": 1e308},
        {"a": None, "b": 1.0},
        {"a": 1.0, "b": None},
    ]
    assert rescued.to_pylist() == [None, '{"a":-1e39}', '{"b":1e309}']
