"""The queues of moderation, and how they are made: what is in them and who reads them.

| queue | holds | read by |
|---|---|---|
| `submissions` | posts that were accepted | the pipeline that judges them, as the reader `moderation` |
| `moderation-audit` | what was done to posts, and by whom | anyone, from its beginning |
| `moderation-decisions` | of that, what people decided and took back | the desk, its last part |
| `moderation-chores` | posts whose reviewer may have died half-way | routers |
"""

from __future__ import annotations

from typing import Any

from bucketmq.errors import NotFound
from bucketmq.procedures.opened import OpenBucket, OpenQueue
from bucketmq.procedures.queues import open_queue
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.segments.tail import fresh_tail
from bucketmq.procedures.upkeep.readers import read_reader

SUBMISSIONS = "submissions"
AUDIT = "moderation-audit"
DECISIONS = "moderation-decisions"
CHORES = "moderation-chores"

READER = "moderation"
"""The name of the pipeline, under which it says how far it has come."""

DAY = 86400.0

FIRST_SETTINGS: dict[str, dict[str, Any]] = {
    # Nobody takes these from a subscription: trimming goes by time, and by the pipeline's own progress.
    SUBMISSIONS: {"main": False, "keep_seconds": 30 * DAY},
    AUDIT: {"main": False, "keep_seconds": 3660 * DAY},
    DECISIONS: {"main": False, "keep_seconds": 3660 * DAY},
}


def open_own(bucket: OpenBucket, name: str) -> Procedure[OpenQueue]:
    """One of the queues above; made as it should be if it is not there, and otherwise left as it was tuned."""
    try:
        return (yield from open_queue(bucket, name, {}, create=False))
    except NotFound:
        return (yield from open_queue(bucket, name, FIRST_SETTINGS.get(name, {})))


def submitted(bucket: OpenBucket) -> Procedure[tuple[int, int]]:
    """How many submissions were sent, and how many of them the pipeline has not judged yet. A few requests."""
    try:
        queue = yield from open_queue(bucket, SUBMISSIONS, {}, create=False)
    except NotFound:
        return 0, 0
    reader = yield from read_reader(queue, READER)
    sent = waiting = 0
    for shard in range(queue.settings.shards):
        tail = yield from fresh_tail(queue, queue.log(shard))
        sent += tail
        waiting += max(0, tail - (reader.offset(shard) if reader is not None else 0))
    return sent, waiting
