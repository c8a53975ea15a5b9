"""Dead letters: messages that move from one log into another, once each. To the dead letters, and back by a redrive.

The head of the subscription they leave is the register of the move (see `sending.aiming`): the target is committed to
the head, the segment is created there, the head forgets the move. Any process that finds a move unfinished makes the
same segment with the same number.
"""

from __future__ import annotations

import logging

import msgspec

from bucketmq.bucket.port import Missing
from bucketmq.errors import Corrupt
from bucketmq.log import segment as lines
from bucketmq.log.documents import decode_failures
from bucketmq.log.layout import join
from bucketmq.log.segment import time_text
from bucketmq.procedures.heads.desk import Desk, commit
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.queues import dead_queue, origin_queue
from bucketmq.procedures.requests import NewId, Now, Procedure
from bucketmq.procedures.segments.append import append, marked, place
from bucketmq.procedures.segments.messages import read_span
from bucketmq.procedures.sending.aiming import choose, land
from bucketmq.procedures.verbs import create_named, get
from bucketmq.queue.claiming import LOST_WORKER
from bucketmq.queue.commands import Aim, Moved, Noted
from bucketmq.queue.head import Moving, Target
from bucketmq.queue.message import Died, Failure, Message
from bucketmq.queue.routing import shard_of
from bucketmq.queue.settings import DEAD_SUFFIX

logger = logging.getLogger("bucketmq")
replace = msgspec.structs.replace

FAILURES_MAX = 100
PATIENCE_SECONDS = 10.0
"""A move that is older than this is finished by any process that sees it; a younger one by the one that began it."""

Records = dict[str, dict[tuple[int, int], list[Failure]]]
"""Failure records that were read, by name: many messages of a batch have their failures in one."""


def finish_moves(desk: Desk, *, own: bool) -> Procedure[int]:
    """Carry out the moves that the head lists; returns how many messages arrived.

    `own` says that this process began them. One PUT for each segment, and two commits of the head.
    """
    now = yield from Now()
    if not any(own or entry.since < now - PATIENCE_SECONDS for entry in _moving(desk)):
        return 0
    from_dead = desk.queue.name.endswith(DEAD_SUFFIX)
    there = yield from origin_queue(desk.queue) if from_dead else dead_queue(desk.queue)
    yield from _aim(desk, there, None)
    counts: dict[Target, int] = {}

    def create(target: Target) -> Procedure[bool]:
        letters = yield from _letters(desk, there, target)
        counts[target] = count = len(letters)
        # Without letters the head does not name the target any more: another process has finished these moves.
        body, shard_log = lines.encode(letters), there.log(target.shard)
        return not letters or (yield from place(there, shard_log, target.base, body, marked(target.move), count=count))

    def enter_others(taken: list[Target]) -> Procedure[list[Target]]:
        others: list[Target] = []
        for target in taken:
            others += yield from _aim(desk, there, target)
        return others

    targets = {entry.target for entry in _moving(desk) if entry.target is not None}
    landed = yield from land(sorted(targets, key=lambda target: target.move), create, enter_others)
    assert landed is not None
    yield from commit(desk, *map(Moved, landed))
    return sum(counts[target] for target in landed)


def put_behind(desk: Desk, letters: list[Message]) -> Procedure[int]:
    """Append dead letters once more to the log they lie in, with bodies of their own; returns the offset of the first.
    The caller settles the old ones then: a process that dies in between leaves these twice. One PUT."""
    move = yield from NewId()
    copies = []
    for letter in letters:
        copy = yield from _with_own_body(desk, desk.queue, letter, move)
        copies.append(replace(copy, move=move))
    body, shards = lines.encode(copies), desk.queue.settings.shards
    return (yield from append(desk.queue, desk.log, body, marked(move), count=len(copies), shards=shards))


def _moving(desk: Desk) -> tuple[Moving, ...]:
    return desk.head.moving if desk.head is not None else ()


def _aim(desk: Desk, there: OpenQueue, was: Target | None) -> Procedure[list[Target]]:
    """Give the moves whose target is `was` (None: that have none) others in the head; returns those that stand. What
    cannot be read stays where it is, for a person to mend: it must not hold up the others."""
    keys = {}
    for entry in [entry for entry in _moving(desk) if entry.target == was]:
        try:
            keys[entry.span.start] = (yield from read_span(desk.queue, desk.log, entry.span))[0].key
        except Corrupt as error:
            desk.doubts_trim = True  # or it has expired
            logger.warning("action=move_unreadable head=%s offset=%d %s", desk.key, entry.span.start, error)
    if not keys:
        return []
    chosen = yield from choose(there, list(keys), lambda shards, start: shard_of(shards, keys[start], start))
    noted = yield from commit(desk, *(Aim(each.loads, was, each.target) for each in chosen))
    return [each.target for each, outcome in zip(chosen, noted, strict=True) if outcome == Noted(changed=True)]


def _letters(desk: Desk, there: OpenQueue, target: Target) -> Procedure[list[Message]]:
    """The messages meant for a target, as they will lie in the other log. The same moves always give the same bytes."""
    letters: list[Message] = []
    records: Records = {}
    entries = [entry for entry in _moving(desk) if entry.target == target]
    for entry in sorted(entries, key=lambda entry: entry.span.start):
        messages = yield from read_span(desk.queue, desk.log, entry.span)
        for place_in_span, original in enumerate(messages):
            message = yield from _with_own_body(desk, there, original, target.move)
            offset = entry.span.start + place_in_span
            if desk.queue.name.endswith(DEAD_SUFFIX):
                to = message.died.subscription if message.died else None
                letters.append(replace(message, move=target.move, to=to))
            else:
                died = yield from _died(desk, entry, offset, message.died, records)
                letters.append(replace(message, move=target.move, died=died, to=None))
    return letters


def _with_own_body(desk: Desk, there: OpenQueue, message: Message, move: str) -> Procedure[Message]:
    """A large body goes along: the one that is here is deleted with the segment that names it. One GET and one PUT."""
    if message.body_at is None:
        return message
    found = yield from get(join(desk.queue.keys.root, message.body_at.key))
    if isinstance(found, Missing):
        return message
    name = f"{message.id}.{move}"
    yield from create_named(there.keys.body(name), found.body)
    return replace(message, body_at=replace(message.body_at, key=f"bodies/{name}"))


def _died(desk: Desk, entry: Moving, offset: int, before: Died | None, records: Records) -> Procedure[Died]:
    """How it died; a message that was redriven keeps the failures of its earlier lives."""
    failures = list(before.failures) if before else []
    for number, name in enumerate(entry.failed, start=1):
        if name.startswith(LOST_WORKER):
            holder = name.removeprefix(LOST_WORKER)
            failures.append(Failure(number, "the worker never reported back: its lease expired", None, holder))
            continue
        if name not in records:
            records[name] = yield from _record(desk, name)
        # One record may name the same message twice: for an attempt that was reported late, and for this one.
        mine = records[name].get((desk.shard, offset), [])
        gone = Failure(number, "the record of this failure is gone")
        failures.append(min(mine, key=lambda failure: failure.attempt != number, default=gone))
    kept = tuple(failures[-FAILURES_MAX:])
    return Died(desk.subscription, desk.shard, offset, time_text(entry.since), entry.attempts, kept)


def _record(desk: Desk, name: str) -> Procedure[dict[tuple[int, int], list[Failure]]]:
    """The failures in a record, by shard and offset. One GET."""
    found = yield from get(desk.queue.keys.failure(name))
    told: dict[tuple[int, int], list[Failure]] = {}
    for line in [] if isinstance(found, Missing) else decode_failures(found.body, name):
        told.setdefault((line.shard, line.offset), []).append(line.failure)
    return told
