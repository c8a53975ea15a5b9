"""Lines made of columns are, byte for byte, the lines that `log.segment` makes of messages."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import msgspec
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketmq.errors import Corrupt, Invalid
from bucketmq.log.bodies import DEPTH_MAX, to_base64
from bucketmq.log.segment import decode_lines, encode
from bucketmq.pipeline import lines
from bucketmq.pipeline.letters import Columns
from bucketmq.pipeline.lines import bytes_of
from bucketmq.queue.message import Message

AT = "2026-11-16T12:00:00.000Z"
STRINGS = pa.map_(pa.string(), pa.string())

TEXTS = st.text(max_size=12)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
KEYS = st.none() | st.text(min_size=1, max_size=8)
HEADERS = st.none() | st.dictionaries(TEXTS, TEXTS, max_size=2)
SPACING = st.sampled_from([None, 1])


def written(batch: Any, first: int = 0, *, text: bool = False) -> bytes:
    return bytes_of(Columns(batch.schema.names, text=text).lines(batch, "é-1", first, AT))


def message(number: int, key: str | None, headers: dict[str, str] | None, **body: Any) -> Message:
    return Message(f"é-1-{number}", AT, key, headers or None, **body)


def in_one_line(text: str) -> bytes:
    return msgspec.json.format(text.encode(), indent=-1) if "\n" in text else text.encode()


ROWS = st.lists(st.tuples(KEYS, HEADERS, JSON, SPACING, st.none() | st.binary(max_size=5)))
"""Keys, headers, bodies, how these are written, and bytes instead of some."""


def batch_of(rows: list[Any]) -> Any:
    texts = [None if raw is not None else json.dumps(body, indent=spacing) for _, _, body, spacing, raw in rows]
    return pa.record_batch(
        {
            "key": pa.array([key for key, *_ in rows], pa.string()),
            "headers": pa.array([None if each[1] is None else list(each[1].items()) for each in rows], STRINGS),
            "body": pa.array(texts, pa.string()),
            "body_bytes": pa.array([raw for *_, raw in rows], pa.binary()),
        }
    )


@settings(deadline=None, max_examples=50)  # other tests run beside it
@given(ROWS, st.integers(0, 10**7))
def test_bodies_of_json_text_and_of_bytes(rows: list[Any], first: int) -> None:
    batch = batch_of(rows)
    wanted = []
    for number, (row, text) in enumerate(zip(rows, batch.column("body").to_pylist(), strict=True), first):
        key, headers, _, _, raw = row
        if text is None:
            wanted.append(message(number, key, headers, body_base64=to_base64(raw)))
        else:
            wanted.append(message(number, key, headers, body=msgspec.Raw(in_one_line(text))))
    assert written(batch, first) == encode(wanted)
    assert written(batch.slice(1), first + 1) == encode(wanted[1:])


STRUCT = pa.struct(
    [
        ("a b", pa.int32()),
        ("text", pa.string()),
        ("real", pa.float64()),
        ("tags", pa.list_(pa.string())),
        ("inner", pa.struct([("x", pa.bool_()), ("m", pa.map_(pa.string(), pa.int64()))])),
    ]
)
ROW = st.none() | st.fixed_dictionaries(
    {
        "a b": st.none() | st.integers(-(2**31), 2**31 - 1),
        "text": st.none() | TEXTS,
        "real": st.none() | st.floats(allow_infinity=False, allow_nan=False),
        "tags": st.none() | st.lists(st.none() | TEXTS, max_size=3),
        "inner": st.none()
        | st.fixed_dictionaries({"x": st.none() | st.booleans(), "m": st.dictionaries(TEXTS, st.integers(0, 9))}),
    }
)


def ordered(row: Any, kind: Any) -> Any:
    """Fields in the order of the struct."""
    if row is None or not pa.types.is_struct(kind):
        return row
    return {field.name: ordered(row[field.name], field.type) for field in kind}


@settings(deadline=None, max_examples=50)  # other tests run beside it
@given(st.lists(st.tuples(KEYS, ROW)))
def test_bodies_of_structs(rows: list[Any]) -> None:
    batch = pa.record_batch(
        {"key": pa.array([key for key, _ in rows], pa.string()), "value": pa.array([row for _, row in rows], STRUCT)}
    )
    bodies = [ordered(row, STRUCT) for _, row in rows]
    wanted = zip([key for key, _ in rows], bodies, strict=True)
    assert written(batch) == encode([message(n, key, None, body=body) for n, (key, body) in enumerate(wanted)])


@settings(deadline=None, max_examples=50)  # other tests run beside it
@given(st.lists(st.none() | TEXTS))
def test_bodies_of_plain_text(rows: list[str | None]) -> None:
    batch = pa.record_batch({"body": pa.array(rows, pa.string())})
    assert written(batch, text=True) == encode([message(n, None, None, body=each) for n, each in enumerate(rows)])


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_json_does_not_have_is_refused_and_not_made_null(number: float) -> None:
    for column in ([1.0, None, number], [{"x": 1.0}, {"x": None}, {"x": number}], [[1.0], None, [number]]):
        with pytest.raises(Invalid, match=r"\[2\].* is -?(nan|inf), which JSON does not have"):
            written(pa.record_batch({"body": pa.array(column)}))


@pytest.mark.parametrize(
    "texts",
    [
        ['1,"to":"x"'],
        ["1 2"],
        ["{}{}", ""],
        ["[1,", "2]"],
        ["[1,", "2]", "1 2"],
        ["  [", "]", "1 2"],
        ['{"a":1', '"b":2}'],
        ['{"a":"}', '{"}', "{}{}"],
        ["1", " "],
        ["1\n2"],
        ["NaN"],
        ['"\n"'],
    ],
)
def test_a_body_that_is_not_one_json_value_is_refused_whatever_its_neighbours_are(texts: list[str]) -> None:
    for before, after in ((["1"], ["2"]), ([], []), (["{}"], ["{}"])):
        with pytest.raises(Invalid, match="not JSON"):
            written(pa.record_batch({"body": pa.array([*before, *texts, *after])}))


def not_utf8(text: bytes) -> Any:
    return pa.Array.from_buffers(pa.string(), 1, pa.array([text]).buffers())


@pytest.mark.parametrize("text", [b'"\xff"', b'{"a":"\xc3("}', b"\xff", b'a"\xff'])
def test_what_is_not_utf8_is_refused_wherever_it_is(text: bytes) -> None:
    odd, fine = not_utf8(text), pa.array(["1"])
    batches = [
        (pa.record_batch({"body": odd}), True),
        (pa.record_batch({"body": pa.StructArray.from_arrays([odd], ["a"])}), False),
        (pa.record_batch({"body": fine, "key": odd}), False),
        (pa.record_batch({"body": fine, "headers": pa.MapArray.from_arrays([0, 1], fine, odd)}), False),
    ]
    if text.startswith((b'"', b"{")):
        batches.append((pa.record_batch({"body": odd}), False))
    for batch, plain in batches:
        with pytest.raises(Invalid, match="not UTF-8"):
            written(batch, text=plain)


@pytest.mark.parametrize(("kind", "text"), [(pa.string(), False), (pa.string(), True), (pa.list_(pa.string()), False)])
def test_a_batch_of_nothing_is_no_lines(kind: Any, text: bool) -> None:
    assert written(pa.record_batch({"body": pa.array([], kind)}), text=text) == b""


def test_what_is_nested_too_deep_to_be_read_is_refused() -> None:
    deep = "[" * DEPTH_MAX + "]" * DEPTH_MAX
    assert written(pa.record_batch({"body": pa.array(["1", deep])})).endswith(b"]}\n")
    with pytest.raises(Invalid, match="nested deeper"):
        written(pa.record_batch({"body": pa.array(["1", f"[{deep}]"])}))


@pytest.mark.parametrize(
    "number",
    ["1e309", "-1E+0400", f"{'9' * 310}.5", f"{'9' * 250}e99", "1" * 5000],
    ids=["a power", "a negative one", "a fraction", "many digits and a power", "more digits than Python reads"],
)
def test_a_number_that_no_worker_could_read_is_refused(number: str) -> None:
    for body in (number, f'{{"a":[{number}]}}'):
        with pytest.raises(Corrupt):
            decode_lines(encode([message(0, None, None, body=msgspec.Raw(body.encode()))]), "a segment")
        with pytest.raises(Invalid, match="number that is too large"):
            written(pa.record_batch({"body": pa.array(["1", body, "{}"])}))


def test_large_numbers_that_can_be_read_are_bodies_and_so_are_texts_that_look_like_larger_ones() -> None:
    texts = ["1e308", "1e-400", "9" * 400, '"1e400"', f'{{"id":"3e1234","digits":"{"1" * 5000}"}}']
    lines = written(pa.record_batch({"body": pa.array(texts)}))
    assert [each.body for each in decode_lines(lines, "a segment")] == list(map(json.loads, texts))


@pytest.mark.parametrize("number", ["1e309", "1E+309", "9" * 310, f"{'9' * 200}e200"])
def test_a_number_is_too_large_wherever_it_lies(number: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_LOOKED_AT", 200)
    for before in range(250):
        texts = ["1", f'["{"x" * before}",{number}.5]' if number.isdigit() else f'["{"x" * before}",{number}]', "{}"]
        with pytest.raises(Invalid, match="number that is too large"):
            lines.checked(pa.array(texts))
