"""Plain lines become the rows that decoding them makes, wherever they lie and whatever lies between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import msgspec
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline.test_lines import ROWS, batch_of, written

from bucketmq.errors import Corrupt
from bucketmq.log.segment import encode
from bucketmq.pipeline.bodies import BodyReader
from bucketmq.queue.message import Died, Message
from bucketmq.spark.opened import opened
from bucketmq.spark.options import Place
from bucketmq.spark.read import fetch, frames
from bucketmq.spark.read.fetch import Chunk, Fetcher, cut, ends_of
from bucketmq.spark.read.plan import Piece
from bucketmq.spark.read.rows import RowMaker

AT = "2026-11-16T12:00:00.000Z"
STRINGS = pa.map_(pa.string(), pa.string())
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("key", pa.string()),
        ("headers", STRINGS),
        ("body", pa.string()),
        ("body_bytes", pa.binary()),
        ("sent_at", pa.timestamp("us", "UTC")),
        ("shard", pa.int32()),
        ("offset", pa.int64()),
        ("died", pa.string()),
    ]
)
DECODED = Message("first", AT, None, {"a": "b"}, 1)
"""A line that is not plain: where it comes first, all lines are decoded."""

TEXTS = st.text(max_size=12)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS | st.just("body"), inner, max_size=3),
    max_leaves=6,
)
TIMES = st.just(AT) | st.sampled_from(["2026-11-16T12:00:00.001Z", "2026-11-16T12:00:00Z", "2026-11-16T13:00:00+01:00"])
KEYS = st.none() | st.text(min_size=1, max_size=8) | st.sampled_from(['","body":', "\\", '"', "é"])
PLAIN = st.builds(Message, TEXTS | st.sampled_from(["a-1", "a-10", '","at":"']), TIMES, KEYS, st.none(), JSON)
OTHERS = st.sampled_from(
    [
        Message("h", AT, "k", {"a": "é", "body": "}"}, {"x": 1}),
        Message("b", AT, None, None, body_base64="AP8="),
        Message("n", AT, "k"),
        Message("t", AT, "k", None, 1, to="us"),
        Message("t", AT, None, None, {"a": 1}, to="others"),
        Message("m", AT, "k", None, "x", move="3"),
        Message("d", AT, None, None, [1], died=Died("us", 0, 7, AT, 3)),
        Message("f", AT, fence=4),
    ]
)
MESSAGES = st.lists(PLAIN | PLAIN | PLAIN | OTHERS, min_size=1, max_size=12)


@pytest.fixture(scope="module")
def fetcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fetcher]:
    """Of an empty queue: no line has its body elsewhere."""
    made = Fetcher(opened(Place(tmp_path_factory.mktemp("bucket").as_uri(), "jobs"), create=True), strict=True)
    yield made
    made.close()


def read(
    fetcher: Fetcher, data: bytes, schema: Any = SCHEMA, *, bodies: BodyReader | None = None, vouched: bool = False
) -> list[dict[str, Any]]:
    chunk = Chunk(3, 10, memoryview(data), ends_of(data), "log/3/10", vouched)
    made = list(RowMaker(schema, fetcher, bodies, "us").batches([chunk]))
    for batch in made:
        batch.validate(full=True)
        assert batch.schema == schema
    return [row for batch in made for row in batch.to_pylist()]


def decoded(
    fetcher: Fetcher, data: bytes, schema: Any = SCHEMA, *, bodies: BodyReader | None = None
) -> list[dict[str, Any]]:
    """The same by decoding every line."""
    before = encode([DECODED])
    assert frames.find(memoryview(before + data), ends_of(before + data)) is None
    rows = read(fetcher, before + data, schema, bodies=bodies)[1:]
    return [{**row, "offset": row["offset"] - 1} for row in rows]


@settings(deadline=None)  # other tests run beside it
@given(MESSAGES)
def test_lines_become_the_rows_that_decoding_them_makes(fetcher: Fetcher, messages: list[Message]) -> None:
    data = encode(messages)
    assert read(fetcher, data) == decoded(fetcher, data)
    few = pa.schema([SCHEMA.field("key"), SCHEMA.field("offset")])
    assert read(fetcher, data, few) == [{"key": row["key"], "offset": row["offset"]} for row in decoded(fetcher, data)]


@settings(deadline=None, max_examples=50)  # other tests run beside it
@given(ROWS)
def test_lines_that_the_sink_vouches_for_are_read_alike_without_a_look(fetcher: Fetcher, rows: list[Any]) -> None:
    data = written(batch_of(rows))
    if data:
        assert read(fetcher, data, vouched=True) == decoded(fetcher, data)


@settings(deadline=None)  # other tests run beside it
@given(MESSAGES)
def test_rows_are_what_was_sent(fetcher: Fetcher, messages: list[Message]) -> None:
    sent = [each for each in messages if each.fence is None and each.to in (None, "us")]
    rows = read(fetcher, encode(messages))
    assert [row["id"] for row in rows] == [each.id for each in sent]
    assert [row["key"] for row in rows] == [each.key for each in sent]
    bodies = [None if each.body is msgspec.UNSET or each.body is None else encode([each.body])[:-1] for each in sent]
    assert [None if row["body"] is None else row["body"].encode() for row in rows] == bodies


PIECES = st.sampled_from([b'"', b"\\", b",", b"}", b"{", b"\n", b" ", b"\xff", b"\xc3", b'"body":', b'"to":"x",', b""])


@settings(deadline=None, max_examples=150)  # other tests run beside it
@given(MESSAGES, st.integers(0), st.integers(0, 9), PIECES)
def test_damage_is_found_as_decoding_finds_it(
    fetcher: Fetcher, messages: list[Message], place: int, size: int, piece: bytes
) -> None:
    data = encode(messages)
    place %= len(data)
    data = (data[:place] + piece + data[place + size :]).rstrip(b"\n") + b"\n"
    try:
        wanted = decoded(fetcher, data)
    except Corrupt:
        with pytest.raises(Corrupt):
            read(fetcher, data)
    else:
        assert read(fetcher, data) == wanted


@pytest.mark.parametrize(
    "line",
    [
        b'{"id":"a","at":"2026-11-16T12:00:00.000Z","body":1,"body":2}',
        b'{"id":"a","at":"2026-11-16T12:00:00.000Z","body":1,"new":2}',
        b'{"id":"a","at":"2026-11-16T12:00:00.000Z","key":"k","to":"others","body":1}',
        b'{"id":"a","at":"2026-11-16T12:00:00.000Z","key":"k","key":"l","body":1}',
        b'{"id":"a","at":"2026-11-16T12:00:00.000Z","key":null,"body":1}',
        b'{"id":"a","at":"2026-11-16T12:00:00.000Z","body":{"body":1}}',
        b'{"id":"a","at":"2026-11-16T12:00:00.000Z","body":1} ',
        b'{"id":"a","at":"2026-11-16T12:00:00.000Z", "body":1}',
        b'{"id":"a","at":"2026-11-16T12:00:00.000Z","body": 1}',
        b'{"id":"a","at":"","to":"--------------","body":1}',
        b'{"id":"a","at":"2026-11-16T12:00:00.000Z","key":"\\u0061","body":1}',
        b'{"at":"2026-11-16T12:00:00.000Z","id":"a","body":1}',
    ],
)
def test_what_only_looks_plain_is_decoded(fetcher: Fetcher, line: bytes) -> None:
    plain = encode([Message("b", AT, "k", None, 0)])
    data = plain + line + b"\n" + plain
    found = None
    try:
        found = decoded(fetcher, data)
    except Corrupt:
        with pytest.raises(Corrupt):
            read(fetcher, data)
    if found is not None:
        assert read(fetcher, data) == found


@settings(deadline=None)  # other tests run beside it
@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=40), st.integers(0, 40), st.integers(1, 41), st.integers(1, 99)
)
def test_the_lines_of_a_piece_are_cut_into_chunks(sizes: list[int], start: int, count: int, chunk_bytes: int) -> None:
    lines = [b"x" * size + b"\n" for size in sizes]
    start = min(start, len(lines) - 1)
    stop = min(start + count, len(lines))
    data = b"".join(lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetch, "CHUNK_BYTES", chunk_bytes)
        chunks = list(cut(Piece(3, 100, 100 + start, 100 + stop, 0), 100, data, ends_of(data), "key"))
    assert b"".join(chunk.lines for chunk in chunks) == b"".join(lines[start:stop])
    assert [offset for each in chunks for offset in range(each.first, each.first + each.count)] == list(
        range(100 + start, 100 + stop)
    )
    for chunk in chunks:
        assert chunk.ends.tolist() == ends_of(bytes(chunk.lines)).tolist()
        assert chunk.count == 1 or len(chunk.lines) <= 2 * chunk_bytes + 31


def test_most_lines_are_plain() -> None:
    """The tests above would pass without any."""
    messages = [Message(f"a-{n}", AT, f"k{n % 3}" if n % 2 else None, None, {"n": n}) for n in range(200)]
    messages[7] = DECODED
    found = frames.find(memoryview(encode(messages)), ends_of(encode(messages)))
    assert found is not None
    assert found.places.tolist() == [n for n in range(200) if n != 7]
    assert found.rest == encode([DECODED])


def test_ids_and_keys_of_very_many_lengths_are_found() -> None:
    sizes = range(1, 3 * frames.SIZES_TRIED)
    messages = [Message("a" * n, AT, "k" * (99 - n) if n % 3 else None, None, [n]) for n in sizes]
    found = frames.find(memoryview(encode(messages)), ends_of(encode(messages)))
    assert found is not None
    assert found.ids.to_pylist() == [each.id for each in messages]
    assert found.keys.to_pylist() == [each.key for each in messages]
    assert found.bodies.to_pylist() == [f"[{n}]" for n in sizes]


@settings(deadline=None, max_examples=50)  # other tests run beside it
@given(st.lists(st.builds(Message, TEXTS, st.just(AT), KEYS, st.none(), JSON), min_size=1, max_size=6))
def test_bodies_with_a_schema_are_parsed_alike(fetcher: Fetcher, messages: list[Message]) -> None:
    kind = pa.struct([("body", pa.int64()), ("a", pa.string())])
    schema = pa.schema([("id", pa.string()), ("offset", pa.int64()), ("body", kind), ("_rescued", pa.string())])
    data = encode([*messages, Message("z", AT, None, None, {"body": 1, "a": "b"})])
    assert read(fetcher, data, schema, bodies=BodyReader(kind)) == decoded(
        fetcher, data, schema, bodies=BodyReader(kind)
    )
