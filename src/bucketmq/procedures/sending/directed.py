"""Sending to one subscription alone messages that were sent before, under their old ids.

Such an id does not tell our segment from one that another process makes of the same message. So they lie in segments of
their own, recognised by a fresh number that every line has (`move`), as those of a redrive are. Messages with fresh ids
may be for one subscription, too (`to`), and share segments with others: readers look at every line.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bucketmq.log import segment as lines
from bucketmq.log.segment import LINES_BYTES_MAX
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.requests import NewId, Procedure
from bucketmq.procedures.segments.append import Fenced, append, marked
from bucketmq.procedures.sending.shards import sending_settings
from bucketmq.queue.message import Message
from bucketmq.queue.routing import shard_of


def send_to(queue: OpenQueue, subscription: str, messages: Sequence[Message]) -> Procedure[None]:
    """Put messages into the log that only this subscription is given. One PUT for each shard and 4 MiB.

    Returns when all of them are there. A process that dies in between may have sent some.
    """
    left = list(messages)
    while left:
        shards = (yield from sending_settings(queue)).shards
        turn, queue.turn = queue.turn, queue.turn + 1
        by_shard: dict[int, list[Message]] = {}
        for message in left:
            by_shard.setdefault(shard_of(shards, message.key, turn), []).append(message)
        try:
            for shard, its in by_shard.items():
                while its:
                    move = yield from NewId()
                    body, count = _segment(its, subscription, move)
                    yield from append(queue, queue.log(shard), body, marked(move), count=count, shards=shards)
                    del its[:count]
        except Fenced:
            pass  # the shard count was raised: the rest goes to the shards of the new count
        left = [message for its in by_shard.values() for message in its]


def _segment(messages: Sequence[Message], subscription: str, move: str) -> tuple[bytes, int]:
    """The lines of as many messages as a segment should have, and how many these are."""
    made: list[bytes] = []
    size = 0
    for message in messages:
        line = lines.encode([msgspec.structs.replace(message, to=subscription, move=move)])
        if made and size + len(line) > LINES_BYTES_MAX:
            break
        made.append(line)
        size += len(line)
    return b"".join(made), len(made)
