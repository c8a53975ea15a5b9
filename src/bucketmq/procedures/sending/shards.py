"""Raising the shard count while the queue is in use.

In a plain queue this is one conditional write of the settings; producers and workers notice within
`SETTINGS_SECONDS`. In an ordered queue a key may go to a new shard, and its messages there must not overtake those
still waiting in the old one. So:

 1. The settings get the new count, and a note of the old one. A producer that reads them does steps 2 and 3 before it
    sends, so that nothing in a new shard is older than the fences; what lies in the new ones is not handed out yet.
 2. Each old shard gets a fence, a segment that is not a message. A producer that does not know the new count collides
    with the fence, reads the settings and chooses the shard again. So behind the fence no producer uses the old count.
 3. The settings get the offsets of the fences. A subscription hands out from the new shards once it has settled
    everything before the fences.

Any process that finds step 2 or 3 undone does it; a fence too many does no harm.
"""

from __future__ import annotations

from typing import Any

import msgspec

from bucketmq.errors import Invalid
from bucketmq.log import segment as lines
from bucketmq.procedures.heads.desk import Desk, recent_head
from bucketmq.procedures.opened import OpenBucket, OpenQueue
from bucketmq.procedures.queues import change_settings, open_queue, refresh_settings, reload_settings
from bucketmq.procedures.requests import NewId, Now, Procedure
from bucketmq.procedures.segments.append import begins_with, place
from bucketmq.procedures.segments.tail import tail
from bucketmq.queue.message import Message
from bucketmq.queue.settings import SHARDS_MAX, Fences, Settings

replace = msgspec.structs.replace


def use_queue(bucket: OpenBucket, name: str, options: dict[str, Any], *, create: bool = True) -> Procedure[OpenQueue]:
    """Open a queue with these settings, raising its shard count if they ask for more."""
    queue = yield from open_queue(bucket, name, options, create=create)
    if options.get("shards", 0) > queue.settings.shards:
        yield from raise_shards(queue, options["shards"])
    return queue


def raise_shards(queue: OpenQueue, shards: int) -> Procedure[Settings]:
    """Raise the count to `shards`. One or two PUTs, in an ordered queue one more for each old shard."""
    if not 1 <= shards <= SHARDS_MAX:
        raise Invalid(f"shards must be 1 to {SHARDS_MAX}, not {shards}")

    def change(before: Settings) -> Settings:
        if shards < before.shards:
            raise Invalid(f"the shard count can be raised but not lowered: it is {before.shards}")
        if shards == before.shards:
            return before
        fences = (*before.fences, Fences(before.shards)) if before.ordered else before.fences
        return replace(before, shards=shards, fences=fences)

    yield from finish_raise(queue)
    queue.adopt((yield from change_settings(queue.keys, queue.settings, change)), 0.0)
    yield from finish_raise(queue)
    return queue.settings


def sending_settings(queue: OpenQueue) -> Procedure[Settings]:
    """The settings to send by. A raise that is under way is finished first: what goes to a new shard is younger than
    the fences, so a process that sends by the old count afterwards collides with one."""
    yield from refresh_settings(queue)
    yield from finish_raise(queue)
    return queue.settings


def finish_raise(queue: OpenQueue) -> Procedure[None]:
    """Put up the fences that are missing and note where they stand."""
    if not queue.settings.fences or queue.settings.fences[-1].at:
        return
    settings = yield from reload_settings(queue)
    fences = settings.fences[-1]
    if fences.at:
        return
    at = []
    for shard in range(fences.shards_before):
        at.append((yield from _put_fence(queue, shard, settings.shards)))

    def note(before: Settings) -> Settings:
        if not before.fences or before.fences[-1].at or before.shards != settings.shards:
            return before
        return replace(before, fences=(*before.fences[:-1], replace(before.fences[-1], at=tuple(at))))

    queue.adopt((yield from change_settings(queue.keys, settings, note)), 0.0)


def _put_fence(queue: OpenQueue, shard: int, shards: int) -> Procedure[int]:
    name = yield from NewId()
    fence = lines.encode([Message(name, lines.time_text((yield from Now())), fence=shards)])
    shard_log = queue.log(shard)
    while True:
        base = yield from tail(queue, shard_log)
        if (yield from place(queue, shard_log, base, fence, begins_with(name), count=1)):
            return base


def open_shards(queue: OpenQueue, desks: dict[int, Desk]) -> Procedure[list[int]]:
    """The shards a subscription may claim from: all of them, but in an ordered queue not those behind closed fences."""
    settings = queue.settings
    count = settings.shards
    for fences in settings.fences:
        if not fences.at:
            yield from finish_raise(queue)
            return list(range(fences.shards_before))
        for shard, fence in enumerate(fences.at):
            head = yield from recent_head(desks[shard])
            if head.done_below <= fence:
                return list(range(fences.shards_before))
    return list(range(count))
