"""A checkpoint that was lost, made again from what the sink repeated in the bucket: for queries without state.

The register of a transaction knows its last batch and how far that read its queues. A checkpoint that says just this is
enough for Spark to go on with the next batch. What a query with state (aggregations, joins, deduplication) had gathered
is not in the bucket and cannot be made again.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path

import msgspec

from bucketmq.errors import Invalid, NotFound
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.publish import Publication, publish
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.verbs import get_document
from bucketmq.spark.offsets import Position
from bucketmq.spark.opened import opened
from bucketmq.spark.options import Place


class Restored(msgspec.Struct, frozen=True):
    """The last batch that the checkpoint knows, and where the next one begins."""

    batch: int
    offsets: dict[str, dict[str, int]]


def restore_checkpoint(
    url: str, queue: str, transaction: str, location: str | Path, *, options: Mapping[str, str] | None = None
) -> Restored:
    """Make the checkpoint at `location` of the query that wrote to `queue`. `transaction` is its `txn` or its id.

    The query's sources must all be queues, each once. A publication that was left half done is finished first.
    """
    folder = Path(location)
    if folder.exists() and any(folder.iterdir()):
        raise Invalid(f"{folder} is not empty; restore into a new folder")
    found = opened(Place(url, queue, tuple(sorted((options or {}).items()))))
    register = found.run(_finished(found.queue, transaction))
    if not register.offsets:
        raise NotFound(
            f"the register of {transaction!r} does not tell how far its sources were read: the sink could not read the "
            "checkpoint, or the sources were no queues; begin anew with startingOffsets"
        )
    _write(folder, transaction, register)
    return Restored(register.batch, register.offsets)


def _finished(queue: OpenQueue, transaction: str) -> Procedure[Publication]:
    while True:
        found = yield from get_document(Publication, queue.keys.publication(transaction))
        if found is None:
            raise NotFound(f"{queue.name!r} has no register of {transaction!r}; look below {queue.keys.publications}")
        if found[0].done:
            return found[0]
        yield from publish(queue, transaction, found[0].batch, [])


def _write(folder: Path, transaction: str, register: Publication) -> None:
    try:
        name = str(uuid.UUID(transaction))
    except ValueError:
        name = str(uuid.uuid4())  # the transaction has a name of its own, so the query's id does not matter
    sources = [
        Position(queue, {int(shard): offset for shard, offset in shards.items()}).to_json()
        for queue, shards in register.offsets.items()
    ]
    settings = {"batchWatermarkMs": 0, "batchTimestampMs": int(register.at * 1000), "conf": {}}
    for part in ("offsets", "commits"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_bytes(msgspec.json.encode({"id": name}))
    lines = [b"v1", *(msgspec.json.encode(each) for each in (settings, *sources))]
    for batch in range(max(0, register.batch - 1), register.batch + 1):
        # Spark also looks at the batch before the last. It was committed, so where it ended does not matter.
        (folder / "offsets" / str(batch)).write_bytes(b"\n".join(lines))
        (folder / "commits" / str(batch)).write_bytes(b'v1\n{"nextBatchWatermarkMs":0}')
