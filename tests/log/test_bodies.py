"""Bodies: what can be written is read back as it was, and the rest is refused by name."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketmq.errors import Invalid
from bucketmq.log import bodies

NAN, INFINITY = math.nan, math.inf


@dataclasses.dataclass
class Reading:
    value: float
    others: tuple[float, ...] = ()


class Measured(msgspec.Struct, rename={"at_least": "min"}):
    at_least: float


CASES: list[tuple[Any, str]] = [
    (NAN, "body"),
    (-INFINITY, "body"),
    ({"scores": [1.0, None, 2.0, INFINITY]}, "body.scores[3]"),
    ({"a": None, "b": {"c": [[], [{"d": NAN}]]}}, "body.b.c[1][0].d"),
    ({"two words": NAN}, "body['two words']"),
    ({7: {"x": NAN}}, "body[7].x"),
    ((1.0, NAN), "body[1]"),
    (Reading(1.0, (2.0, NAN)), "body.others[1]"),
    ([Measured(NAN)], "body[0].min"),
    ({"huge": 10**30, "x": NAN}, "body.x"),
]


@pytest.mark.parametrize(("body", "field"), CASES, ids=[field for _, field in CASES])
def test_a_number_that_json_does_not_have_is_refused_by_the_name_of_its_field(body: Any, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        bodies.encode_body(body)
    assert f" {field} " in f" {refused.value} "


FINE: list[Any] = [
    None,
    {"a": None, "b": 1.5, "huge": 10**30},
    "null and nan",
    [1.7976931348623157e308, -0.0, 5e-324],
    {"nan": "NaN", "null": "Infinity"},
    [2**63 - 1, 0x7FF0_0000_0000_0000, None],
    {"text": "\u02ff", "none": None},
]


@pytest.mark.parametrize("body", FINE, ids=str)
def test_other_values_pass_whether_or_not_something_is_null(body: Any) -> None:
    assert bodies.decode_body(bodies.encode_body(body), "it") == body


numbers = st.floats() | st.integers(-(2**70), 2**70)
anything = st.recursive(
    numbers | st.none() | st.booleans() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


def has_no_json(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(has_no_json, value.values()))
    if isinstance(value, list):
        return any(map(has_no_json, value))
    return isinstance(value, float) and not math.isfinite(value)


@given(st.lists(anything, max_size=4))
def test_bodies_are_refused_exactly_if_one_has_such_a_number(values: list[Any]) -> None:
    data = msgspec.json.encode(values)
    if has_no_json(values):
        with pytest.raises(Invalid, match="JSON"):
            bodies.check_finite(values, data)
    else:
        bodies.check_finite(values, data)


def test_of_many_bodies_the_one_that_is_refused_is_named() -> None:
    many: list[Any] = [{"n": None}] * 20
    many[17] = {"scores": [NAN]}
    with pytest.raises(Invalid, match=r"bodies\[17\]\.scores\[0\] is nan"):
        bodies.check_finite(many, msgspec.json.encode(many))
