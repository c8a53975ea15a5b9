"""Letters: from Arrow batches to messages, as the sink sends them. No request is made here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from bucketmq.errors import Invalid
from bucketmq.log.segment import to_base64
from bucketmq.procedures.send import HEADERS_BYTES_MAX, KEY_CHARS_MAX
from bucketmq.queue.message import Message

BODY_COLUMNS = ("body", "value")
OVERLOOKED = ("id", "sent_at", "shard", "offset")
"""Columns of the source that a message gets anew when it is sent."""


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

    def messages(self, batch: pa.RecordBatch, name: str, first: int, at: str) -> list[Message]:
        """One message for each row. The ids are `name` and a number from `first` on."""
        names = batch.schema.names
        nothing = [None] * batch.num_rows
        keys = _keys(batch.column("key")) if "key" in names else nothing
        headers = _headers(batch.column("headers")) if "headers" in names else nothing
        bodies = self._bodies(batch.column(self._body)) if self._body is not None else nothing
        raw = batch.column("body_bytes").to_pylist() if self._bytes else nothing
        found = []
        rows = zip(keys, headers, bodies, raw, strict=True)
        for number, (key, header, body, data) in enumerate(rows, start=first):
            id_ = f"{name}-{number}"
            if data is not None and body is not None:
                raise Invalid("a row has both a body and body_bytes; a message has one of them")
            if data is None and isinstance(body, bytes):
                data = body  # noqa: PLW2901  # a column of bytes is a body of bytes
            if data is not None:
                found.append(Message(id_, at, key, header, body_base64=to_base64(data)))
            else:
                found.append(Message(id_, at, key, header, body))
        return found

    def _bodies(self, column: pa.Array) -> list[Any]:
        if _is_text(column.type) and not self._text:
            return [None if text is None else _json(text) for text in column.to_pylist()]
        if pa.types.is_timestamp(column.type) or pa.types.is_nested(column.type):
            return [_plain(value, column.type) for value in column.to_pylist()]
        return list(column.to_pylist())


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _json(text: str) -> msgspec.Raw:
    """JSON as it lies in the log: checked, and without white space between tokens."""
    try:
        return msgspec.Raw(msgspec.json.format(text.encode(), indent=-1))
    except msgspec.DecodeError as error:
        raise Invalid(
            f"a body is not JSON ({error}): {text[:60]!r}; set bodyFormat to text if bodies are plain text"
        ) from None


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Maps come out of Arrow as pairs; in JSON they are objects."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {str(name): _plain(item, kind.item_type) for name, item in value}
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    if pa.types.is_list(kind):
        return [_plain(item, kind.value_type) for item in value]
    return value


def _keys(column: pa.Array) -> list[str | None]:
    if not _is_text(column.type):
        raise Invalid(f"column key must be string, not {column.type}; cast it")
    keys: list[str | None] = column.to_pylist()
    for key in set(keys):
        if key is not None and not 0 < len(key) <= KEY_CHARS_MAX:
            raise Invalid(f"key must be text of 1 to {KEY_CHARS_MAX} characters, not {key[:60]!r}")
    return keys


def _headers(column: pa.Array) -> list[dict[str, str] | None]:
    kind = column.type
    if not (pa.types.is_map(kind) and _is_text(kind.key_type) and _is_text(kind.item_type)):
        raise Invalid(f"column headers must be map<string,string>, not {kind}; cast it")
    found: list[dict[str, str] | None] = []
    for pairs in column.to_pylist():
        headers = dict(pairs) if pairs else None
        if headers and (None in headers.values()):
            raise Invalid("a header has no value; headers map text to text")
        if headers and sum(len(name) + len(value) for name, value in headers.items()) > HEADERS_BYTES_MAX:
            raise Invalid(f"headers are larger than {HEADERS_BYTES_MAX} characters; put large values into the body")
        found.append(headers)
    return found
