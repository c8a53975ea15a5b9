"""Letters: from Arrow batches to the lines of messages, as the sink sends them: which column means what, and what is
refused. How columns become bytes is `bucketmq.pipeline.lines`. No request is made here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from bucketmq.errors import Invalid
from bucketmq.log.bodies import to_base64
from bucketmq.pipeline import lines
from bucketmq.pipeline.texts import held_by, is_utf8
from bucketmq.procedures.sending.send import HEADERS_BYTES_MAX, KEY_CHARS_MAX

BODY_COLUMNS = ("body", "value")
OVERLOOKED = ("id", "sent_at", "shard", "offset")
"""Columns of the source that a message gets new values for when it is sent."""

NOT_UTF8 = "a body, key or header is not UTF-8, as Spark's strings may be; make it text, or put it into body_bytes"


class Columns:
    """Which columns of the rows mean what."""

    def __init__(self, names: Sequence[str], *, text: bool) -> None:
        bodies = [name for name in names if name in BODY_COLUMNS]
        odd = [name for name in names if name not in (*BODY_COLUMNS, "key", "headers", "body_bytes", *OVERLOOKED)]
        if odd:
            raise Invalid(
                f"the sink has no column {odd[0]!r}; it takes body (or value), body_bytes, key and headers. "
                "Put other columns into the body, like struct(a, b) as body"
            )
        if len(bodies) > 1 or not (bodies or "body_bytes" in names):
            raise Invalid(f"the sink needs one column named body or value, and the rows have {', '.join(names)}")
        self._body = bodies[0] if bodies else None
        self._bytes = "body_bytes" if "body_bytes" in names else None
        self._text = text

    def lines(self, batch: pa.RecordBatch, name: str, first: int, at: str) -> pa.Array:
        """The line of each row, with its line feed. The ids are `name` and a number from `first` on.

        Column by column and byte for byte what `log.segment` makes of messages; nothing in it is made row by row
        unless bodies are bytes or not compact. They may be vouched for: messages in UTF-8, with the body last.
        """
        try:
            return self._lines(batch, name, first, at)
        except UnicodeDecodeError:
            raise Invalid(NOT_UTF8) from None

    def _lines(self, batch: pa.RecordBatch, name: str, first: int, at: str) -> pa.Array:
        keys, headers = self.keys(batch), _headers(batch)
        begin = msgspec.json.encode(name)[:-1]
        columns: list[Any] = [
            b'{"id":' + begin + b"-",
            lines.numbers(first, batch.num_rows),
            b'","at":' + msgspec.json.encode(at),
        ]
        if keys is not None and keys.null_count < len(keys):
            if keys.null_count:
                columns.append(lines.optional(b"key", lines.joined(*lines.quoted(keys)), keys.is_valid()))
            else:
                columns += [b',"key":', *lines.quoted(keys)]
        if headers is not None:
            there = pa.array([each is not None for each in headers])
            columns.append(lines.optional(b"headers", lines.encoded(headers), there))
        made = lines.joined(*columns, *self._bodies(batch), b"}\n")
        if not is_utf8(held_by(made)):
            raise Invalid(NOT_UTF8)
        return made

    def check(self, batch: pa.RecordBatch) -> None:
        """`Invalid` if a row of them can be no message."""
        self.lines(batch, "", 0, "")

    def keys(self, batch: pa.RecordBatch) -> pa.Array | None:
        """The column of keys, checked; None if there is none."""
        return _checked_keys(batch.column("key")) if "key" in batch.schema.names else None

    def _bodies(self, batch: pa.RecordBatch) -> list[Any]:
        """The field `body`, and `body_base64` for bytes, for `lines.joined`."""
        raw = batch.column(self._bytes) if self._bytes is not None else pa.nulls(batch.num_rows, pa.binary())
        body = batch.column(self._body) if self._body is not None else pa.nulls(batch.num_rows, pa.string())
        if raw.null_count < len(raw) and pc.any(pc.and_(raw.is_valid(), body.is_valid())).as_py():
            raise Invalid("a row has both a body and body_bytes; a message has one of them")
        if _is_bytes(body.type):  # a column of bytes is a body of bytes
            raw = pc.coalesce(raw.cast(pa.large_binary()), body.cast(pa.large_binary()))
            body = pa.nulls(batch.num_rows, pa.string())
        if raw.null_count == len(raw):
            return [b',"body":', *self._texts(body)]
        is_raw = raw.is_valid()
        coded = [None if data is None else to_base64(data) for data in raw.to_pylist()]
        return [
            lines.optional(b"body", lines.joined(*self._texts(body)), pc.invert(is_raw)),
            lines.optional(b"body_base64", lines.encoded(coded), is_raw),
        ]

    def _texts(self, column: pa.Array) -> list[Any]:
        """The bodies as JSON, for `lines.joined`."""
        if _is_text(column.type) and not self._text:
            return [lines.checked(column)]
        return lines.texts_of(column)


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _checked_keys(column: pa.Array) -> pa.Array:
    if not _is_text(column.type):
        raise Invalid(f"column key must be string, not {column.type}; cast it")
    if not is_utf8(held_by(column.drop_null())):
        raise Invalid(NOT_UTF8)
    sizes = pc.min_max(pc.utf8_length(column)).as_py()
    if sizes["min"] is not None and not 0 < sizes["min"] <= sizes["max"] <= KEY_CHARS_MAX:
        odd = next(key for key in column.to_pylist() if key is not None and not 0 < len(key) <= KEY_CHARS_MAX)
        raise Invalid(f"key must be text of 1 to {KEY_CHARS_MAX} characters, not {odd[:60]!r}")
    return column


def _headers(batch: pa.RecordBatch) -> list[dict[str, str] | None] | None:
    """The headers of each row, checked; None if no row has any."""
    if "headers" not in batch.schema.names:
        return None
    column = batch.column("headers")
    kind = column.type
    if not (pa.types.is_map(kind) and _is_text(kind.key_type) and _is_text(kind.item_type)):
        raise Invalid(f"column headers must be map<string,string>, not {kind}; cast it")
    if column.null_count == len(column):
        return None
    found: list[dict[str, str] | None] = []
    for pairs in column.to_pylist():
        headers = dict(pairs) if pairs else None
        if headers and (None in headers.values()):
            raise Invalid("a header has no value; headers map text to text")
        if headers and sum(len(name) + len(value) for name, value in headers.items()) > HEADERS_BYTES_MAX:
            raise Invalid(f"headers are larger than {HEADERS_BYTES_MAX} characters; put large values into the body")
        found.append(headers)
    return found if any(found) else None
