"""A checkpoint that was lost, made again from what is known in the bucket: for queries without state.

The register of a transaction, in the queue that a query wrote to, knows its last batch and how far that read its
queues. A reader, in the queue that a query reads, knows how far that query has come for certain. A checkpoint that says
just this is enough for Spark to go on with the next batch. What a query with state (aggregations, joins, deduplication)
had gathered is not in the bucket and cannot be made again.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from bucketmq.errors import Invalid, NotFound
from bucketmq.procedures.bulk.publish import Publication, publish
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.upkeep.readers import find_reader
from bucketmq.spark.checkpoint import folder_of
from bucketmq.spark.opened import opened
from bucketmq.spark.options import place_of
from bucketmq.spark.read.offsets import Position
from bucketmq.spark.upkeep.readers import register_of


class Restored(msgspec.Struct, frozen=True):
    """The last batch that the checkpoint knows, and where the next one begins."""

    batch: int
    offsets: dict[str, dict[str, int]]


def restore_checkpoint(
    url: str, queue: str, transaction: str, location: str | Path, *, options: Mapping[str, str] | None = None
) -> Restored:
    """Make the checkpoint at `location` of the query that wrote to `queue`. `transaction` is its `txn` or its id.

    The query's sources must all be queues, each once. A publication that was left half done is finished first. The next
    batch is the one after the last that was published: nothing is doubled.
    """
    folder = _empty(location)
    found = opened(place_of(url, queue, options or {}))
    register = found.run(_finished(found.queue, transaction))
    if not register.offsets:
        raise NotFound(
            f"the register of {transaction!r} does not say how far its sources were read: the sink could not read the "
            "checkpoint, or the sources were not queues; start over with startingOffsets"
        )
    sources = [
        Position(name, {int(shard): offset for shard, offset in shards.items()})
        for name, shards in register.offsets.items()
    ]
    _write(folder, transaction, sources, register.batch, register.at)
    return Restored(register.batch, register.offsets)


def restore_from_reader(
    url: str,
    queue: str,
    reader: str,
    location: str | Path,
    *,
    batch: int = 0,
    options: Mapping[str, str] | None = None,
) -> Restored:
    """Make the checkpoint at `location` of the query that read `queue` as `reader`, whatever it wrote to.

    The queue must be its only source. A reader's progress is stored every few seconds, so the last batches may run once
    more, under numbers from `batch` + 1 on: give the last one that the target knows if it goes by these (files do).
    """
    if batch < 0:
        raise Invalid(f"batch must be 0 or more, not {batch}")
    folder = _empty(location)
    found = opened(place_of(url, queue, options or {}))
    known = found.run(find_reader(found.queue, reader))
    unnamed = None if known.holds else reader  # the name is the query's own then, and goes with its offsets
    _write(folder, reader, [Position(queue, known.offsets, known.bases, unnamed)], batch, known.at)
    return Restored(batch, {queue: {str(shard): offset for shard, offset in sorted(known.offsets.items())}})


def _empty(location: str | Path) -> Path:
    folder = folder_of(str(location))
    if folder is None:
        raise Invalid(f"{location} is not on this machine; restore into a folder here and copy it there")
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise Invalid(f"{folder} is not empty; restore into a new folder")
    return folder


def _finished(queue: OpenQueue, transaction: str) -> Procedure[Publication]:
    while True:
        found = yield from register_of(queue, transaction)
        if found.done:
            return found
        yield from publish(queue, transaction, found.batch, [])


def _write(folder: Path, name: str, sources: Sequence[Position], last: int, at: float) -> None:
    try:
        query = str(uuid.UUID(name))
    except ValueError:
        query = str(uuid.uuid4())  # the transaction or the reader has a name of its own, so this one does not matter
    settings = {"batchWatermarkMs": 0, "batchTimestampMs": int(at * 1000), "conf": {}}
    for part in ("offsets", "commits"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_bytes(msgspec.json.encode({"id": query}))
    lines = [b"v1", *(msgspec.json.encode(each) for each in (settings, *(source.to_json() for source in sources)))]
    for batch in range(max(0, last - 1), last + 1):
        # Spark also looks at the batch before the last. It was committed, so where it ended does not matter.
        (folder / "offsets" / str(batch)).write_bytes(b"\n".join(lines))
        (folder / "commits" / str(batch)).write_bytes(b'v1\n{"nextBatchWatermarkMs":0}')
