"""Moves: messages on their way from one log into another, once each. To the dead letters, and back by a redrive.

The head of the subscription they leave is the register of the move. First the target (a segment's key in the other log,
and a number) is committed to the head, then the segment is created under that key, then the head forgets the move. A
crash anywhere leaves a head that says what to do next, and whoever does it creates the same key with the same number,
so the message arrives once. If somebody else's segment took the key, the head is given another target first.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from bucketmq.bucket.port import Missing
from bucketmq.log import segment as lines
from bucketmq.log.documents import decode_failures
from bucketmq.log.layout import join
from bucketmq.log.segment import time_text
from bucketmq.procedures.append import Landed, is_outdated, marked, place, tail
from bucketmq.procedures.commit import Desk, commit
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.parts import read_span
from bucketmq.procedures.queues import dead_queue, origin_queue
from bucketmq.procedures.requests import NewId, Now, Procedure
from bucketmq.procedures.routing import shard_of
from bucketmq.procedures.shards import sending_settings
from bucketmq.procedures.verbs import create_named, get
from bucketmq.queue.claiming import LOST_WORKER
from bucketmq.queue.commands import Aim, Moved, Noted
from bucketmq.queue.head import Moving, Target
from bucketmq.queue.message import Died, Failure, Message
from bucketmq.queue.settings import DEAD_SUFFIX

replace = msgspec.structs.replace

FAILURES_MAX = 100
PATIENCE_SECONDS = 10.0
"""A move that is older than this is finished by whoever sees it; a younger one is left to who began it."""


def finish_moves(desk: Desk, *, own: bool) -> Procedure[int]:
    """Carry out the moves that the head lists; returns how many messages arrived.

    `own` says that this process began them. Per group of messages: one PUT of the segment, two commits of the head.
    """
    now = yield Now()
    moving = desk.head.moving if desk.head else ()
    if not any(own or entry.since < now - PATIENCE_SECONDS for entry in moving):
        return 0
    from_dead = desk.queue.name.endswith(DEAD_SUFFIX)
    there = yield from origin_queue(desk.queue) if from_dead else dead_queue(desk.queue)
    yield from _aim(desk, there)
    arrived = 0
    assert desk.head is not None
    targets = sorted({entry.target for entry in desk.head.moving if entry.target is not None}, key=lambda t: t.move)
    for target in targets:
        arrived += yield from _finish(desk, there, target)
    return arrived


def _aim(desk: Desk, there: OpenQueue) -> Procedure[None]:
    """Give every move that has none a target: the end of a shard of the other log."""
    assert desk.head is not None
    aims = yield from _targets(desk, there, [entry for entry in desk.head.moving if entry.target is None])
    if aims:
        yield from commit(desk, *(Aim(starts, None, target) for target, starts in aims.items()))


def _targets(desk: Desk, there: OpenQueue, entries: list[Moving]) -> Procedure[dict[Target, tuple[int, ...]]]:
    """Where to put these: for each target the moves that are meant for it."""
    keys = {}
    for entry in entries:
        keys[entry.span.start] = (yield from read_span(desk.queue, desk.log, entry.span))[0].key
    while True:
        shards = (yield from sending_settings(there)).shards
        by_shard: dict[int, list[int]] = {}
        for start, key in keys.items():
            by_shard.setdefault(shard_of(shards, key, start), []).append(start)
        targets = {}
        for shard, starts in by_shard.items():
            base = yield from tail(there, there.log(shard))
            targets[Target(shard, base, (yield NewId()))] = tuple(starts)
        if not is_outdated(there, shards):
            return targets


def _finish(desk: Desk, there: OpenQueue, target: Target) -> Procedure[int]:
    log = there.log(target.shard)
    entries = [entry for entry in (desk.head.moving if desk.head else ()) if entry.target == target]
    if not entries:
        return 0
    messages = yield from _letters(desk, there, entries, target)
    # The target may have been committed long ago, so trimming may have passed it: known_at says "check".
    outcome = yield from place(there, log, target.base, lines.encode(messages), marked(target.move), known_at=0.0)
    if isinstance(outcome, Landed):
        yield from commit(desk, Moved(target))
        return len(messages)
    others = yield from _targets(desk, there, entries)
    noted = yield from commit(desk, *(Aim(starts, target, other) for other, starts in others.items()))
    arrived = 0
    if any(isinstance(each, Noted) and each.changed for each in noted):
        for other in others:
            arrived += yield from _finish(desk, there, other)
    return arrived


def _letters(desk: Desk, there: OpenQueue, entries: Iterable[Moving], target: Target) -> Procedure[list[Message]]:
    """The messages as they will lie in the other log. The same entries always give the same bytes."""
    letters: list[Message] = []
    for entry in sorted(entries, key=lambda entry: entry.span.start):
        messages = yield from read_span(desk.queue, desk.log, entry.span)
        for place_in_span, original in enumerate(messages):
            message = yield from _with_own_body(desk, there, original, target)
            offset = entry.span.start + place_in_span
            if desk.queue.name.endswith(DEAD_SUFFIX):
                to = message.died.subscription if message.died else None
                letters.append(replace(message, move=target.move, to=to))
            else:
                died = yield from _died(desk, entry, offset, message.died)
                letters.append(replace(message, move=target.move, died=died, to=None))
    return letters


def _with_own_body(desk: Desk, there: OpenQueue, message: Message, target: Target) -> Procedure[Message]:
    """A large body goes along: the one that is here is deleted with the segment that names it. One GET and one PUT."""
    if message.body_at is None:
        return message
    found = yield from get(join(desk.queue.keys.root, message.body_at.key))
    if isinstance(found, Missing):
        return message
    name = f"{message.id}.{target.move}"
    yield from create_named(there.keys.body(name), found.body)
    return replace(message, body_at=replace(message.body_at, key=f"bodies/{name}"))


def _died(desk: Desk, entry: Moving, offset: int, before: Died | None) -> Procedure[Died]:
    """How it died; a message that was redriven keeps the failures of its earlier lives."""
    failures = list(before.failures) if before else []
    for number, name in enumerate(entry.failed, start=1):
        failures.append((yield from _failure(desk, name, number, offset)))
    kept = tuple(failures[-FAILURES_MAX:])
    return Died(desk.subscription, desk.shard, offset, time_text(entry.since), entry.attempts, kept)


def _failure(desk: Desk, name: str, attempt: int, offset: int) -> Procedure[Failure]:
    if name.startswith(LOST_WORKER):
        holder = name.removeprefix(LOST_WORKER)
        return Failure(attempt, "the worker never reported back: its lease expired", None, holder)
    found = yield from get(desk.queue.keys.failure(name))
    place = desk.shard, offset
    if not isinstance(found, Missing):
        mine = [line.failure for line in decode_failures(found.body, name) if (line.shard, line.offset) == place]
        # One record may tell of the same message twice: of an attempt that was reported late, and of this one.
        for failure in sorted(mine, key=lambda failure: failure.attempt != attempt):
            return failure
    return Failure(attempt, "the record of this failure is gone")
