"""Everything known about one post, in order: submitted, judged, routed, told, decided, taken back.

The register tells what is true of the decided revision and of the last ones before it, and the record what the model
said. What only logs know (who came too late, which notices went out) is looked for near the times that the register
tells: a few segments each. So the cost is bounded whatever the logs hold. How it looks on a page does not belong here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from bucketmq.api.bucket import BucketApi
from bucketmq.apps.moderation import audit, posts
from bucketmq.apps.moderation.audit import Line, collapsed
from bucketmq.apps.moderation.ids import key_of, part_of
from bucketmq.apps.moderation.logbook import first_since, read_from
from bucketmq.apps.moderation.notice import NOTICE_RULE
from bucketmq.apps.moderation.queues import AUDIT
from bucketmq.apps.moderation.record import FLAGGED, Category
from bucketmq.apps.moderation.register import Chapter, Register
from bucketmq.errors import NotFound
from bucketmq.events.event import seconds_of
from bucketmq.procedures.claiming.browse import inline_body
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.queues import DELIVERIES, open_queue
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.rules.journal import Attempt
from bucketmq.queue.message import Message
from bucketmq.queue.routing import shard_of

AUDIT_TIMES_MAX = 4
"""Times near which the audit log is read, the latest."""
NOTICE_TIMES_MAX = 2
SEGMENTS_MAX = 8
"""Read from each of them on."""
EARLIER_SECONDS = 2.0
"""Stores stamp segments in whole seconds, and clocks differ."""
STEPS_MAX = 100

Did = Literal[
    "accepted", "judged", "routed", "superseded", "approve", "uphold", "escalate", "undo", "refused", "notice"
]
ORDER: tuple[Did, ...] = (
    "accepted", "judged", "routed", "superseded", "notice", "escalate", "approve", "uphold", "undo", "refused",
)  # fmt: skip
"""Of what has the same time."""


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happened to a post."""

    did: Did
    at: str
    by: str
    """`ingest`, the model, `router`, the rule that told somebody, or who the person is."""
    revision: int = 0
    outcome: str = ""
    """Where the post belongs after it; of a notice, what became of it."""
    before: str = ""
    reason: str = ""
    confidence: float | None = None
    categories: tuple[Category, ...] = ()
    """What the model said, of the revision that lies in the bucket."""
    of: str = ""
    """What was taken back: `approve`, `uphold` or `escalate`."""


class Told(msgspec.Struct, frozen=True):
    """The history of a post."""

    id: str
    revision: int
    """The newest that was accepted; 0 if that is not known."""
    steps: tuple[Step, ...]
    """In order."""
    forgotten: int
    """Decided revisions of which neither the register nor this knows more."""


def history_of(bus: BucketApi, id: str) -> Procedure[Told]:
    """What is known of a post.

    The register, its record, and then at most `AUDIT_TIMES_MAX` and `NOTICE_TIMES_MAX` times three or four requests to
    find a place in a log (two more for every thousandfold of 999 segments) and `SEGMENTS_MAX` + 1 GETs.
    """
    seen = yield from posts.look_at(bus, id)
    bucket = yield from bus.open()
    register = seen.register
    if register is None and seen.record is None:
        raise NotFound(f"nothing is known of a post {id!r}; check its id")
    steps = list(_judged(seen))
    forgotten = 0
    if register is not None:
        chapters = [*register.past, *((register.chapter,) if register.chapter is not None else ())]
        for chapter in chapters:
            steps += _chapter(id, chapter)
        if register.revision > (register.decision.revision if register.decision is not None else 0):
            steps.append(Step(did="accepted", at=register.accepted_at, by="ingest", revision=register.revision))
        if chapters:
            forgotten = chapters[0].decision.revision - 1
        steps += yield from _from_audit(bucket, id, _audit_times(register))
        steps += yield from _from_journal(bucket, id, _notice_times(register))
    return Told(id, register.revision if register is not None else 0, _in_order(steps), forgotten)


def _in_order(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Each once: the register and the audit log have the same ones."""
    once: dict[tuple[str, int, str], Step] = {}
    for step in steps:
        once.setdefault((step.did, step.revision, step.at), step)
    found = sorted(once.values(), key=lambda step: (step.at, ORDER.index(step.did)))
    return tuple(found[-STEPS_MAX:])


def _judged(seen: posts.PostState) -> Iterable[Step]:
    """What the model said of the revision that lies there; the register has when that was routed."""
    record, register = seen.record, seen.register
    if record is None:
        return
    decision = register.decision if register is not None else None
    yield Step(
        did="judged",
        at=decision.at if decision is not None else record.created_at,
        by=record.model or "unknown",
        revision=decision.revision if decision is not None else record.revision,
        reason=seen.fault or record.doubt or record.rationale,
        confidence=record.confidence,
        categories=record.categories,
    )


def _chapter(id: str, chapter: Chapter) -> Iterable[Step]:
    decision = chapter.decision
    if decision.accepted_at:
        yield Step(did="accepted", at=decision.accepted_at, by="ingest", revision=decision.revision)
    yield Step(
        did="judged",
        at=decision.at,
        by=decision.model or "unknown",
        revision=decision.revision,
        confidence=decision.confidence,
    )
    yield Step(
        did="routed",
        at=decision.at,
        by="router",
        revision=decision.revision,
        outcome=decision.outcome,
        reason=decision.reason,
    )
    for line in audit.lines_of(id, chapter):
        yield _step(line)


def _step(line: Line) -> Step:
    did: Did = line.did  # type: ignore[assignment]  # `_from_audit` passes only these
    of = line.of.split(":", 1)[0]
    return Step(
        did=did,
        at=line.at,
        by=line.by,
        revision=line.revision,
        outcome=line.outcome,
        before=line.before,
        reason=line.reason,
        of=of,
    )


def _audit_times(register: Register) -> list[str]:
    """When people or routers may have done what the register does not tell: after a decision, and after each word."""
    chapter = register.chapter
    if chapter is None:
        return [register.accepted_at]
    said = [each.at for each in (chapter.escalation, chapter.review) if each is not None]
    said += [at for each in chapter.undone for at in (each.review.at, each.at)]
    return [chapter.decision.at, *said]


def _notice_times(register: Register) -> list[str]:
    """When the post came to `flagged/`, which is when people are told."""
    times = []
    for chapter in (*register.past, register.chapter):
        if chapter is None:
            continue
        home = chapter.decision.outcome
        if home == FLAGGED:
            times.append(chapter.decision.at)
            times += [each.at for each in chapter.undone if each.review.outcome != FLAGGED]
        else:
            reviews = [chapter.review, *(each.review for each in chapter.undone)]
            times += [each.at for each in reviews if each is not None and each.outcome == FLAGGED]
    return times


def _from_audit(bucket: OpenBucket, id: str, times: list[str]) -> Procedure[list[Step]]:
    messages = yield from _near(bucket, AUDIT, part_of(id), times, AUDIT_TIMES_MAX)
    lines = collapsed(inline_body(message) for message in messages)
    return [_step(line) for line in lines if line.id == id and line.did in ORDER]


def _from_journal(bucket: OpenBucket, id: str, times: list[str]) -> Procedure[list[Step]]:
    steps = []
    for message in (yield from _near(bucket, DELIVERIES, None, times, NOTICE_TIMES_MAX)):
        try:
            attempt = msgspec.convert(inline_body(message), Attempt)
        except msgspec.ValidationError:
            continue
        if attempt.rule == NOTICE_RULE and attempt.key == key_of(FLAGGED, id):
            said = attempt.reason or (f"HTTP {attempt.status}" if attempt.status is not None else "")
            steps.append(Step(did="notice", at=attempt.at, by=NOTICE_RULE, outcome=attempt.outcome, reason=said))
    return steps


def _near(bucket: OpenBucket, name: str, key: str | None, times: list[str], times_max: int) -> Procedure[list[Message]]:
    """What was sent to a queue from each of the latest of these times on, each once."""
    try:
        queue = yield from open_queue(bucket, name, {}, create=False)
    except NotFound:
        return []
    shard = shard_of(queue.settings.shards, key, 0)
    found: dict[str, Message] = {}
    read_until = -1
    for at in sorted(set(times))[-times_max:]:
        try:
            since = seconds_of(at) - EARLIER_SECONDS
        except ValueError:  # of a record that others wrote
            continue
        base = max(read_until, (yield from first_since(queue, shard, since)))
        messages, read_until = yield from read_from(queue, shard, base, SEGMENTS_MAX)
        found |= {message.id: message for message in messages}
    return list(found.values())
