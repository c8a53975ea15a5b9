"""Records: everything that a line of a log tells, as columns. What archives hold and histories show.

The source's rows are for pipelines and leave out what is not for them (`bucketmq.spark.read.rows`); a record is made of
every line, those for one subscription only, dead letters and fences included, so that offsets are dense here too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa

from bucketmq.errors import Corrupt
from bucketmq.log.segment import time_seconds
from bucketmq.pipeline.columns import arrow_schema
from bucketmq.queue.message import BodyAt, Died, Failure
from bucketmq.spark.read.fetch import Chunk, Fetcher
from bucketmq.spark.read.rows import array_of, body_columns

ERROR_CHARS_MAX = 500
"""How much of a dead letter's last error its origin's record repeats."""

BATCH_BYTES = 16 << 20

COLUMNS = """
    id string, key string, headers map<string,string>, body string, body_bytes binary, sent_at timestamp,
    shard int, offset bigint, to string, fence int,
    died struct<subscription:string, shard:int, offset:bigint, at:timestamp, attempts:int,
                failures:array<struct<attempt:int, error:string, at:timestamp, holder:string>>>,
    outcomes map<string,string>, attempts map<string,int>,
    deaths array<struct<subscription:string, at:timestamp, attempts:int, error:string>>
""".strip()
"""The columns of a record, for Spark."""

SCHEMA = arrow_schema(COLUMNS)
"""The same for Arrow, and for the files of an archive."""


class Line(msgspec.Struct, frozen=True, gc=False):
    """A line, decoded as far as a record needs it: bodies stay text."""

    id: str
    at: str
    key: str | None = None
    headers: dict[str, str] | None = None
    body: msgspec.Raw = msgspec.Raw()
    body_base64: str | None = None
    body_at: BodyAt | None = None
    to: str | None = None
    died: Died | None = None
    fence: int | None = None


class Death(msgspec.Struct, frozen=True):
    """How a message ended in the dead letters, as its origin's record tells."""

    subscription: str
    at: str
    attempts: int
    error: str


class Placed(msgspec.Struct, frozen=True):
    """A line and where it lies."""

    shard: int
    offset: int
    line: Line
    size_bytes: int
    """Of the line and its large body."""


_decoder = msgspec.json.Decoder(Line)


def placed(chunks: Iterable[Chunk]) -> Iterator[Placed]:
    """The lines of some chunks, in order."""
    for chunk in chunks:
        texts = bytes(chunk.lines).split(b"\n")
        for place in range(chunk.count):
            try:
                line = _decoder.decode(texts[place])
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise Corrupt(
                    f"{chunk.key}, offset {chunk.first + place}: not a message ({error}); restore it from a copy"
                ) from None
            large = line.body_at.size_bytes if line.body_at is not None else 0
            yield Placed(chunk.shard, chunk.first + place, line, len(texts[place]) + large)


def died_of(line: Line) -> tuple[tuple[int, int], Death] | None:
    """Where the message of a dead letter died, and how. None of any other line."""
    died = line.died
    if died is None:
        return None
    error = died.failures[-1].error[:ERROR_CHARS_MAX] if died.failures else ""
    return (died.shard, died.offset), Death(died.subscription, died.at, died.attempts, error)


def record_batch(
    rows: Sequence[Placed],
    fetcher: Fetcher,
    outcomes: Sequence[dict[str, str]],
    attempts: Sequence[dict[str, int]],
    deaths: Sequence[Sequence[Death]],
) -> pa.RecordBatch:
    """The records of some rows. Large bodies are fetched."""
    lines = [row.line for row in rows]
    texts, raw = body_columns(lines, fetcher)
    values: dict[str, Any] = {
        "id": [line.id for line in lines],
        "key": [line.key for line in lines],
        "headers": [line.headers for line in lines],
        "body": texts,
        "body_bytes": raw,
        "sent_at": [line.at for line in lines],
        "shard": [row.shard for row in rows],
        "offset": [row.offset for row in rows],
        "to": [line.to for line in lines],
        "fence": [line.fence for line in lines],
        "died": [
            line.died and {**_timed(line.died), "failures": list(map(_timed, line.died.failures))} for line in lines
        ],
        "outcomes": [list(each.items()) for each in outcomes],
        "attempts": [list(each.items()) for each in attempts],
        "deaths": [list(map(_timed, each)) for each in deaths],
    }
    arrays = [array_of(field.name, values[field.name], field.type, lines) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _timed(told: Died | Failure | Death) -> dict[str, Any]:
    """The fields of it, those among them that there are columns for; its time as a time."""
    if told.at is not None:
        time_seconds(told.at)  # or it is corrupt
    return {**msgspec.structs.asdict(told), "at": None if told.at is None else datetime.fromisoformat(told.at)}


def day_of(line: Line) -> str:
    """The day, in UTC, on which a message was sent."""
    if line.at.endswith("Z"):
        return line.at[:10]
    return datetime.fromtimestamp(time_seconds(line.at), UTC).date().isoformat()
