"""Rows: from lines of NDJSON to Arrow batches of exactly the schema that Spark expects.

A line is decoded no further than the columns need: a body stays text unless a schema was given for it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import msgspec
import pyarrow as pa

from bucketmq.errors import Corrupt
from bucketmq.log.segment import from_base64
from bucketmq.queue.message import BodyAt
from bucketmq.spark.bodies import BodyReader
from bucketmq.spark.fetch import Chunk, Fetcher

ROWS_PER_BATCH = 10_000
BYTES_PER_BATCH = 4 << 20
LARGE_BYTES_PER_BATCH = 64 << 20
"""Large bodies are fetched for so many bytes at a time."""

BODY_FIELDS = (
    ("body", msgspec.Raw, msgspec.Raw()),
    ("body_base64", str | None, None),
    ("body_at", BodyAt | None, None),
)
_AT, _BODY = attrgetter("at"), attrgetter("body")


@functools.cache
def _decoder(columns: tuple[str, ...]) -> msgspec.json.Decoder[Any]:
    """A decoder of lines that builds only what the columns need."""
    fields: list[tuple[str, Any, Any]] = [("fence", int | None, None), ("to", str | None, None)]
    if "key" in columns:
        fields.append(("key", str | None, None))
    if "headers" in columns:
        fields.append(("headers", dict[str, str] | None, None))
    if "body" in columns or "body_bytes" in columns:
        fields += BODY_FIELDS
    required: list[tuple[str, Any]] = [("id", str), ("at", str)]
    return msgspec.json.Decoder(msgspec.defstruct("Line", [*required, *fields], gc=False))


class RowMaker:
    """Makes batches of one schema. `bodies` parses the bodies, if they have a schema of their own."""

    def __init__(self, schema: pa.Schema, fetcher: Fetcher, bodies: BodyReader | None) -> None:
        self._schema = schema
        self._names = tuple(schema.names)
        self._fetcher = fetcher
        self._bodies = bodies
        self._decoder = _decoder(tuple(name for name in self._names if name != "_rescued"))
        self._wants_bodies = "body" in self._names or "body_bytes" in self._names

    def batches(self, chunks: Iterable[Chunk]) -> Iterator[pa.RecordBatch]:
        """Batches of some thousand rows, whatever the size of the chunks."""
        gathered: list[Chunk] = []
        rows, size = 0, 0
        for chunk in chunks:
            gathered.append(chunk)
            rows, size = rows + chunk.count, size + len(chunk.lines)
            if rows >= ROWS_PER_BATCH or size >= BYTES_PER_BATCH:
                yield from self._of(gathered)
                gathered, rows, size = [], 0, 0
        if gathered:
            yield from self._of(gathered)

    def _of(self, chunks: Sequence[Chunk]) -> Iterator[pa.RecordBatch]:
        """Without what is not for readers of the log: fences, and messages sent again to one subscription."""
        body = chunks[0].lines if len(chunks) == 1 else b"".join(chunk.lines for chunk in chunks)
        lines = self._decode(body, chunks)
        shards: list[int] = []
        offsets: list[int] = []
        for chunk in chunks:
            shards += [chunk.shard] * chunk.count
            offsets += range(chunk.first, chunk.first + chunk.count)
        # A cheap look that may say yes too often spares a look at every line.
        if b'"fence":' in body or b'"to":' in body:
            kept = [place for place, line in enumerate(lines) if line.fence is None and line.to is None]
            lines = [lines[place] for place in kept]
            shards = [shards[place] for place in kept]
            offsets = [offsets[place] for place in kept]
        for start, stop in self._slices(lines, large=self._wants_bodies and b'"body_at":' in body):
            yield self._batch(lines[start:stop], shards[start:stop], offsets[start:stop])

    def _decode(self, body: bytes, chunks: Sequence[Chunk]) -> list[Any]:
        try:
            lines: list[Any] = self._decoder.decode_lines(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if len(chunks) == 1:
                raise Corrupt(
                    f"{chunks[0].key} has a line that is not a message ({error}); restore it from a copy"
                ) from None
            for chunk in chunks:  # which of them was it?
                self._decode(chunk.lines, [chunk])
            raise
        if len(lines) != sum(chunk.count for chunk in chunks):
            keys = chunks[0].key if len(chunks) == 1 else f"{chunks[0].key} to {chunks[-1].key}"
            raise Corrupt(f"{keys}: {len(lines)} messages in {sum(chunk.count for chunk in chunks)} lines; restore it")
        return lines

    def _slices(self, lines: Sequence[Any], *, large: bool) -> Iterator[tuple[int, int]]:
        """Where to cut: after so many rows, and after so many bytes of large bodies."""
        if not large:
            step = 2 * ROWS_PER_BATCH
            yield from ((start, min(start + step, len(lines))) for start in range(0, len(lines), step))
            return
        start, size = 0, 0
        for place, line in enumerate(lines):
            if place - start >= 2 * ROWS_PER_BATCH or size >= LARGE_BYTES_PER_BATCH:
                yield start, place
                start, size = place, 0
            if line.body_at is not None:
                size += line.body_at.size_bytes
        if start < len(lines):
            yield start, len(lines)

    def _batch(self, lines: Sequence[Any], shards: list[int], offsets: list[int]) -> pa.RecordBatch:
        made: dict[str, Any] = {"shard": shards, "offset": offsets}
        if self._wants_bodies:
            made["body"], made["body_bytes"] = self._body_columns(lines)
            if self._bodies is not None and "body" in self._names:
                made["body"], made["_rescued"] = self._bodies.parse(made["body"])
        arrays = []
        for field in self._schema:
            match field.name:
                case "id" | "key":
                    values: Any = list(map(attrgetter(field.name), lines))
                case "sent_at":
                    values = list(map(_AT, lines))
                case "headers":
                    values = [None if line.headers is None else list(line.headers.items()) for line in lines]
                case _:
                    values = made[field.name]
            arrays.append(_array(field.name, values, field.type, lines))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _body_columns(self, lines: Sequence[Any]) -> tuple[list[bytes | None], list[bytes | None]]:
        """The bodies as JSON text, and those that are bytes."""
        texts: list[bytes | None] = list(map(bytes, map(_BODY, lines)))
        raw: list[bytes | None] = [None] * len(lines)
        if b"" not in texts and b"null" not in texts:
            return texts, raw
        at = []
        for place, text in enumerate(texts):
            if text in (b"", b"null"):
                texts[place] = None
                line = lines[place]
                if line.body_base64 is not None:
                    raw[place] = from_base64(line.body_base64, f"message {line.id}")
                elif line.body_at is not None:
                    at.append((place, line.body_at))
        for (place, body_at), found in self._fetcher.ahead(lambda each: self._fetcher.body(each[1].key), at):
            (texts if body_at.json else raw)[place] = found
        return texts, raw


def _array(name: str, values: Any, kind: pa.DataType, lines: Sequence[Any]) -> pa.Array:
    """An array of exactly this type; text that is no UTF-8 and times that are none are corrupt."""
    try:
        if name in ("body", "_rescued") and pa.types.is_string(kind):
            return pa.array(values, pa.binary()).cast(kind)  # they are bytes so far; this checks that they are text
        if pa.types.is_timestamp(kind):
            return pa.array(values, pa.string()).cast(kind)
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeError) as error:
        raise Corrupt(
            f"a message between {lines[0].id} and {lines[-1].id} cannot become a row ({error}); restore its segment"
        ) from None
