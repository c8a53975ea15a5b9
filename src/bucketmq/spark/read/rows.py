"""Rows: from lines of NDJSON to Arrow batches of exactly the schema that Spark expects.

Most lines are plain, and their columns are cut out of the bytes by `spark.read.frames`. The others are decoded, no
further than the columns need: a body stays text unless a schema was given for it. Bodies that do not lie in their line
(bytes, large ones) are looked at one by one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from bucketmq.errors import Corrupt
from bucketmq.log.bodies import from_base64
from bucketmq.pipeline.bodies import BodyReader
from bucketmq.pipeline.texts import Numbers
from bucketmq.queue.message import BodyAt
from bucketmq.spark.read import frames
from bucketmq.spark.read.fetch import CHUNK_BYTES, Chunk, Fetcher
from bucketmq.spark.read.frames import ARRAY_BYTES_MAX, Frames

ROWS_PER_BATCH = 10_000
LARGE_BYTES_PER_BATCH = 64 << 20
"""Large bodies are fetched for so many bytes at a time."""

BODY_FIELDS = (
    ("body", msgspec.Raw, msgspec.Raw()),
    ("body_base64", str | None, None),
    ("body_at", BodyAt | None, None),
)
_FENCE, _TO, _BODY, _AT = map(attrgetter, ("fence", "to", "body", "body_at"))
_FIELDS: dict[str, Callable[[Any], Any]] = {
    "id": attrgetter("id"),
    "key": attrgetter("key"),
    "headers": attrgetter("headers"),
    "sent_at": attrgetter("at"),
    "died": lambda line: bytes(line.died) or None,
}


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
    if "died" in columns:
        fields.append(("died", msgspec.Raw, msgspec.Raw()))
    required: list[tuple[str, Any]] = [("id", str), ("at", str)]
    return msgspec.json.Decoder(msgspec.defstruct("Line", [*required, *fields], gc=False))


class RowMaker:
    """Makes batches of one schema. `bodies` parses the bodies, if they have a schema of their own. `subscription` is
    for whom they are made: messages that were sent again to this one alone are rows, too."""

    def __init__(
        self, schema: pa.Schema, fetcher: Fetcher, bodies: BodyReader | None, subscription: str | None = None
    ) -> None:
        self._to = (None, subscription)
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
            if rows >= ROWS_PER_BATCH or size >= CHUNK_BYTES // 2:
                yield from self._of(gathered)
                gathered, rows, size = [], 0, 0
        if gathered:
            yield from self._of(gathered)

    def _of(self, chunks: Sequence[Chunk]) -> Iterator[pa.RecordBatch]:
        """Without what is not for this reader: fences, and messages sent again to another subscription."""
        data, ends = _together(chunks)
        counts = [chunk.count for chunk in chunks]
        shards = np.repeat(np.array([chunk.shard for chunk in chunks], np.int32), counts)
        offsets = np.concatenate([np.arange(chunk.first, chunk.first + chunk.count) for chunk in chunks])
        found = frames.find(data, ends, vouched=all(chunk.vouched for chunk in chunks))
        whole = None if found is None else self._of_frames(found, shards, offsets)
        if whole is not None:
            step = 2 * ROWS_PER_BATCH
            yield from (whole.slice(start, step) for start in range(0, whole.num_rows, step))
            return
        lines = self._decode(data, chunks)
        kept = self._kept(lines)
        lines = [lines[place] for place in kept]
        for start, stop in self._slices(lines):
            yield self._batch(lines[start:stop], shards[kept[start:stop]], offsets[kept[start:stop]])

    def _of_frames(self, found: Frames, shards: Numbers, offsets: Numbers) -> pa.RecordBatch | None:
        """One batch, with the lines that are not plain in their places; None if some have large bodies or cannot be
        decoded."""
        plain = self._plain_batch(found, shards[found.places], offsets[found.places])
        if not found.rest:
            return plain
        others = np.setdiff1d(np.arange(len(offsets)), found.places, assume_unique=True)
        try:
            lines = self._decoder.decode_lines(found.rest)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if len(lines) != len(others) or (self._wants_bodies and _any(_AT, lines)):
            return None
        kept = self._kept(lines)
        others = others[kept]
        decoded = self._batch([lines[place] for place in kept], shards[others], offsets[others])
        order = np.argsort(np.concatenate([found.places, others]))
        return pa.concat_batches([plain, decoded]).take(pa.array(order))

    def _kept(self, lines: Sequence[Any]) -> Sequence[int]:
        """Which lines are for this reader."""
        if _any(_FENCE, lines) or _any(_TO, lines):
            return [place for place, line in enumerate(lines) if line.fence is None and line.to in self._to]
        return range(len(lines))

    def _decode(self, body: memoryview, chunks: Sequence[Chunk]) -> list[Any]:
        count = sum(chunk.count for chunk in chunks)
        try:
            lines: list[Any] = self._decoder.decode_lines(body)
            if len(lines) == count:
                return lines
            what = f"{len(lines)} messages in {count} lines"
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            what = f"a line that is not a message ({error})"
        if len(chunks) > 1:  # which of them was it?
            for chunk in chunks:
                self._decode(chunk.lines, [chunk])
        raise Corrupt(f"{chunks[0].key} has {what}; restore it from a copy")

    def _slices(self, lines: Sequence[Any]) -> Iterator[tuple[int, int]]:
        """Where to cut: after so many rows, and after so many bytes of large bodies."""
        if not self._wants_bodies or not _any(_AT, lines):
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

    def _plain_batch(self, found: Frames, shards: Numbers, offsets: Numbers) -> pa.RecordBatch:
        made: dict[str, Any] = {"id": found.ids, "key": found.keys, "sent_at": found.times, "body": found.bodies}
        made |= {"shard": shards, "offset": offsets}
        if self._bodies is not None and "body" in self._names:
            made["body"], made["_rescued"] = self._bodies.arrays(found.bodies.cast(pa.binary()))
        arrays = [
            array_of(field.name, made[field.name], field.type, ())
            if field.name in made
            else pa.nulls(len(offsets), field.type)  # plain lines do not have it
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _batch(self, lines: Sequence[Any], shards: Numbers, offsets: Numbers) -> pa.RecordBatch:
        made: dict[str, Any] = {"shard": shards, "offset": offsets}
        if self._wants_bodies:
            made["body"], made["body_bytes"] = body_columns(lines, self._fetcher)
            if self._bodies is not None and "body" in self._names:
                made["body"], made["_rescued"] = self._bodies.arrays(made["body"])
        for name, field in _FIELDS.items():
            if name in self._names:
                made[name] = list(map(field, lines))
        arrays = [array_of(field.name, made[field.name], field.type, lines) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _together(chunks: Sequence[Chunk]) -> tuple[memoryview, Numbers]:
    """The lines of all chunks, and where they end."""
    if len(chunks) == 1:
        return chunks[0].lines, chunks[0].ends
    begins = np.cumsum([0, *(len(chunk.lines) for chunk in chunks)])
    ends = [chunk.ends + begin for chunk, begin in zip(chunks, begins, strict=False)]
    return memoryview(b"".join([chunk.lines for chunk in chunks])), np.concatenate(ends)


def body_columns(lines: Sequence[Any], fetcher: Fetcher) -> tuple[pa.Array, pa.Array]:
    """The bodies as JSON text (binary, not yet checked to be UTF-8), and those that are bytes; large ones fetched."""
    bodies: list[Any] = list(map(_BODY, lines))
    sizes = np.fromiter(map(len, bodies), np.int64, len(bodies))
    short = np.flatnonzero((sizes == 0) | (sizes == 4)).tolist()
    odd = [place for place in short if bytes(bodies[place]) in (b"", b"null")]
    if not odd and sizes.sum() < ARRAY_BYTES_MAX:
        return _joined(bodies, sizes), pa.nulls(len(lines), pa.binary())
    texts: list[bytes | None] = list(map(bytes, bodies))
    raw: list[bytes | None] = [None] * len(lines)
    at = []
    for place in odd:
        texts[place] = None
        line = lines[place]
        if line.body_base64 is not None:
            raw[place] = from_base64(line.body_base64, f"message {line.id}")
        elif line.body_at is not None:
            at.append((place, line.body_at))
    for (place, body_at), found in fetcher.ahead(lambda each: fetcher.body(each[1].key), at):
        (texts if body_at.json else raw)[place] = found
    return pa.array(texts, pa.binary()), pa.array(raw, pa.binary())


def array_of(name: str, values: Any, kind: pa.DataType, lines: Sequence[Any]) -> pa.Array:
    """An array of exactly this type; text that is not UTF-8 and times that cannot be parsed are corrupt."""
    try:
        if isinstance(values, pa.Array):
            return values if values.type == kind else values.cast(kind)  # bytes to text: checks that they are
        if pa.types.is_timestamp(kind):
            return pa.array(values, pa.string()).cast(kind)
        if name == "headers":
            return _headers(values, kind)
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeError) as error:
        raise Corrupt(
            f"a message between {lines[0].id} and {lines[-1].id} cannot become a row ({error}); restore its segment"
        ) from None


def _any(field: attrgetter[Any], lines: Sequence[Any]) -> bool:
    """Whether a line has this field."""
    return list(map(field, lines)).count(None) < len(lines)


def _joined(bodies: Sequence[Any], sizes: Numbers) -> pa.Array:
    """Bodies, one after the other in one buffer, without an object for each."""
    ends = np.zeros(len(bodies) + 1, np.int32)
    np.cumsum(sizes, out=ends[1:])
    return pa.Array.from_buffers(pa.binary(), len(bodies), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(bodies))])


def _headers(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Arrow takes maps as pairs."""
    if values.count(None) == len(values):
        return pa.nulls(len(values), kind)
    return pa.array([list(each.items()) if isinstance(each, dict) else each for each in values], kind)
