"""The audit: does what a rule was given agree with what is in the bucket?

Reads the log of events as the rule does, from where the rule began; the rule's heads and dead letters, the journal of
deliveries, and a listing. Says what was missed, reported twice, late, or found by a sweep. With `repair`, what was
missed is reported now.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from bucketmq.bucket.port import Missing
from bucketmq.errors import NotFound
from bucketmq.events import filters
from bucketmq.events.event import ObjectEvent, plain_version, seconds_of
from bucketmq.events.filters import Decision, Filter
from bucketmq.events.inventory import Item, there
from bucketmq.events.order import CLOCKS_SECONDS
from bucketmq.events.rule import Rule
from bucketmq.log.documents import decode_head
from bucketmq.procedures.claiming.browse import read_on
from bucketmq.procedures.objects.listing import check_prefix, list_items
from bucketmq.procedures.objects.report import events_queue, report
from bucketmq.procedures.opened import OpenBucket, OpenQueue
from bucketmq.procedures.queues import DELIVERIES, EVENTS, open_queue
from bucketmq.procedures.requests import Now, Procedure
from bucketmq.procedures.rules.choice import RuleChoice, judged, lines_of
from bucketmq.procedures.rules.examine import matches
from bucketmq.procedures.rules.journal import Attempt
from bucketmq.procedures.segments.messages import read_segment
from bucketmq.procedures.segments.tail import trim_mark
from bucketmq.procedures.verbs import get
from bucketmq.queue.head import Head
from bucketmq.queue.settings import DEAD_SUFFIX, MAIN
from bucketmq.values import Value

LATE_SECONDS = 60.0
NAMED_MAX = 100
"""How many missed keys an audit names; it counts them all."""


class Audited(Value, msgspec.Struct):
    """What an audit found about one rule."""

    rule: str
    before: int = 0
    """Events in the log from before the rule began: not its business, and counted nowhere else."""
    events: int = 0
    """Events in the log that the rule answers for, duplicates left out."""
    matched: int = 0
    """Of these, those that its filter lets through by their own fields."""
    duplicates: int = 0
    """Reported again, by the same source or another; passed over."""
    late: int = 0
    """Reported more than `late_seconds` after the change."""
    repaired: int = 0
    """Reported by a sweep only: the source that should have reported them did not."""
    delivered: int = 0
    """Settled, by a delivery or because the rule's policy drops them; dead letters that were dealt with included."""
    ready: int = 0
    in_flight: int = 0
    delayed: int = 0
    """Failed, and to be tried again later."""
    dead: int = 0
    attempts: int = 0
    """Lines of the journal, and of them those that failed."""
    failed_attempts: int = 0
    redelivered: int = 0
    """Events that the journal says were delivered more than once."""
    objects: int = 0
    """Objects in the bucket that match."""
    missed: int = 0
    """Of these, those in a state that no event reports."""
    missed_keys: tuple[str, ...] = ()
    reported: int = 0
    """Missed objects that this audit reported."""

    @property
    def complete(self) -> bool:
        return self.missed == self.reported


class Books(msgspec.Struct):
    """What is gathered on the way. `tally` says where an event is counted, by when it happened."""

    rule: Rule
    chosen: Filter
    late_seconds: float
    tally: Callable[[ObjectEvent], Audited]
    dead: frozenset[tuple[int, int]] = frozenset()
    """Where what became a dead letter lies in the log: shard and offset."""
    told: dict[str, list[tuple[str | None, float]]] = msgspec.field(default_factory=dict)
    """For each key the states that events report, and when."""


def audit(
    bucket: OpenBucket,
    rule: Rule,
    *,
    prefix: str = "",
    late_seconds: float = LATE_SECONDS,
    repair: bool = False,
) -> Procedure[Audited]:
    """Compare what the rule answers for with a listing. Reads the whole log that is kept, and lists `prefix`."""
    check_prefix(prefix)
    found = Audited(rule.name)
    books = Books(rule, filters.parse(rule.filter), late_seconds, lambda _: found)
    books.dead = yield from open_dead_letters(bucket, rule)
    found.dead = len(books.dead)
    queue = yield from events_queue(bucket)
    for shard in range(queue.settings.shards):
        yield from read_shard(queue, shard, books)
    yield from _journal(bucket, rule, found)
    missed = yield from _missed(bucket, prefix, books, found)
    found.missed, found.missed_keys = len(missed), tuple(event.key for event in missed[:NAMED_MAX])
    if repair:
        found.reported = yield from report(bucket, missed)
    return found


def read_shard(queue: OpenQueue, shard: int, books: Books) -> Procedure[None]:
    """Count what a rule answers for in one shard of the log of events. Reads all of it that is kept."""
    rule, log = books.rule, queue.log(shard)
    choice = RuleChoice(rule, books.chosen)
    head = yield from _head(queue, rule.subscription, shard)
    open_offsets = _open_offsets(head, (yield from Now()))
    base = yield from trim_mark(log)
    while (segment := (yield from read_segment(queue, log, base))) is not None:
        window = yield from judged(queue, log, segment)
        lines = yield from lines_of(queue, log, segment)
        messages = segment.messages(segment.base, segment.end) if not segment.parts else []
        sent: list[float | None] = [seconds_of(message.at) for message in messages] or [None] * len(lines)
        for (offset, line), sent_at in zip(enumerate(lines, start=segment.base), sent, strict=True):
            event = line.event
            if event is None or line.to not in (None, rule.subscription):
                continue
            found = books.tally(event)
            _note_told(books.told, event)
            state = "ready" if offset >= head.next else open_offsets.get(offset)
            if line.to is None and state is None and _precedes(rule, shard, offset, sent_at):
                found.before += 1
                continue
            verdict = window.verdict(offset)
            if line.to is None and verdict.duplicate:
                found.duplicates += 1
                if choice.was_told(verdict) or books.chosen.decide(event) is Decision.NO_MATCH:
                    continue
            found.events += 1
            late = sent_at is not None and sent_at - seconds_of(event.at) > books.late_seconds
            found.late += late and event.kind != "deleted"
            if books.chosen.decide(event) is Decision.NO_MATCH:
                continue
            found.matched += 1
            found.repaired += event.source == "sweep" and line.to is None
            if state is not None:
                setattr(found, state, getattr(found, state) + 1)
            elif (shard, offset) not in books.dead:
                found.delivered += 1
        base = segment.end


def _precedes(rule: Rule, shard: int, offset: int, sent_at: float | None) -> bool:
    """Whether an event was in the log before the rule began."""
    if rule.begins is not None:
        return offset < rule.begins.get(shard, 0)
    return sent_at is not None and bool(rule.created_at) and sent_at < seconds_of(rule.created_at)


def _head(queue: OpenQueue, subscription: str, shard: int) -> Procedure[Head]:
    key = queue.keys.head(subscription, shard)
    stored = yield from get(key)
    return Head(0, 0) if isinstance(stored, Missing) else decode_head(stored.body, key)


def _open_offsets(head: Head, now: float) -> dict[int, str]:
    """The offsets below `head.next` that are not settled, each with its state."""
    spans = [
        *((held.span, "in_flight" if lease.until > now else "ready") for lease in head.leases for held in lease.held),
        *((waiting.span, "delayed" if waiting.after > now else "ready") for waiting in head.waiting),
        *((moving.span, "in_flight") for moving in head.moving),
    ]
    return {offset: state for span, state in spans for offset in range(span.start, span.stop)}


def _note_told(told: dict[str, list[tuple[str | None, float]]], event: ObjectEvent) -> None:
    if event.kind in ("created", "changed", "moved"):
        told.setdefault(event.key, []).append((event.version, seconds_of(event.at)))


def open_dead_letters(bucket: OpenBucket, rule: Rule) -> Procedure[frozenset[tuple[int, int]]]:
    """The rule's dead letters that nobody has dealt with, by the shard and offset they came from."""
    try:
        queue = yield from open_queue(bucket, EVENTS + DEAD_SUFFIX, {}, create=False)
    except NotFound:
        return frozenset()
    dead: set[tuple[int, int]] = set()
    now = yield from Now()
    for shard in range(queue.settings.shards):
        head = yield from _head(queue, MAIN, shard)
        open_offsets = _open_offsets(head, now)
        base = yield from trim_mark(queue.log(shard))
        while (page := (yield from read_on(queue, shard, base)))[1] != base:
            letters, base = page
            for each in letters:
                died = each.message.died
                unsettled = each.offset >= head.next or each.offset in open_offsets
                if unsettled and died is not None and died.subscription == rule.subscription:
                    dead.add((died.shard, died.offset))
    return frozenset(dead)


def _journal(bucket: OpenBucket, rule: Rule, found: Audited) -> Procedure[None]:
    try:
        queue = yield from open_queue(bucket, DELIVERIES, {}, create=False)
    except NotFound:
        return
    done: dict[str, int] = {}
    for shard in range(queue.settings.shards):
        base = yield from trim_mark(queue.log(shard))
        while (page := (yield from read_on(queue, shard, base)))[1] != base:
            lines, base = page
            for each in lines:
                line = _attempt(each.message.body)
                if line is None or line.rule != rule.name:
                    continue
                found.attempts += 1
                found.failed_attempts += line.outcome in ("retry", "bury")
                if line.outcome == "done":
                    done[line.event] = done.get(line.event, 0) + 1
    found.redelivered = sum(count > 1 for count in done.values())


def _attempt(body: Any) -> Attempt | None:
    try:
        return msgspec.convert(body, Attempt)
    except msgspec.ValidationError:
        return None


def _missed(bucket: OpenBucket, prefix: str, books: Books, found: Audited) -> Procedure[list[ObjectEvent]]:
    """The matching objects, stored since the rule was made, in a state that no event reports."""
    rule = books.rule
    since = seconds_of(rule.created_at) if rule.created_at else 0.0
    now = yield from Now()
    queue = yield from events_queue(bucket)
    since = max(since, now - queue.settings.keep_seconds)
    missed: list[ObjectEvent] = []
    position: str | None = ""
    while position is not None:
        items, position = yield from list_items(bucket, prefix, position)
        for item in items:
            event = there(item, exact=bucket.exact_versions)
            if not (yield from matches(bucket, books.chosen, event, body_bytes_max=rule.policy.body_bytes_max)):
                continue
            found.objects += 1
            if item.stored_at >= since and not _was_told(books.told.get(item.key, []), item):
                missed.append(event)
    return missed


def _was_told(tellings: list[tuple[str | None, float]], item: Item) -> bool:
    """The event's time is a writer's idea of the store's clock, so it may be a little before the store's own stamp."""
    version = None if item.version is None else plain_version(item.version)
    return any(
        (version is None or told is None or told == version) and at >= int(item.stored_at) - CLOCKS_SECONDS
        for told, at in tellings
    )
