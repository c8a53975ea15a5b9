"""The audit: does what a rule was given agree with what is in the bucket?

Reads the log of events as the rule does, the rule's heads and dead letters, the journal of deliveries, and a listing;
reports what was missed, told twice, late, or found by a sweep. With `repair`, what was missed is reported now.
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
from bucketmq.events.rule import Rule
from bucketmq.log.documents import decode_head
from bucketmq.procedures.append import read_segment, trim_mark
from bucketmq.procedures.browse import read_on
from bucketmq.procedures.events import Attempt, events_queue, report
from bucketmq.procedures.examine import matches
from bucketmq.procedures.opened import OpenBucket, OpenQueue
from bucketmq.procedures.queues import DELIVERIES, EVENTS, open_queue
from bucketmq.procedures.reading import RuleChoice, judged, lines_of
from bucketmq.procedures.requests import Now, Procedure
from bucketmq.procedures.sweep import check_sweep_prefix, list_items
from bucketmq.procedures.verbs import get
from bucketmq.queue.head import Head
from bucketmq.queue.settings import DEAD_SUFFIX

LATE_SECONDS = 60.0
NAMED_MAX = 100
"""How many missed keys an audit names; it counts them all."""


class Audited(msgspec.Struct):
    """What an audit found about one rule."""

    rule: str
    events: int = 0
    """Events in the log that the rule was given, echoes left out."""
    matched: int = 0
    """Of these, those its filter lets through by what they tell themselves."""
    duplicates: int = 0
    """Told again, by the same source or another; passed over."""
    late: int = 0
    """Told more than `late_seconds` after the change."""
    repaired: int = 0
    """Told by a sweep only: whoever should have told did not."""
    delivered: int = 0
    waiting: int = 0
    dead: int = 0
    attempts: int = 0
    """Lines of the journal, and of them those that failed."""
    failed_attempts: int = 0
    redelivered: int = 0
    """Events that were delivered more than once, as the journal tells."""
    objects: int = 0
    """Objects in the bucket that match."""
    missed: int = 0
    """Of these, those of which no event tells in the state they are in."""
    missed_keys: tuple[str, ...] = ()
    reported: int = 0
    """Missed ones that were reported by this audit."""

    @property
    def complete(self) -> bool:
        return self.missed == self.reported


class Books(msgspec.Struct):
    """What is gathered on the way. `tally` tells where an event is counted, by when it happened."""

    rule: Rule
    chosen: Filter
    late_seconds: float
    tally: Callable[[ObjectEvent], Audited]
    dead: frozenset[tuple[int, int]] = frozenset()
    """Where what became a dead letter lies in the log: shard and offset."""
    told: dict[str, list[tuple[str | None, float]]] = msgspec.field(default_factory=dict)
    """For each key the states that events tell of, and when."""


def audit(
    bucket: OpenBucket,
    rule: Rule,
    *,
    prefix: str = "",
    late_seconds: float = LATE_SECONDS,
    repair: bool = False,
) -> Procedure[Audited]:
    """Compare what the rule was told with a listing. Reads the whole log that is kept, and lists `prefix`."""
    check_sweep_prefix(prefix)
    found = Audited(rule.name)
    books = Books(rule, filters.parse(rule.filter), late_seconds, lambda _: found)
    books.dead = yield from waiting_dead(bucket, rule)
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
    """Count what a rule was given of one shard of the log of events. Reads all of it that is kept."""
    rule = books.rule
    choice = RuleChoice(rule, books.chosen)
    log = queue.log(shard)
    key = queue.keys.head(rule.subscription, shard)
    stored = yield from get(key)
    head = Head(0, 0) if isinstance(stored, Missing) else decode_head(stored.body, key)
    unsettled = [*head.spans()]
    open_offsets = {offset for span in unsettled for offset in range(span.start, span.stop)}
    base = yield from trim_mark(log)
    while (segment := (yield from read_segment(queue, log, base))) is not None:
        window = yield from judged(queue, log, segment)
        lines = yield from lines_of(queue, log, segment)
        sent = [message.at for message in segment.messages(segment.base, segment.end)] if not segment.parts else []
        for place, line in enumerate(lines):
            offset, event = segment.base + place, line.event
            if event is None or line.to not in (None, rule.subscription):
                continue
            found = books.tally(event)
            _note_told(books.told, event)
            verdict = window.verdict(offset)
            if line.to is None and verdict.duplicate:
                found.duplicates += 1
                if choice.was_told(verdict) or books.chosen.decide(event) is Decision.NO_MATCH:
                    continue
            found.events += 1
            if sent and seconds_of(sent[place]) - seconds_of(event.at) > books.late_seconds and event.kind != "deleted":
                found.late += 1
            if books.chosen.decide(event) is Decision.NO_MATCH:
                continue
            found.matched += 1
            found.repaired += event.source == "sweep" and line.to is None
            if offset >= head.next or offset in open_offsets:
                found.waiting += 1
            elif (shard, offset) not in books.dead:
                found.delivered += 1
        base = segment.end


def _note_told(told: dict[str, list[tuple[str | None, float]]], event: ObjectEvent) -> None:
    if event.kind in ("created", "changed", "moved"):
        told.setdefault(event.key, []).append((event.version, seconds_of(event.at)))


def waiting_dead(bucket: OpenBucket, rule: Rule) -> Procedure[frozenset[tuple[int, int]]]:
    """The dead letters of the rule that wait for somebody, by where they came from."""
    try:
        queue = yield from open_queue(bucket, EVENTS + DEAD_SUFFIX, {}, create=False)
    except NotFound:
        return frozenset()
    dead: set[tuple[int, int]] = set()
    for shard in range(queue.settings.shards):
        key = queue.keys.head("main", shard)
        stored = yield from get(key)
        head = Head(0, 0) if isinstance(stored, Missing) else decode_head(stored.body, key)
        open_offsets = {offset for span in head.spans() for offset in range(span.start, span.stop)}
        base = yield from trim_mark(queue.log(shard))
        while True:
            seen, after = yield from read_on(queue, shard, base)
            if after == base:
                break
            base = after
            for each in seen:
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
        while True:
            seen, after = yield from read_on(queue, shard, base)
            if after == base:
                break
            base = after
            for each in seen:
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
    """The matching objects, stored since the rule was made, of whose state no event tells."""
    rule = books.rule
    since = seconds_of(rule.created_at) if rule.created_at else 0.0
    now: float = yield Now()
    queue = yield from events_queue(bucket)
    since = max(since, now - queue.settings.keep_seconds)
    missed: list[ObjectEvent] = []
    position: str | None = ""
    while position is not None:
        items, position = yield from list_items(bucket, prefix, position, "")
        for item in items:
            event = there(item, exact=bucket.exact_versions)
            if not (yield from matches(bucket, books.chosen, event, body_bytes_max=rule.policy.body_bytes_max)):
                continue
            found.objects += 1
            if item.stored_at >= since and not _was_told(books.told.get(item.key, []), item):
                missed.append(event)
    return missed


def _was_told(tellings: list[tuple[str | None, float]], item: Item) -> bool:
    version = None if item.version is None else plain_version(item.version)
    return any(
        (version is None or told is None or told == version) and at >= int(item.stored_at) for told, at in tellings
    )
