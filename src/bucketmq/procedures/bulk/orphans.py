"""Orphans: parts that were written and never published, by tasks that failed, ran twice, or lost their driver.

A part is not deleted when a job fails, because it may have been published all the same. So they are looked for later:
a part that is old, and that neither a living segment nor a register names. `publish` refuses parts long before they
are that old, so none of them can be named from then on. Segments of parts below the trim mark, which trimming leaves
when it cannot tell whether others name the same parts, go in the same pass.

Trimming calls this at most once a day; nothing depends on it for safety.
"""

from __future__ import annotations

import msgspec

from bucketmq.bucket.port import Written
from bucketmq.log import documents
from bucketmq.log.layout import QueueKeys, base_of, join
from bucketmq.log.segment import Segment
from bucketmq.procedures.bulk.publish import ORPHAN_SECONDS, Publication
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.queues import list_queues, reload_settings
from bucketmq.procedures.requests import Now, Procedure, Replace
from bucketmq.procedures.segments.tail import trim_mark
from bucketmq.procedures.verbs import delete, get_state, get_there, list_all, put_over
from bucketmq.queue.settings import DEAD_SUFFIX, FORMAT

EVERY_SECONDS = 86400.0
"""How often trimming looks for orphans, at most."""

SLACK_SECONDS = 3600.0
"""A segment is stored after the parts it names; clocks of file servers may differ by so much."""

AT_ONCE = 32


class Orphans(msgspec.Struct, frozen=True):
    """`orphans.json`: when orphans were last looked for, and which parts need not be looked at again."""

    version: int = 0
    at: float = 0.0
    judged: float = 0.0
    """Parts stored before this were looked at: those that are left were named, and go with their segments."""
    format: int = FORMAT


def maybe_remove_orphans(queue: OpenQueue, *, everything: bool) -> Procedure[int]:
    """Remove the orphans that came since the last time, once a day; returns how many. One GET on other occasions.

    `everything`: look at all parts, because something is left that was named once.
    """
    key = queue.keys.orphans
    before, version = yield from get_state(key, Orphans())
    now = yield from Now()
    if now - before.at < EVERY_SECONDS:
        return 0
    since = 0.0 if everything else before.judged
    # The process that writes this has today's turn; if it dies, tomorrow's looks at the same parts.
    turn = Orphans(before.version + 1, now, since)
    reply = yield from put_over(key, turn, version)
    if not isinstance(reply, Written):
        return 0
    removed = yield from remove_orphans(queue, since=since)
    judged = Orphans(turn.version + 1, now, max(since, now - ORPHAN_SECONDS))
    yield from Replace(key, documents.encode(judged), reply.version)  # if it fails, the next look takes longer
    return removed


def remove_orphans(queue: OpenQueue, *, since: float = 0.0) -> Procedure[int]:
    """Delete the orphans of a queue among the parts stored after `since`; returns how many.

    One LIST for every thousand parts, and while none of them is old nothing else. Otherwise three LISTs for each queue
    of the bucket, and one GET for each of their registers and for each segment stored since.
    """
    entries, _ = yield from list_all(queue.keys.parts)
    now = yield from Now()
    there = {entry.key for entry in entries}
    old = {entry.key: entry.stored_at for entry in entries if since <= entry.stored_at < now - ORPHAN_SECONDS}
    if not old:
        return 0
    entered = yield from _entered(queue)  # before the segments: what leaves a register is in a segment by then
    living, dead = yield from _segments(queue, min(old.values()) - SLACK_SECONDS)
    orphans = old.keys() - entered - living
    for key in sorted(orphans):
        yield from delete(key)
    for key, parts in dead.items():
        if not parts & (there - orphans - living):  # nothing of it waits for its day, or for its register
            yield from delete(key)
    return len(orphans)


def _entered(queue: OpenQueue) -> Procedure[set[str]]:
    """The parts of this queue that registers name, also those of other queues: they may have dead letters for it."""
    found: set[str] = set()
    names = yield from list_queues(queue.bucket)
    for name in [*names, *(name + DEAD_SUFFIX for name in names)]:
        entries, _ = yield from list_all(QueueKeys(queue.bucket.prefix, name).publications)
        for key, each in (yield from get_there(entry.key for entry in entries)).items():
            segments = documents.decode(Publication, each.body, key).segments
            ours = [aimed for aimed in segments if (aimed.queue or name) == queue.name]
            found |= {join(queue.keys.root, part.key) for aimed in ours for part in aimed.parts}
    return found


def _segments(queue: OpenQueue, since: float) -> Procedure[tuple[set[str], dict[str, set[str]]]]:
    """The parts that segments name; and the segments of parts below the mark, which do not count, with theirs."""
    settings = yield from reload_settings(queue)
    living: set[str] = set()
    dead: dict[str, set[str]] = {}
    for shard in range(settings.shards):
        low = yield from trim_mark(queue.log(shard))
        entries, _ = yield from list_all(queue.keys.log(shard))
        recent = [entry.key for entry in entries if entry.stored_at >= since]
        for start in range(0, len(recent), AT_ONCE):  # their bodies need not be in memory all at once
            for key, each in (yield from get_there(recent[start : start + AT_ONCE])).items():
                if parts := _parts(queue, key, each.body):
                    if base_of(key) < low:
                        dead[key] = parts
                    else:
                        living |= parts
    return living, dead


def _parts(queue: OpenQueue, key: str, body: bytes) -> set[str]:
    if not body.startswith(b'{"parts"'):
        return set()
    return {join(queue.keys.root, part.key) for part in Segment(base_of(key), body, key).parts}
