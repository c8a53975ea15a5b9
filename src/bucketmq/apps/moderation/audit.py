"""The audit log: a line of the queue `moderation-audit` for everything that was done to a post, and by whom.

Lines are written after what they tell of was decided and before it is answered, so a crash in between leaves a line to
be written by any agent that repeats the action: at least one line for each, all of them under the same `action`.
Readers keep the first (`collapsed`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec

from bucketmq.apps.moderation.ids import part_of
from bucketmq.apps.moderation.queues import AUDIT, open_own
from bucketmq.errors import NotFound
from bucketmq.procedures.claiming.browse import inline_body, read_on
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.queues import open_queue
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.segments.tail import trim_mark
from bucketmq.procedures.sending.send import letters, send

Did = Literal[
    "accepted",
    "routed",
    "superseded",
    "approve",
    "uphold",
    "escalate",
    "refused",  # a person came too late
    "redrive",  # dead letters were sent again
    "login",
    "logout",
    "denied",  # a person may not do what they tried, or was not let in
]


class Line(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What was done."""

    action: str
    """Names the action: lines with the same one tell of the same."""
    did: Did
    by: str
    """`ingest`, `router`, or who the person is."""
    id: str = ""
    """The post; empty for what was done to none, such as a login."""
    revision: int = 0
    at: str
    outcome: str = ""
    before: str = ""
    model: str = ""
    confidence: float | None = None
    reason: str = ""


def action_of(did: Did, id: str, revision: int, *more: str) -> str:
    return ":".join((did, part_of(id), str(revision), *more))


def note(bucket: OpenBucket, line: Line, *, again: bool = False) -> Procedure[None]:
    """Append a line. One PUT, shared with others of this process; `again` if it may be there already: then it is not
    repeated more than once in a while, which costs a few requests."""
    queue = yield from open_own(bucket, AUDIT)
    key = part_of(line.id) if line.id else None
    yield from send(queue, letters([line], key, None, line.action[:512] if again else None))


def collapsed(bodies: Iterable[Any]) -> Iterator[Line]:
    """The lines of these messages' bodies, each action once. What is not a line is skipped."""
    seen: set[str] = set()
    for body in bodies:
        try:
            line = msgspec.convert(body, Line)
        except msgspec.ValidationError:
            continue
        if line.action not in seen:
            seen.add(line.action)
            yield line


def read_all(bucket: OpenBucket, *, id: str | None = None) -> Procedure[list[Line]]:
    """What was done, in order: to all posts, or to one. One GET for each segment of the log."""
    try:
        queue = yield from open_queue(bucket, AUDIT, {}, create=False)
    except NotFound:
        return []
    bodies: list[Any] = []
    for shard in range(queue.settings.shards):
        base, before = (yield from trim_mark(queue.log(shard))), -1
        while base != before:
            before = base
            seen, base = yield from read_on(queue, shard, base)
            bodies += [inline_body(each.message) for each in seen]
    found = [line for line in collapsed(bodies) if id is None or line.id == id]
    return sorted(found, key=lambda line: line.at)
