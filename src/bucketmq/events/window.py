"""Which events of a log say something new: duplicates collapse on the log itself.

The first telling of a change in a shard's log is the one that counts; later ones are passed over. That is a function of
the log alone, so every reader comes to the same answer without writing anything, and no reader can forget to undo a
mark: the first telling stays on its rule's hands until it is delivered or a dead letter.

Two events are about the same change when

 1. they have the same id (one notification, sent twice; one sweep, run twice), or
 2. they come from different sources, are about the same key and the same state, and
    a. the state's version belongs to one write alone (`exact`), or
    b. one of them is an observed state (sweep, folder): the other, told not earlier than the state was stored, and no
       more than `NEAR_SECONDS` later if it came after, is about that write, or
    c. both were told, at most `NEAR_SECONDS` apart: the n-th telling by one source matches the n-th by another.

A content hash does not tell two writes of the same bytes apart. Where it is all there is (S3 without versions), 2b and
2c may take the second of two such writes within `NEAR_SECONDS` for an echo of the first, if in addition the matching
notifications were lost crosswise. A re-run of the same notification never does, and no other case is doubtful.

An echo may tell more than the first telling did: that the object was moved, say, or its metadata. So a rule passes an
echo over only if its filter let an earlier telling through (`Verdict.of`): one that wants moves gets them.

How far a reader looks back is bounded by `EVENTS_MAX`; what comes later than that is delivered again.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from bucketmq.events.event import OBSERVED, ObjectEvent, seconds_of
from bucketmq.events.order import newer

EVENTS_MAX = 100_000
"""How many events of a shard a reader remembers."""

NEAR_SECONDS = 2.0
TELLINGS_MAX = 4
"""How many tellings of one state are compared with an echo."""


class _Telling(msgspec.Struct, gc=False):
    """What was reported about one state of one key."""

    counts: dict[str, int]
    """How often, by each source."""
    last: float
    events: list[ObjectEvent]
    """The first few of them."""
    observed: float | None = None
    """When the state was stored, if somebody saw it; of a deletion, since when it may have happened."""
    until: float | None = None
    """Of a deletion that somebody saw: when it had happened."""
    told: float | None = None
    """When it was last told by somebody who did not just see it."""


class Verdict(msgspec.Struct, frozen=True):
    """What the log before an event says about it."""

    duplicate: bool = False
    stale: bool = False
    """A newer event of the same key came before it."""
    of: tuple[ObjectEvent, ...] = ()
    """The tellings that it is an echo of; empty for one that was told before under the same id."""


FRESH = Verdict()


class Window:
    """The events of one shard's log from `low` on, in order, judged one after the other."""

    def __init__(self, low: int, *, events_max: int = EVENTS_MAX) -> None:
        self.low = low
        """Verdicts are known from here on."""
        self.high = low
        """The offset to be judged next."""
        self._events_max = events_max
        self._ids: OrderedDict[str, int] = OrderedDict()
        self._tellings: OrderedDict[tuple[str, str, str], _Telling] = OrderedDict()
        self._newest: OrderedDict[str, ObjectEvent] = OrderedDict()
        self._verdicts: OrderedDict[int, Verdict] = OrderedDict()

    def reaches(self, offset: int) -> bool:
        """Whether it knows of `offset`, or will when no more than `events_max` further events are judged."""
        return self.low <= offset <= self.high + self._events_max

    def skip(self, offset: int) -> None:
        """There is no event for everybody at this offset."""
        self.high = offset + 1

    def judge(self, offset: int, event: ObjectEvent) -> Verdict:
        """The verdict on the event at `offset`, which is the next one."""
        repeated = event.id in self._ids
        echo_of = () if repeated else self._echo_of(event)
        duplicate = repeated or bool(echo_of)
        self._ids.setdefault(event.id, offset)
        last = self._newest.get(event.key)
        stale = last is not None and newer(last, event) is True
        if not duplicate and (last is None or newer(event, last) is not False):  # an echo does not outdate its source
            self._newest[event.key] = event
            self._newest.move_to_end(event.key)
        self.high = offset + 1
        verdict = Verdict(duplicate, stale, echo_of) if duplicate or stale else FRESH
        if verdict is not FRESH:
            self._verdicts[offset] = verdict
        self._forget()
        return verdict

    def verdict(self, offset: int) -> Verdict:
        """What was found about an offset between `low` and `high`."""
        return self._verdicts.get(offset, FRESH)

    def verdicts(self, start: int, stop: int) -> dict[int, Verdict]:
        """The same for all offsets from `start` to `stop` about which there is something to say."""
        if not self._verdicts:
            return {}
        return {offset: found for offset in range(start, stop) if (found := self._verdicts.get(offset)) is not None}

    def superseded(self, event: ObjectEvent) -> bool:
        """Whether a newer event of the same key is known, wherever in the log it lies."""
        last = self._newest.get(event.key)
        return last is not None and newer(last, event) is True

    def _echo_of(self, event: ObjectEvent) -> tuple[ObjectEvent, ...]:
        """Note what was told, and say by whom it had been told before."""
        state = _state(event)
        if state is None:
            return ()
        telling = self._tellings.get(state)
        echo_of: tuple[ObjectEvent, ...] = ()
        if telling is None:
            telling = self._tellings[state] = _Telling({}, _time(event), [])
        elif _echoes(telling, event, gone=event.kind == "deleted"):
            echo_of = tuple(telling.events) if event.kind != "deleted" or self._is_last_word(telling, event) else ()
        if not (echo_of and event.kind == "deleted" and event.source in OBSERVED):
            # That an object is gone is seen later than it happened. A deletion that was told explains it, and
            # must not be made to look as if it had happened up to now: the next one would be taken for its echo.
            _note(telling, event)
        self._tellings.move_to_end(state)
        return echo_of

    def _is_last_word(self, telling: _Telling, event: ObjectEvent) -> bool:
        """Whether nothing was reported about the key since its deletion was: otherwise its deletion is new."""
        last = self._newest.get(event.key)
        return last is None or last.kind == "deleted" or _time(last) <= telling.last

    def _forget(self) -> None:
        for memory in (self._ids, self._tellings, self._newest, self._verdicts):
            while len(memory) > self._events_max:
                memory.popitem(last=False)
        while self.high - self.low > self._events_max and self._verdicts and next(iter(self._verdicts)) < self.low:
            self._verdicts.popitem(last=False)
        self.low = max(self.low, self.high - self._events_max)


def _state(event: ObjectEvent) -> tuple[str, str, str] | None:
    """The state of a key that an event is about. A deletion's version is left out: most sources do not tell it."""
    if event.kind == "deleted":
        return event.key, "gone", ""
    if event.kind == "other" or event.version is None:
        return None
    return event.key, "there", event.version


def _time(event: ObjectEvent) -> float:
    return seconds_of(event.at)


def _echoes(telling: _Telling, event: ObjectEvent, *, gone: bool) -> bool:
    others = {source: count for source, count in telling.counts.items() if source != event.source}
    if not others:
        return False
    at = _time(event)
    if gone:
        return _echoes_deletion(telling, event, at)
    if event.exact:
        return True
    if event.source in OBSERVED:
        return telling.last >= at  # reported at or after the moment this state was stored
    if telling.observed is not None and telling.observed <= at <= telling.observed + NEAR_SECONDS:
        return True
    count = telling.counts.get(event.source, 0)
    return abs(at - telling.last) <= NEAR_SECONDS and max(others.values()) > count


def _echoes_deletion(telling: _Telling, event: ObjectEvent, at: float) -> bool:
    if event.source in OBSERVED and event.seen_at is not None:
        return telling.last >= seconds_of(event.seen_at)  # reported after the state that is gone was stored
    count = telling.counts.get(event.source, 0)
    told = max((n for source, n in telling.counts.items() if source not in OBSERVED | {event.source}), default=0)
    if telling.told is not None and abs(at - telling.told) <= NEAR_SECONDS and told > count:
        return True
    return telling.observed is not None and telling.until is not None and telling.observed <= at <= telling.until


def _note(telling: _Telling, event: ObjectEvent) -> None:
    at = _time(event)
    telling.counts[event.source] = telling.counts.get(event.source, 0) + 1
    telling.last = max(telling.last, at)
    if len(telling.events) < TELLINGS_MAX:
        telling.events.append(event)
    if event.source in OBSERVED:
        telling.observed = seconds_of(event.seen_at) if event.seen_at is not None else at
        telling.until = at
    else:
        telling.told = at if telling.told is None else max(telling.told, at)
