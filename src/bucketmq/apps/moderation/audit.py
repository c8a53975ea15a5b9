"""The audit log: a line of the queue `moderation-audit` for everything that was done to a post, and by whom.

Lines are written after what they report was decided and before it is answered, so a crash in between leaves a line to
be written by any agent that repeats the action: at least one line for each, all of them under the same `action`.
Readers keep the first (`collapsed`). What people decided and took back is also in the queue `moderation-decisions`, in
the same words: there it can be found among a few, not among everything that ever happened to posts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec

from bucketmq.apps.moderation.ids import part_of
from bucketmq.apps.moderation.queues import AUDIT, DECISIONS, open_own
from bucketmq.apps.moderation.record import Outcome
from bucketmq.apps.moderation.register import Chapter, Review, Undone
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
    "undo",  # one of these three was taken back
    "refused",  # a person came too late, or may not
    "redrive",  # dead letters were sent again
    "login",
    "logout",
    "denied",  # a person may not do what they tried, or was not let in
]

DECIDED: tuple[Did, ...] = ("approve", "uphold", "escalate", "undo")
"""What people do that changes what is true of a post."""


class Line(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What was done."""

    action: str
    """Names the action: lines with the same one report the same action."""
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
    turn: int = 0
    """With `did`, what a person said of the revision: one more for each time that something was taken back."""
    of: str = ""
    """The action that was taken back."""


def said(id: str, review: Review, before: Outcome) -> Line:
    """What a person said of a post that belonged to `before` until then."""
    more = (str(review.turn),) if review.turn else ()
    return Line(
        action=action_of(review.action, id, review.revision, *more),
        did=review.action,
        by=review.reviewer,
        id=id,
        revision=review.revision,
        at=review.at,
        outcome=review.outcome,
        before=before,
        reason=review.note,
        turn=review.turn,
    )


def taken_back(id: str, undone: Undone, back_to: Outcome) -> Line:
    """That somebody took back what was said, and where the post belongs again."""
    review = undone.review
    return Line(
        action=action_of("undo", id, review.revision, review.action, str(review.turn)),
        did="undo",
        by=undone.by,
        id=id,
        revision=review.revision,
        at=undone.at,
        outcome=back_to,
        before=review.outcome,
        reason=undone.note,
        turn=review.turn,
        of=said(id, review, back_to).action,
    )


def lines_of(id: str, chapter: Chapter) -> list[Line]:
    """Everything that people said of a revision, in order."""
    home = chapter.decision.outcome
    lines = [said(id, each, home) for each in (chapter.escalation, chapter.review) if each is not None]
    for undone in chapter.undone:
        lines += (said(id, undone.review, home), taken_back(id, undone, home))
    return sorted(lines, key=lambda line: line.at)


def action_of(did: Did, id: str, revision: int, *more: str) -> str:
    return ":".join((did, part_of(id), str(revision), *more))


def note(bucket: OpenBucket, line: Line, *, again: bool = False) -> Procedure[None]:
    """Append a line. One PUT, shared with others of this process; `again` if it may be there already: then it is not
    repeated more than once in a while, which costs a few requests. What people decide is noted twice."""
    key = part_of(line.id) if line.id else None
    for name in (AUDIT, DECISIONS) if line.did in DECIDED else (AUDIT,):
        queue = yield from open_own(bucket, name)
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
