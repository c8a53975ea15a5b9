"""Reading the log of events for a rule: which of a segment's messages it wants.

What an event's own fields decide is decided here, before anything is claimed: events that do not match, echoes and
stale ones are passed over and cost a rule nothing. What needs the object itself is left to `procedures.rules.examine`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

import msgspec

from bucketmq.events.event import ObjectEvent
from bucketmq.events.filters import Decision, Filter
from bucketmq.events.rule import Rule
from bucketmq.events.window import EVENTS_MAX, Verdict, Window
from bucketmq.log.segment import Segment
from bucketmq.procedures.claiming.receive import position_of_offset
from bucketmq.procedures.heads.desk import Desk
from bucketmq.procedures.objects.report import has_times
from bucketmq.procedures.opened import OpenQueue, ShardLog
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.segments.messages import read_segment, read_span
from bucketmq.procedures.segments.tail import trim_mark
from bucketmq.queue.head import Span
from bucketmq.queue.message import Message

SEGMENTS_MAX = 64
WINDOWS_MAX = 4


class LoggedEvent(msgspec.Struct, frozen=True):
    """One message of the log of events: its event, or None if it holds none."""

    event: ObjectEvent | None
    to: str | None


def event_of(message: Message) -> ObjectEvent | None:
    """The event in a message; None for anything else that somebody sent to the queue."""
    try:
        event = msgspec.convert(message.body, ObjectEvent)
    except msgspec.ValidationError:
        return None
    return event if has_times(event) else None


class Memory:
    """What one process remembers of a shard's log of events, for all rules it runs."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lines: OrderedDict[int, list[LoggedEvent]] = OrderedDict()
        self.windows: list[Window] = []

    def keep(self, base: int, lines: list[LoggedEvent]) -> None:
        with self.lock:
            self.lines[base] = lines
            while len(self.lines) > SEGMENTS_MAX:
                self.lines.popitem(last=False)

    def window_for(self, base: int) -> Window | None:
        """The window that has judged most of the log before `base`, if it is not too far behind to be of use."""
        with self.lock:
            return self._window_for(base)

    def add(self, window: Window, base: int) -> Window:
        """Share a new window that is to reach `base`, unless another rule has just done so: then that one."""
        with self.lock:
            found = self._window_for(base)
            if found is None:
                found = window
                self.windows.append(window)
                del self.windows[:-WINDOWS_MAX]
            return found

    def _window_for(self, base: int) -> Window | None:
        return max((each for each in self.windows if each.reaches(base)), key=lambda each: each.high, default=None)


def memory_of(queue: OpenQueue, shard: int) -> Memory:
    return queue.shared(("memory", shard), Memory)


def lines_of(queue: OpenQueue, log: ShardLog, segment: Segment) -> Procedure[list[LoggedEvent]]:
    """The events of a segment, decoded once for all rules."""
    memory = memory_of(queue, log.shard)
    with memory.lock:
        found = memory.lines.get(segment.base)
    if found is None:
        messages = yield from read_span(queue, log, Span(segment.base, segment.base, segment.end))
        found = [LoggedEvent(None if each.fence is not None else event_of(each), each.to) for each in messages]
        memory.keep(segment.base, found)
    return found


def judged(
    queue: OpenQueue, log: ShardLog, segment: Segment, *, own: Window | None = None, events_max: int = EVENTS_MAX
) -> Procedure[Window]:
    """A window that has judged the whole segment. Reads the log before it, as far back as a reader looks, if nobody in
    this process has."""
    memory = memory_of(queue, log.shard)
    window = own if own is not None and own.reaches(segment.base) else memory.window_for(segment.base)
    if window is None:
        _, base = yield from position_of_offset(queue, log, max(0, segment.base - events_max))
        low = yield from trim_mark(log)
        window = memory.add(Window(min(max(base, low), segment.base), events_max=events_max), segment.base)
    while window.high < segment.base:
        before = yield from read_segment(queue, log, window.high)  # several rules may be at this: each helps
        if before is None:
            break
        _judge(memory, window, before.base, (yield from lines_of(queue, log, before)))
    _judge(memory, window, segment.base, (yield from lines_of(queue, log, segment)))
    return window


def _judge(memory: Memory, window: Window, base: int, lines: list[LoggedEvent]) -> None:
    with memory.lock:  # rules on other threads use the same window
        for offset in range(max(base, window.high), base + len(lines)):
            line = lines[offset - base]
            if line.event is None or line.to is not None:
                window.skip(offset)  # replays are for one rule, and on purpose
            else:
                window.judge(offset, line.event)


class RuleChoice:
    """What one rule wants of the log: a `commit.Choice`."""

    def __init__(self, rule: Rule, chosen: Filter) -> None:
        self.rule = rule
        self.filter = chosen
        self.passed_over = 0
        self._windows: dict[int, Window] = {}
        self._known: OrderedDict[tuple[int, int], frozenset[int]] = OrderedDict()

    @property
    def ordered(self) -> bool:
        return self.rule.policy.ordered

    def passes_over(self, desk: Desk, segment: Segment) -> Procedure[frozenset[int]]:
        place = desk.shard, segment.base
        found = self._known.get(place)
        if found is None:
            own = self._windows.get(desk.shard)
            window = yield from judged(desk.queue, desk.log, segment, own=own)
            self._windows[desk.shard] = window  # held on to: a rule that lags does not read back again and again
            lines = yield from lines_of(desk.queue, desk.log, segment)
            found = self._unwanted(segment.base, lines, window.verdicts(segment.base, segment.end))
            self.passed_over += len(found)
            self._known[place] = found
            while len(self._known) > SEGMENTS_MAX:
                self._known.popitem(last=False)
        return found

    def _unwanted(self, base: int, lines: list[LoggedEvent], verdicts: dict[int, Verdict]) -> frozenset[int]:
        """The offsets that this rule does not want. Once for each event and rule, so what is common is asked first."""
        decide = self.filter.decide
        found = []
        for offset, line in enumerate(lines, start=base):
            if line.event is None or line.to is not None:
                wanted = line.to == self.rule.subscription  # sent to this rule on purpose
            elif offset in verdicts and not self._cares(verdicts[offset]):
                wanted = False
            else:
                wanted = decide(line.event) is not Decision.NO_MATCH
            if not wanted:
                found.append(offset)
        return frozenset(found)

    def _cares(self, verdict: Verdict) -> bool:
        """Whether the rule wants to know of an event, given what the log before says about it."""
        return not (self.was_told(verdict) or (verdict.stale and self.drops_stale))

    def was_told(self, verdict: Verdict) -> bool:
        """Whether this rule was given the change before: an echo may tell more than a telling that did not match."""
        if not verdict.duplicate:
            return False
        return not verdict.of or any(self.filter.decide(each) is not Decision.NO_MATCH for each in verdict.of)

    @property
    def drops_stale(self) -> bool:
        return self.rule.policy.stale == "drop"

    def is_superseded(self, desk: Desk, event: ObjectEvent) -> bool:
        """Whether a newer event of the key is in the log, as far as this process has read it."""
        memory = memory_of(desk.queue, desk.shard)
        with memory.lock:
            windows = list(memory.windows)
        return any(window.superseded(event) for window in windows)
