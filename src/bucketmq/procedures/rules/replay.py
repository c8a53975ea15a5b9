"""Trying a filter, and sending events again: to one rule, under the same ids, at a bounded rate, unseen by others."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from bucketmq.bucket.port import Found, Missing
from bucketmq.errors import Invalid, NotFound
from bucketmq.events import filters
from bucketmq.events.event import KINDS, ObjectEvent, event_id, seconds_of, time_text
from bucketmq.events.filters import NO_JSON, Decision, Filter, Known, Why
from bucketmq.events.inventory import Item, there
from bucketmq.events.rule import Rule
from bucketmq.procedures.claiming.receive import position_of_time
from bucketmq.procedures.objects.keys import check_object_key
from bucketmq.procedures.objects.listing import check_prefix, list_items
from bucketmq.procedures.objects.report import REPLAY_HEADER, events_queue, report
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.pace import RATE_MAX, RATE_PER_SECOND, Pace
from bucketmq.procedures.requests import NewId, Now, Procedure
from bucketmq.procedures.rules.choice import RuleChoice, judged, lines_of
from bucketmq.procedures.rules.examine import json_body, look_at, matches
from bucketmq.procedures.segments.messages import read_segment
from bucketmq.procedures.segments.tail import fresh_tail, trim_mark
from bucketmq.values import Value


class Replayed(Value, msgspec.Struct, frozen=True):
    """What a replay sent."""

    id: str
    events: int
    looked_at: int


class Tested(Value, msgspec.Struct, frozen=True):
    """What a filter says to one key, and why."""

    matches: bool
    exists: bool
    event: ObjectEvent
    why: tuple[Why, ...]


class Matching(Value, msgspec.Struct, frozen=True):
    """What of the live bucket a filter matches."""

    keys: tuple[str, ...]
    matched: int
    looked_at: int
    more: bool
    """Whether the listing was cut short."""


def replay(
    bucket: OpenBucket,
    rule: Rule,
    *,
    key: str | None = None,
    prefix: str | None = None,
    since: float | None = None,
    until: float | None = None,
    rate_per_second: float = RATE_PER_SECOND,
    dry_run: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> Procedure[Replayed]:
    """Give a rule events again. With `key` or `prefix` alone: one event for each such object that is there now. With
    `since` or `until`: those of the log from that time, of all keys or of the ones named.

    For one key a HEAD, for a prefix a LIST per 1,000 keys, for a time span the segments of the log from `since` on.
    `NotFound` if there is no object with this `key`.
    """
    _check_what(key, prefix, timed=since is not None or until is not None)
    pace = Pace(rate_per_second)
    teller = _Teller(bucket, rule, pace, (yield from NewId()), dry_run=dry_run, progress=progress)
    if since is not None or until is not None:
        yield from _log(teller, lambda each: _is_named(each, key, prefix), since or 0.0, until)
    elif key is not None:
        yield from teller.offer((yield from _object(bucket, key)))
    else:
        yield from _objects(bucket, prefix or "", teller)
    yield from teller.flush()
    return Replayed(teller.name, teller.sent, teller.looked_at)


def _check_what(key: str | None, prefix: str | None, *, timed: bool) -> None:
    if key is not None and prefix is not None:
        raise Invalid("replay one key or a prefix, not both")
    if key is None and prefix is None and not timed:
        raise Invalid(
            "say what to replay: a key or a prefix (objects that are there now; '' is all of them), or since and until "
            "(what happened then, according to the log)"
        )
    if key is not None:
        check_object_key(key)
    if prefix is not None:
        check_prefix(prefix)


def _is_named(event: ObjectEvent, key: str | None, prefix: str | None) -> bool:
    return event.key == key if key is not None else event.key.startswith(prefix or "")


def replay_existing(bucket: OpenBucket, rule: Rule, prefix: str) -> Procedure[Replayed]:
    """One event for each object that is there already: a rule that begins with what exists."""
    return (yield from replay(bucket, rule, prefix=prefix, rate_per_second=RATE_MAX))


class _Teller:
    """Sends what is gathered, no faster than asked."""

    def __init__(
        self,
        bucket: OpenBucket,
        rule: Rule,
        pace: Pace,
        name: str,
        *,
        dry_run: bool,
        progress: Callable[[int], None],
    ) -> None:
        self.bucket = bucket
        self.rule = rule
        self.pace = pace
        self.name = name
        self.dry_run = dry_run
        self.progress = progress
        self.chosen = filters.parse(rule.filter)
        self.sent = 0
        self.looked_at = 0
        self._gathered: list[ObjectEvent] = []

    def offer(self, event: ObjectEvent) -> Procedure[None]:
        """Take the event if the rule may want it; what the object itself decides is seen when it is delivered."""
        self.looked_at += 1
        if self.chosen.decide(event) is Decision.NO_MATCH:
            return
        self._gathered.append(event)
        if len(self._gathered) >= self.pace.batch:
            yield from self.flush()

    def flush(self) -> Procedure[None]:
        events, self._gathered = self._gathered, []
        if not events:
            return
        if not self.dry_run:
            yield from self.pace.take(len(events))
            yield from report(self.bucket, events, to=self.rule.subscription, headers={REPLAY_HEADER: self.name})
        self.sent += len(events)
        self.progress(self.sent)


def _object(bucket: OpenBucket, key: str) -> Procedure[ObjectEvent]:
    found = yield from look_at(bucket, key)
    if isinstance(found, Missing):
        raise NotFound(f"there is no object {key!r} now; say since when, to replay what the log has of it")
    item = Item(key, found.version, found.stored_at, found.size_bytes)
    return there(item, exact=bucket.exact_versions)


def _objects(bucket: OpenBucket, prefix: str, teller: _Teller) -> Procedure[None]:
    position: str | None = ""
    while position is not None:
        items, position = yield from list_items(bucket, prefix, position)
        for item in items:
            yield from teller.offer(there(item, exact=bucket.exact_versions))


def _log(
    teller: _Teller, is_named: Callable[[ObjectEvent], bool], since: float, until: float | None
) -> Procedure[None]:
    queue = yield from events_queue(teller.bucket)
    now = yield from Now()
    end = now if until is None else until
    choice = RuleChoice(teller.rule, teller.chosen)
    for shard in range(queue.settings.shards):
        log = queue.log(shard)
        stop = yield from fresh_tail(queue, log)  # what we send ourselves does not count
        _, base = yield from position_of_time(queue, log, since)
        base = max(base, (yield from trim_mark(log)))
        while base < stop and (segment := (yield from read_segment(queue, log, base))) is not None:
            window = yield from judged(queue, log, segment)
            lines = yield from lines_of(queue, log, segment)
            for offset, line in enumerate(lines, start=segment.base):
                event = line.event
                if event is None or line.to is not None or choice.was_told(window.verdict(offset)):
                    continue
                if since <= seconds_of(event.at) <= end and is_named(event):
                    yield from teller.offer(event)
            base = segment.end


def test_key(bucket: OpenBucket, chosen: Filter, key: str, kind: str, body_bytes_max: int) -> Procedure[Tested]:
    """What the filter says to a key as it is in the bucket now; a key that is not there is judged by its name alone."""
    if kind not in KINDS:
        raise Invalid(f"a kind is one of {', '.join(KINDS)}, not {kind!r}")
    found = yield from look_at(bucket, key)
    now = yield from Now()
    stored_at = found.stored_at if isinstance(found, Found) else now
    event = ObjectEvent(
        id=event_id("test", "", key),
        kind=kind,
        key=key,
        at=time_text(stored_at),
        source="sweep",
        size_bytes=found.size_bytes if isinstance(found, Found) else None,
        version=found.version if isinstance(found, Found) else None,
    )
    known = Known()
    if isinstance(found, Found):
        attributes = found.attributes
        known = Known(
            content_type=attributes.content_type or None, metadata=attributes.metadata, size_bytes=found.size_bytes
        )
    body = NO_JSON if not chosen.needs.body else (yield from json_body(bucket, event, body_bytes_max))
    decision = chosen.decide(event, known, body)
    reasons = filters.why(chosen, event, known, body)
    return Tested(decision is Decision.MATCH, isinstance(found, Found), event, reasons)


def matching(bucket: OpenBucket, chosen: Filter, prefix: str, limit: int) -> Procedure[Matching]:
    """A dry run over what is there: which objects the filter matches. LISTs, and what the filter needs of each."""
    check_prefix(prefix)
    keys: list[str] = []
    matched = looked_at = 0
    position: str | None = ""
    while position is not None:
        items, position = yield from list_items(bucket, prefix, position)
        for item in items:
            looked_at += 1
            event = there(item, exact=bucket.exact_versions)
            if (yield from matches(bucket, chosen, event, body_bytes_max=1 << 20)):
                matched += 1
                keys.append(item.key)
                if len(keys) >= limit:
                    return Matching(tuple(keys), matched, looked_at, more=True)
    return Matching(tuple(keys), matched, looked_at, more=False)
