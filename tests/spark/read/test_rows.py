"""Lines to Arrow and back, without a session: what runs inside Spark's workers."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from bucketmq.errors import Corrupt, Invalid, NotFound
from bucketmq.pipeline.bodies import BodyReader
from bucketmq.pipeline.letters import Columns
from bucketmq.pipeline.lines import bytes_of
from bucketmq.spark.opened import opened
from bucketmq.spark.options import Place
from bucketmq.spark.read import rows as rows_module
from bucketmq.spark.read.fetch import Fetcher
from bucketmq.spark.read.plan import Piece
from bucketmq.spark.read.rows import RowMaker
from spark.conftest import Inbox

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
    ]
)


def read(inbox: Inbox, *pieces: Piece, schema: Any = SCHEMA, strict: bool = True) -> list[dict[str, Any]]:
    fetcher = Fetcher(opened(Place(inbox.url, "jobs")), strict=strict)
    made = list(RowMaker(schema, fetcher, None).batches(fetcher.chunks(pieces)))
    fetcher.close()
    assert all(batch.schema == schema for batch in made)
    return [row for batch in made for row in batch.to_pylist()]


def test_every_kind_of_body_becomes_a_row(plain_inbox: Inbox) -> None:
    queue = plain_inbox.bucket.queue("jobs", inline_bytes_max=1000)
    sent = [{"n": 1}, "text", None, 1.5, [True], b"\x00\xff", "é" * 2000, b"\x01" * 2000]
    for body in sent:
        queue.send(body, key="k", headers={"a": "é"})
    found = read(plain_inbox, *(Piece(0, n, n, n + 1, 0) for n in range(len(sent))))
    texts = [None if row["body"] is None else json.loads(row["body"]) for row in found]
    assert texts == [None if isinstance(body, bytes) else body for body in sent]
    assert [row["body_bytes"] for row in found] == [body if isinstance(body, bytes) else None for body in sent]
    assert {(row["key"], row["headers"][0]) for row in found} == {("k", ("a", "é"))}
    assert [row["offset"] for row in found] == list(range(len(sent)))


def test_a_piece_may_begin_and_end_inside_a_segment(plain_inbox: Inbox) -> None:
    plain_inbox.bucket.queue("jobs").send_many(range(100))
    found = read(plain_inbox, Piece(0, 0, 17, 31, 0))
    assert [(row["offset"], row["body"]) for row in found] == [(n, str(n)) for n in range(17, 31)]


def test_fences_and_messages_for_one_subscription_are_no_rows(plain_inbox: Inbox) -> None:
    queue = plain_inbox.bucket.queue("jobs", ordered=True, lease_seconds=600)
    queue.send("a", key="k")
    (delivery,) = queue.receive(1)
    delivery.bury("no", wait=True)
    queue.dead_letters.redrive()
    queue.raise_shards(2)
    assert queue.tails() == {0: 3, 1: 0}
    assert [row["body"] for row in read(plain_inbox, *(Piece(0, n, n, n + 1, 0) for n in range(3)))] == ['"a"']


def test_batches_are_cut_where_rows_or_large_bodies_become_too_many(
    plain_inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_module, "ROWS_PER_BATCH", 10)
    monkeypatch.setattr(rows_module, "LARGE_BYTES_PER_BATCH", 5000)
    queue = plain_inbox.bucket.queue("jobs", inline_bytes_max=1000)
    queue.send_many(["x" * 2000] * 7)
    queue.send_many(range(45))
    fetcher = Fetcher(opened(Place(plain_inbox.url, "jobs")), strict=True)
    made = list(RowMaker(SCHEMA, fetcher, None).batches(fetcher.chunks([Piece(0, 0, 0, 7, 0), Piece(0, 7, 7, 52, 0)])))
    fetcher.close()
    assert [batch.num_rows for batch in made] == [3, 3, 20, 20, 6]


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda body: body[:-1], "does not end with a line feed"),
        (lambda body: body.replace(b'"id"', b'"di"', 1), "has a line that is not a message"),
        (lambda body: body.replace(b"}\n", b"}\n\n", 1), "messages in 4 lines"),
        (lambda body: body[: body.index(b"\n") + 1], "has 1 messages, not offset 2"),
        (lambda body: body.replace(b'"x"', b'"\xff"', 1), "cannot become a row|not a message"),
        (lambda body: body.replace(b"Z", b"?", 1), "cannot become a row"),
    ],
)
def test_a_damaged_segment_is_corrupt_and_named(plain_inbox: Inbox, damage: Any, text: str) -> None:
    plain_inbox.bucket.queue("jobs").send_many(["x", "y", "z"])
    path = plain_inbox.file(f"queues/jobs/log/0/{0:020}.ndjson")
    body = damage(path.read_bytes())
    path.write_bytes(body)
    with pytest.raises(Corrupt, match=text):
        read(plain_inbox, Piece(0, 0, 0, max(3, body.count(b"\n")), 0))


def test_what_was_trimmed_is_an_error_or_left_out(plain_inbox: Inbox) -> None:
    plain_inbox.bucket.queue("jobs").send("x")
    pieces = Piece(0, 0, 0, 1, 0), Piece(0, 1, 1, 2, 0)
    with pytest.raises(NotFound, match="failOnDataLoss"):
        read(plain_inbox, *pieces)
    assert len(read(plain_inbox, *pieces, strict=False)) == 1


BODY = pa.struct(
    [
        ("user", pa.string()),
        ("n", pa.int32()),
        ("amount", pa.float64()),
        ("tags", pa.list_(pa.string())),
        ("at", pa.timestamp("us", "UTC")),
        ("more", pa.struct([("x", pa.int64())])),
        ("marks", pa.map_(pa.string(), pa.int64())),
        ("items", pa.list_(pa.struct([("x", pa.int64())]))),
    ]
)


@pytest.mark.parametrize(
    ("text", "fits", "rest"),
    [
        ('{"user":"a","n":1,"amount":2,"tags":["t"],"more":{"x":1}}', {"user": "a", "n": 1, "amount": 2.0}, None),
        ('{"user":"a"}', {"user": "a", "n": None}, None),
        ('{"user":7,"n":1}', {"n": 1, "user": None}, {"user": 7}),
        ('{"n":1.5}', {"n": None}, {"n": 1.5}),
        ('{"n":3000000000}', {"n": None}, {"n": 3000000000}),
        ('{"n":1,"new":[1]}', {"n": 1}, {"new": [1]}),
        ('{"at":"2026-11-16T12:00:00Z"}', {}, None),
        ('{"at":"noon"}', {"at": None}, {"at": "noon"}),
        ('{"marks":{"a":1}}', {"marks": [("a", 1)]}, None),
        ('{"items":[{"x":1},{}]}', {"items": [{"x": 1}, {"x": None}]}, None),
        ('{"items":[{"x":1,"y":2}]}', {"items": [{"x": 1}]}, {"items": [{"x": 1, "y": 2}]}),
        ('{"more":{"x":1,"y":2}}', {"more": {"x": 1}}, {"more": {"x": 1, "y": 2}}),
        ("[1]", None, [1]),
        ('"text"', None, "text"),
    ],
)
def test_what_does_not_fit_a_body_schema_is_rescued(text: str, fits: Any, rest: Any) -> None:
    whole = '{"user":"b","more":{"x":2},"tags":["t"]}'
    for beside in ([], [None], [whole, None]):  # decoded in one go or one by one
        found, rescued = BodyReader(BODY).arrays(pa.array([text, *beside], pa.binary()))
        assert found.type == BODY
        value = found[0].as_py()
        assert value is None if fits is None else {name: value[name] for name in fits} == fits
        assert rescued[0].as_py() is None if rest is None else json.loads(rescued[0].as_py()) == rest
        if whole in beside:
            assert (found[1].as_py()["more"], rescued[1].as_py()) == ({"x": 2}, None)
            assert (found[2].as_py(), rescued[2].as_py()) == (None, None)


def test_a_body_schema_of_a_type_that_json_lacks_is_refused() -> None:
    with pytest.raises(Invalid, match="use string and cast it"):
        BodyReader(pa.struct([("x", pa.decimal128(10, 2))]))


def lines(batch: Any, *, text: bool = False) -> list[dict[str, Any]]:
    return [json.loads(line) for line in written(batch, text=text).splitlines()]


def written(batch: Any, *, text: bool = False) -> bytes:
    return bytes_of(Columns(batch.schema.names, text=text).lines(batch, "n", 0, "2026-11-16T12:00:00.000Z"))


@pytest.mark.parametrize(
    ("kind", "value", "field", "found"),
    [
        (pa.string(), '{"a": 1,\n "b": [ ]}', "body", {"a": 1, "b": []}),
        (pa.string(), None, "body", None),
        (pa.int64(), 7, "body", 7),
        (pa.binary(), b"\x00", "body_base64", "AA=="),
        (
            pa.struct([("a", pa.int32()), ("m", STRINGS)]),
            {"a": 1, "m": [("x", "y")]},
            "body",
            {"a": 1, "m": {"x": "y"}},
        ),
        (pa.list_(STRINGS), [[("x", "y")], None], "body", [{"x": "y"}, None]),
    ],
)
def test_a_column_becomes_a_body(kind: Any, value: Any, field: str, found: Any) -> None:
    for name in ("body", "value"):
        (line,) = lines(pa.record_batch([pa.array([value], kind)], [name]))
        assert line[field] == found


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ('{ "move" : 1 }', b'{ "move" : 1 }'),
        ('{\n  "a": "b c"\n}', b'{"a":"b c"}'),
        ('{"a":\r1}', b'{"a":1}'),
        (" 1 ", b"1"),
        ('"\\n"', b'"\\n"'),
    ],
)
def test_text_is_written_as_it_is_but_in_one_line(given: str, stored: bytes) -> None:
    for beside in ([], ["2"], ["null", "3"]):
        batch = pa.record_batch([pa.array([given, *beside])], ["body"])
        assert b'"body":' + stored + b"}\n" in written(batch)


def test_text_may_be_text() -> None:
    assert lines(pa.record_batch([pa.array(["not JSON"])], ["body"]), text=True)[0]["body"] == "not JSON"


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"body": pa.array(["not JSON"])}, "bodyFormat"),
        ({"body": pa.array(["1"]), "key": pa.array([1])}, "key must be string"),
        ({"body": pa.array(["1"]), "key": pa.array([""])}, "1 to 512"),
        ({"body": pa.array(["1"]), "headers": pa.array(["x"])}, "map<string,string>"),
        ({"body": pa.array(["1"]), "headers": pa.array([[("a", None)]], STRINGS)}, "no value"),
        ({"body": pa.array(["1"]), "body_bytes": pa.array([b"x"])}, "both"),
        ({"body": pa.array(["1"]), "value": pa.array(["1"])}, "one column named"),
        ({"key": pa.array(["1"])}, "one column named"),
        ({"body": pa.array(["1"]), "amount": pa.array([1])}, "no column 'amount'"),
    ],
)
def test_rows_that_are_no_messages_are_refused(columns: dict[str, Any], text: str) -> None:
    with pytest.raises(Invalid, match=text):
        lines(pa.record_batch(list(columns.values()), list(columns)))
