"""The hint of a shard: a document that says where the log ended not long ago, so that a new process searches less.

It decides nothing: the tail is found without it too, with more requests. A lost or refused write does not matter.
"""

from __future__ import annotations

from bucketmq.bucket.port import Object, Version, Written
from bucketmq.errors import BucketMQError
from bucketmq.log import documents
from bucketmq.log.documents import Hint
from bucketmq.procedures.opened import OpenQueue, ShardLog
from bucketmq.procedures.requests import Get, Procedure
from bucketmq.procedures.verbs import put_over

HINT_EVERY = 64
HINT_EVERY_WALKED = 32
"""Where listing is not cheap the tail is walked to from the hint, so the hint must be nearer."""


def maybe_hint(queue: OpenQueue, shard_log: ShardLog) -> Procedure[None]:
    """Write the hint if many segments were passed since it was last written or read. Usually nothing; else one PUT."""
    every = HINT_EVERY if queue.lists_in_order else HINT_EVERY_WALKED
    if shard_log.since_hint < every or shard_log.tail is None:
        return
    shard_log.since_hint = 0
    try:
        shard_log.hint_version = yield from _write(shard_log, shard_log.keys.hint(shard_log.shard), shard_log.tail)
    except BucketMQError:
        shard_log.hint_version = None


def _write(shard_log: ShardLog, key: str, tail: int) -> Procedure[Version | None]:
    """One PUT, and a GET before it unless this process was the last one to write the hint."""
    version = shard_log.hint_version
    if version is None:
        found = yield from Get(key)
        if isinstance(found, Object):
            version = found.version
            if documents.decode(Hint, found.body, key).base >= tail:
                return None
    reply = yield from put_over(key, Hint(tail), version)
    return reply.version if isinstance(reply, Written) else None
