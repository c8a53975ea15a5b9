"""Orphans: parts that were written and never published, by tasks that failed, ran twice, or lost their driver.

Nobody deletes a part when a job fails, because it may have been published all the same. So they are looked for later:
a part that is old, and that neither a segment nor a register names. `publish` refuses parts long before they are that
old, so none of them can be named from then on.
"""

from __future__ import annotations

from bucketmq.bucket.port import Entry, Missing
from bucketmq.log import documents
from bucketmq.log.layout import base_of, join
from bucketmq.log.segment import Segment
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.publish import ORPHAN_SECONDS, Publication
from bucketmq.procedures.queues import reload_settings
from bucketmq.procedures.requests import Now, Procedure
from bucketmq.procedures.verbs import delete, get, list_all
from bucketmq.spark.opened import opened
from bucketmq.spark.options import Place


def sweep(url: str, queue: str, **options: str) -> int:
    """Delete the orphans of the queue at `url`; returns how many. `options` are the store's, as for `connect`."""
    found = opened(Place(url, queue, tuple(sorted(options.items()))))
    return found.run(remove_orphans(found.queue))


def remove_orphans(queue: OpenQueue) -> Procedure[int]:
    """Delete the orphans of a queue; returns how many.

    A LIST while there are no old parts. Otherwise one GET for each segment and register as well: this is for a daily
    chore, not for every batch.
    """
    parts, _ = yield from list_all(queue.keys.parts)
    now = yield Now()
    old = {entry.key for entry in parts if now - entry.stored_at > ORPHAN_SECONDS}
    if not old:
        return 0
    old -= yield from _entered(queue)  # before the segments: what leaves a register is in a segment by then
    settings = yield from reload_settings(queue)
    for shard in range(settings.shards):
        segments, _ = yield from list_all(queue.keys.log(shard))
        for entry in segments:
            if not old:
                return 0
            old -= yield from _named(queue, entry)
    for key in sorted(old):
        yield from delete(key)
    return len(old)


def _entered(queue: OpenQueue) -> Procedure[set[str]]:
    registers, _ = yield from list_all(queue.keys.publications)
    found: set[str] = set()
    for entry in registers:
        register = yield from get(entry.key)
        if not isinstance(register, Missing):
            segments = documents.decode(Publication, register.body, entry.key).segments
            found |= {join(queue.keys.root, part.key) for aimed in segments for part in aimed.parts}
    return found


def _named(queue: OpenQueue, entry: Entry) -> Procedure[set[str]]:
    segment = yield from get(entry.key)
    if isinstance(segment, Missing) or not segment.body.startswith(b'{"parts"'):
        return set()
    return {join(queue.keys.root, part.key) for part in Segment(base_of(entry.key), segment.body).parts}
