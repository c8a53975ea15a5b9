"""Looking without claiming: peek at what is unsettled, follow the tail, fetch a large body; and purging."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from bucketmq.bucket.port import Missing
from bucketmq.errors import Corrupt, NotFound
from bucketmq.log.bodies import decode_body, from_base64
from bucketmq.log.layout import join
from bucketmq.procedures.claiming.receive import OpenSubscription
from bucketmq.procedures.heads.desk import Desk, commit, jumped, load, recent_head
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.requests import Now, Procedure
from bucketmq.procedures.segments.messages import read_segment, read_span
from bucketmq.procedures.segments.tail import fresh_tail
from bucketmq.procedures.upkeep.stats import Damage
from bucketmq.procedures.verbs import get
from bucketmq.queue.claiming import expire
from bucketmq.queue.commands import Jump
from bucketmq.queue.head import Head, Span
from bucketmq.queue.message import Message

State = Literal["ready", "in_flight", "delayed", "dead"]
"""What a message is for a subscription; `procedures.upkeep.stats` says what each means."""


Place = tuple[int, int, int]
"""Where a message lies: shard, offset, and the base of its segment."""


class Peeked(msgspec.Struct, frozen=True):
    """A message as looked at: its place, and its state in a subscription."""

    message: Message
    shard: int
    offset: int
    state: State
    attempts: int
    base: int = 0
    """Of its segment."""


def peek(sub: OpenSubscription, limit: int, after: Place | None = None) -> Procedure[list[Peeked]]:
    """Up to `limit` unsettled messages, oldest first in each shard, without claiming them; behind `after`, if that is
    said. One GET for each shard, and one for each segment that is shown."""
    found: list[Peeked] = []
    for shard in range(after[0] if after is not None else 0, sub.queue.settings.shards):
        desk = sub.desk(shard)
        desk.seen_at = 0.0  # as it is now
        head = yield from recent_head(desk)
        if (yield from jumped(desk, head)):
            head = yield from recent_head(desk)
        first, first_base = (after[1] + 1, after[2]) if after is not None and after[0] == shard else (0, 0)
        for span, state, attempts in _listed(expire(head, (now := (yield from Now())), desk.policy), now):
            rest = Span(span.base, max(span.start, first), span.stop)
            found += yield from _look(desk, rest, state, attempts, limit - len(found))
        base, position = max(head.segment, first_base), max(head.next, first)
        while len(found) < limit and (segment := (yield from read_segment(sub.queue, desk.log, base))) is not None:
            span = Span(base, max(position, base), segment.end)
            found += yield from _look(desk, span, "ready", 0, limit - len(found))
            base = segment.end
    return found


def _listed(head: Head, now: float) -> list[tuple[Span, State, int]]:
    """What the head lists, in offset order."""
    listed: list[tuple[Span, State, int]] = []
    listed += [(held.span, "in_flight", held.attempt) for lease in head.leases for held in lease.held]
    listed += [(entry.span, "delayed" if entry.after > now else "ready", entry.attempts) for entry in head.waiting]
    listed += [(entry.span, "dead", entry.attempts) for entry in head.moving]
    return sorted(listed, key=lambda each: each[0].start)


def _look(desk: Desk, span: Span, state: State, attempts: int, limit: int) -> Procedure[list[Peeked]]:
    cut = Span(span.base, span.start, min(span.stop, span.start + max(0, limit)))
    if cut.count <= 0:
        return []
    messages = yield from read_span(desk.queue, desk.log, cut)
    return [
        Peeked(message, desk.shard, cut.start + place, state, attempts, cut.base)
        for place, message in enumerate(messages)
        if message.fence is None and message.to in (None, desk.subscription)
    ]


def read_on(queue: OpenQueue, shard: int, base: int) -> Procedure[tuple[list[Peeked], int]]:
    """The messages of the segment at `base` and the base behind it; nothing and `base` again while there is none.

    They are `ready` whatever subscriptions have made of them: the log does not know.
    """
    log = queue.log(shard)
    segment = yield from read_segment(queue, log, base)
    if segment is None:
        return [], base
    messages = yield from read_span(queue, log, Span(base, base, segment.end))
    seen = [Peeked(m, shard, base + place, "ready", 0, base) for place, m in enumerate(messages) if m.fence is None]
    return seen, segment.end


def purge(sub: OpenSubscription) -> Procedure[int]:
    """Drop everything this subscription has not settled; returns how many. One GET and one PUT for each shard."""
    purged = 0
    for shard in range(sub.queue.settings.shards):
        desk = sub.desk(shard)
        head = yield from load(desk)
        tail = yield from fresh_tail(sub.queue, desk.log)
        if head.next > tail:
            raise Corrupt(str(Damage(sub.queue.name, sub.name, shard, head.next, tail)))
        purged += tail - head.next + head.held_count + head.waiting_count + head.moving_count
        yield from commit(desk, Jump(tail))
    return purged


def body_of(queue: OpenQueue, message: Message) -> Procedure[Any]:
    """The body of a message, fetched if it lies in an object of its own. One GET then, none otherwise."""
    if message.body_at is None:
        return inline_body(message)
    key = join(queue.keys.root, message.body_at.key)
    found = yield from get(key)
    if isinstance(found, Missing):
        raise NotFound(f"{key}, the body of message {message.id}, is gone; bury the message")
    return decode_body(found.body, key) if message.body_at.json else found.body


def inline_body(message: Message) -> Any:
    if message.body_base64 is not None:
        return from_base64(message.body_base64, f"message {message.id}")
    return None if message.body is msgspec.UNSET else message.body
