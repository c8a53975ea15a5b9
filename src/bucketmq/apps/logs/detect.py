"""What is out of the ordinary for a service: spikes, silence, more errors than usual for the hour, odd sequences.

`step` takes the state of one service and what an object came to (or that time has passed) and gives the next state and
what changed: incidents that began, and those that are over. Pure: no clock, no requests; the same steps give the same
incidents with and without Spark.

**Time** is that of the lines. The watermark is `late_minutes` behind the newest line; what is older than the watermark
is late: it goes into the counts, and can neither begin nor prolong an incident. Silence alone goes by when objects
come, and by ticks, since missing lines do not carry a time.

**What is usual** is the median of the past and its spread (MAD); for what is rare, where both are zero, the number that
a Poisson process of that rate exceeds once in a million times. A new pattern is found where models are merged
(`alerts.learn`), and is over by the same rule as all others: not seen for `quiet_minutes`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Literal

import msgspec

from bucketmq.apps.logs.matching import MINUTE
from bucketmq.apps.logs.names import fingerprint
from bucketmq.apps.logs.parse import LEVELS
from bucketmq.apps.logs.sequences import Judge, Sequences, learnt, vector_of

Kind = Literal["new-pattern", "new-patterns", "spike", "silence", "errors", "sequence"]
Severity = Literal["info", "warning", "error", "critical"]

HOUR = 3_600
WEEK_HOURS = 168
HISTORY_MINUTES = 60
HISTORY_MINUTES_MIN = 10
"""A service that is known for less has no past to compare with."""
HISTORY_HOURS = 5 * WEEK_HOURS
TEMPLATES_MAX = 400
"""Templates whose minutes are kept; those that were seen longest ago are forgotten first."""
KNOWN_MAX = 2_000
FRESH_MAX = 50
"""New templates that are followed until they are seen no more; of a deployment that renamed more, the first ones."""
SOURCES_MAX = 500
KEPT_MAX = 20
KEPT_COUNTS_MAX = 500
"""Objects whose counts are kept, and counts of one."""
SPIKE_MIN = 20
ERRORS_MIN = 10
SPREADS = 6.0
CHANCE = 1e-6
STORM = 5
"""More templates than this that spike at once are one incident of the service."""
GAPS_KEPT = 20
GAPS_OF_SILENCE = 5
SESSIONS_MAX = 2_000
SESSION_EVENTS_MAX = 100_000
"""Of all sessions that have not ended together: the state is written with every object."""
SESSION_MINUTES = 5
ODD_MAX = 200
ODD_TIMES_LEARNT = 100
"""A sequence that came so often is how things are now."""
ERROR = LEVELS.index("error")


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What users tune."""

    late_minutes: int = 10
    quiet_minutes: int = 15
    silence_minutes: int = 15
    learning_minutes: int = 60
    new_pattern_level: str = "warning"
    sequences_learnt: int = 1_000


class Window(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an object came to, as far as detectors want to know; without a source it is a tick: time has passed."""

    at: float
    """When the object was written."""
    source: str = ""
    version: str = ""
    lines: int = 0
    skewed: int = 0
    counts: list[tuple[int, str, str, int]] = []
    templates: dict[str, str] = {}
    examples: dict[str, list[str]] = {}
    fresh: list[str] = []
    """Templates that the model did not have."""
    sessions: list[tuple[str, list[str]]] = []


class Ongoing(msgspec.Struct, frozen=True):
    """An incident that is not over."""

    kind: Kind
    template: str
    since: int
    last: int
    """The last minute that it went on in."""
    count: int = 0


class Session(msgspec.Struct, frozen=True):
    events: list[str]
    last: int


class State(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is kept of a service."""

    sources: list[str] = []
    """Objects that were counted, the last ones."""
    kept: dict[str, list[tuple[int, str, str, int]]] = {}
    """What the last few objects were counted for: one that is written again with more in it counts for the rest."""
    began: int = 0
    newest: int = 0
    """The newest minute of any line."""
    arrived: float = 0.0
    """When the last object with lines came."""
    gaps: list[float] = []
    lines: int = 0
    late: int = 0
    skewed: int = 0
    minutes: dict[str, dict[int, int]] = {}
    """Of each template, how often it occurred in the minutes of the last hour."""
    hours: dict[int, int] = {}
    """Errors in each hour that had lines, for five weeks."""
    ongoing: dict[str, Ongoing] = {}
    known: list[str] = []
    """Templates that were seen before: a stage whose model is a moment old may call them new."""
    fresh: dict[str, int] = {}
    """Templates that are new, and the minute they were last seen in."""
    sequences: Sequences = Sequences()
    sessions: dict[str, Session] = {}
    odd: dict[str, int] = {}


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """An incident began, or is over."""

    over: bool
    fingerprint: str
    service: str
    kind: Kind
    since: int
    """The minute it began in; with the fingerprint it tells incidents apart."""
    at: int
    severity: Severity = "warning"
    template_id: str = ""
    template: str = ""
    why: str = ""
    count: int = 0
    usual: float = 0.0
    examples: list[str] = []
    source: str = ""


def step(service: str, state: State, window: Window, limits: Limits) -> tuple[State, list[Change]]:
    """The next state, and what changed."""
    if not window.source:
        return _settled(service, state, window, limits, [])
    told = f"{window.source}\0{window.version or window.at}"
    mark = hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    if mark in state.sources or not window.counts:
        return state, []
    before, whole = state, window.counts
    window = _difference(window, state.kept.get(window.source, []))
    if not window.counts:
        return msgspec.structs.replace(state, sources=[*state.sources, mark][-SOURCES_MAX:]), []
    kept = {**{source: its for source, its in state.kept.items() if source != window.source}, window.source: whole}
    state = msgspec.structs.replace(
        state, kept={source: kept[source][-KEPT_COUNTS_MAX:] for source in list(kept)[-KEPT_MAX:]}
    )
    state = _counted(state, window, limits, mark)
    changes: list[Change] = []
    if state.newest - state.began >= limits.learning_minutes * MINUTE:
        changes += _errors(service, before, state, window, limits)
        errors = bool(changes) or fingerprint("", "errors", "") in before.ongoing
        changes += _spikes(service, before, state, window, limits, part_of_errors=errors)
        changes += _missing(service, state, window, limits)
    state, odd = _sequences(service, state, window, limits)
    return _settled(service, state, window, limits, [*changes, *odd])


def _difference(window: Window, counted: Sequence[tuple[int, str, str, int]]) -> Window:
    """What an object has more than when it was counted last."""
    if not counted:
        return window
    before = {(minute, id, level): count for minute, id, level, count in counted}
    counts = [
        (minute, id, level, more)
        for minute, id, level, count in window.counts
        if (more := count - before.get((minute, id, level), 0)) > 0
    ]
    lines = max(0, window.lines - sum(before.values()))
    return msgspec.structs.replace(window, counts=counts, lines=lines, skewed=0)


def _counted(state: State, window: Window, limits: Limits, mark: str) -> State:
    """The state with an object's lines in it."""
    newest = max(state.newest, *(minute for minute, *_ in window.counts))
    oldest = newest - HISTORY_MINUTES * MINUTE
    watermark = state.newest - limits.late_minutes * MINUTE
    minutes = {id: dict(its) for id, its in state.minutes.items()}
    hours = dict(state.hours)
    known = set(state.known)
    learnt_already = state.began and newest - state.began >= limits.learning_minutes * MINUTE
    new = [id for id in window.fresh if learnt_already and id not in known][: FRESH_MAX - len(state.fresh)]
    fresh = {**state.fresh, **dict.fromkeys(new, 0)}
    late = 0
    for minute, id, level, count in window.counts:
        if minute >= oldest:
            its = minutes.setdefault(id, {})
            its[minute] = its.get(minute, 0) + count
        hour = minute // HOUR
        hours[hour] = hours.get(hour, 0) + (count if LEVELS.index(level) >= ERROR else 0)
        late += count if state.newest and minute < watermark else 0
        if id in fresh:
            fresh[id] = max(fresh[id], minute)
    kept = {id: {at: n for at, n in its.items() if at >= oldest} for id, its in minutes.items()}
    recent = sorted((id for id, its in kept.items() if its), key=lambda id: (-max(kept[id]), id))[:TEMPLATES_MAX]
    first = min(minute for minute, *_ in window.counts)
    gaps = [*state.gaps, max(0.0, window.at - state.arrived)] if state.arrived else []
    return msgspec.structs.replace(
        state,
        sources=[*state.sources, mark][-SOURCES_MAX:],
        began=min(state.began or first, first),
        newest=newest,
        arrived=max(state.arrived, window.at),
        gaps=gaps[-GAPS_KEPT:],
        lines=state.lines + window.lines,
        late=state.late + late,
        skewed=state.skewed + window.skewed,
        minutes={id: kept[id] for id in sorted(recent)},
        hours={hour: hours[hour] for hour in sorted(hours)[-HISTORY_HOURS:]},
        fresh=fresh,
        known=[*state.known, *sorted({id for _, id, _, _ in window.counts} - known)][-KNOWN_MAX:],
    )


def _spikes(
    service: str, before: State, state: State, window: Window, limits: Limits, *, part_of_errors: bool
) -> list[Change]:
    """Templates that come far more often than usual; not those that are told as new, or as more errors, already."""
    watermark = before.newest - limits.late_minutes * MINUTE
    worst = LEVELS.index(limits.new_pattern_level)
    levels = [(id, LEVELS.index(level)) for _, id, level, _ in window.counts]
    told_already = {id for id, level in levels if id in state.fresh and level >= worst}
    if part_of_errors:
        told_already |= {id for id, level in levels if level >= ERROR}
    found: dict[str, tuple[int, int, float]] = {}
    for minute, id in sorted({(minute, id) for minute, id, _, _ in window.counts}):
        past = _past(before, state, id, minute)
        count = state.minutes.get(id, {}).get(minute, 0)
        if minute < watermark or len(past) < HISTORY_MINUTES_MIN or count < SPIKE_MIN or id in told_already:
            continue
        usual = median(past)
        if count > upper(past) and count >= 3 * max(1.0, usual) and count > found.get(id, (0, 0, 0.0))[1]:
            found[id] = (minute, count, usual)
    if len(found) > STORM:
        minute = min(at for at, _, _ in found.values())
        why = f"{len(found)} patterns came far more often than usual in one minute"
        count, usual = sum(each[1] for each in found.values()), sum(each[2] for each in found.values())
        examples = _one_of_each(window, found)
        return [_change(service, "spike", "", minute, window, why=why, count=count, usual=usual, examples=examples)]
    told = []
    for id, (minute, count, usual) in sorted(found.items()):
        why = f"{count:,} lines in one minute; {usual:,.0f} are usual"
        told.append(_change(service, "spike", id, minute, window, why=why, count=count, usual=usual))
    return told


def _one_of_each(window: Window, ids: Iterable[str]) -> list[str]:
    """An example of each of these templates."""
    return [line for id in sorted(ids) for line in window.examples.get(id, [])[:1]]


def _past(before: State, state: State, id: str, minute: int) -> list[int]:
    """How often a template came in each of the minutes before, as far back as the service is known. The minutes of an
    incident that goes on are not a baseline."""
    if not before.began:
        return []
    ongoing = before.ongoing.get(fingerprint("", "spike", id))
    end = minute if ongoing is None else min(minute, ongoing.since)
    start = max(state.began, minute - HISTORY_MINUTES * MINUTE)
    its = state.minutes.get(id, {})
    return [its.get(at, 0) for at in range(start, end, MINUTE)]


def upper(past: Sequence[int]) -> float:
    """More than this is out of the ordinary."""
    usual = median(past)
    spread = 1.4826 * median(abs(each - usual) for each in past)
    return max(usual + SPREADS * spread, poisson(sum(past) / len(past)))


def poisson(rate: float) -> float:
    """What a Poisson process of this rate exceeds with a chance of one in a million."""
    if rate > 400:
        return rate + 5.0 * math.sqrt(rate)
    chance = total = math.exp(-rate)
    number = 0
    while total < 1 - CHANCE and number < 10_000:
        number += 1
        chance *= rate / number
        total += chance
    return float(number)


def _errors(service: str, before: State, state: State, window: Window, limits: Limits) -> list[Change]:
    """More errors in an hour than in the same hour of other weeks, of other days, or of any."""
    watermark = before.newest - limits.late_minutes * MINUTE
    told = [(minute, id, count) for minute, id, level, count in window.counts if LEVELS.index(level) >= ERROR]
    for hour in sorted({minute // HOUR for minute, _, _ in told if minute >= watermark}):
        past = usual_hours(state.hours, hour)
        count = state.hours.get(hour, 0)
        if not past or count < ERRORS_MIN or count <= upper(past):
            continue
        usual = median(past)
        return [
            _change(
                service,
                "errors",
                "",
                max(minute for minute, _, _ in told if minute // HOUR == hour),
                window,
                severity="error",
                why=f"{count:,} errors in this hour; {usual:,.0f} are usual for it",
                count=count,
                usual=usual,
                examples=_one_of_each(window, {id for minute, id, _ in told if minute // HOUR == hour}),
            )
        ]
    return []


def usual_hours(hours: dict[int, int], hour: int) -> list[int]:
    """What to compare an hour with: the same hour of at least three weeks, of five days, or six hours of any kind."""
    past = {at: count for at, count in hours.items() if at < hour}
    for every, enough in ((WEEK_HOURS, 3), (24, 5), (1, 6)):
        like = [count for at, count in past.items() if (hour - at) % every == 0]
        if len(like) >= enough:
            return like
    return []


def _missing(service: str, state: State, window: Window, limits: Limits) -> list[Change]:
    """A line that came every minute, and does not any more while others do."""
    end = state.newest - limits.late_minutes * MINUTE
    start = max(state.began, state.newest - HISTORY_MINUTES * MINUTE)
    gap = max(5, limits.late_minutes) * MINUTE
    if end - gap - start < 20 * MINUTE:
        return []
    found = []
    for id, its in state.minutes.items():
        lived = [at for at in range(start, end - gap, MINUTE) if at in its]
        if len(lived) >= 0.95 * ((end - gap - start) // MINUTE) and not any(at >= end - gap for at in its):
            found.append(_change(service, "silence", id, end - gap, window, why="it came every minute, and stopped"))
    return found if len(found) <= STORM else []


def _sequences(service: str, state: State, window: Window, limits: Limits) -> tuple[State, list[Change]]:
    """Gather what belongs to one key; judge what has ended."""
    minute_of = state.newest
    sessions = dict(state.sessions)
    for key, events in window.sessions:
        before = sessions.pop(key, None)
        joined = [*before.events, *events] if before is not None else list(events)
        sessions[key] = Session(joined[-500:], minute_of)
    ended = {key: each for key, each in sessions.items() if each.last <= minute_of - SESSION_MINUTES * MINUTE}
    left = {key: each for key, each in sessions.items() if key not in ended}
    events_left = sum(len(each.events) for each in left.values())
    while len(left) > SESSIONS_MAX or events_left > SESSION_EVENTS_MAX:
        # The oldest cannot be judged: they have not ended.
        events_left -= len(left.pop(next(iter(left))).events)
    state = msgspec.structs.replace(state, sessions=left)
    if not ended:
        return state, []
    learning = state.sequences.seen < limits.sequences_learnt
    judge = Judge(state.sequences)
    odd = {} if learning else {key: why for key, each in ended.items() if (why := judge.oddity(each.events))}
    strange = dict(state.odd)
    for key in odd:
        vector = vector_of(ended[key].events)
        strange[vector] = strange.pop(vector, 0) + 1
    normal = [each.events for key, each in ended.items() if key not in odd]
    often = [each for each, times in strange.items() if times >= ODD_TIMES_LEARNT]
    model = learnt(state.sequences, normal) if learning else state.sequences
    for vector in often:
        model = msgspec.structs.replace(model, vectors={**model.vectors, vector: strange.pop(vector)})
    state = msgspec.structs.replace(state, sequences=model, odd=_most_often(strange))
    if not odd:
        return state, []
    examples = [f"{key}: {why}" for key, why in sorted(odd.items())]
    why = f"{len(odd)} of {len(ended)} sequences were odd; {examples[0]}"
    return state, [_change(service, "sequence", "", minute_of, window, why=why, count=len(odd), examples=examples)]


def _most_often(strange: dict[str, int]) -> dict[str, int]:
    """The odd sequences that are remembered, as they may become usual: of those that came as often, the latest."""
    kept = set(sorted(strange, key=strange.__getitem__)[-ODD_MAX:])  # a stable order: the latest are last
    return {each: times for each, times in strange.items() if each in kept}


def _settled(
    service: str, state: State, window: Window, limits: Limits, found: Iterable[Change]
) -> tuple[State, list[Change]]:
    """Incidents that go on are one; those that did not go on for a while are over."""
    ongoing = dict(state.ongoing)
    told: list[Change] = []
    for each in found:
        mark = fingerprint("", each.kind, each.template_id)
        before = ongoing.get(mark)
        if before is None:
            ongoing[mark] = Ongoing(each.kind, each.template_id, each.since, each.at, each.count)
            told.append(each)
        else:
            last, count = max(before.last, each.at), max(before.count, each.count)
            ongoing[mark] = msgspec.structs.replace(before, last=last, count=count)
    told += _silence(service, state, window, limits, ongoing)
    # Between objects the time of the lines goes on as fast as ours does, however old they are.
    horizon = state.newest + (0 if window.source else max(0, int(window.at - state.arrived)))
    fresh = dict(state.fresh)
    for id, last in state.fresh.items():
        if horizon - last >= limits.quiet_minutes * MINUTE:
            del fresh[id]
            told.append(_over(service, "new-pattern", id, window, at=horizon))
    if state.fresh and not fresh:
        told.append(_over(service, "new-patterns", "", window, at=horizon))
    for mark, its in list(ongoing.items()):
        if its.kind == "silence" and its.template:
            goes_on = not any(at > its.last for at in state.minutes.get(its.template, {}))
        else:
            goes_on = its.kind == "silence" or horizon - its.last < limits.quiet_minutes * MINUTE
        if not goes_on:
            del ongoing[mark]
            told.append(_over(service, its.kind, its.template, window, since=its.since, at=horizon, count=its.count))
    return msgspec.structs.replace(state, ongoing=ongoing, fresh=fresh), told


def _silence(service: str, state: State, window: Window, limits: Limits, ongoing: dict[str, Ongoing]) -> list[Change]:
    """No object for far longer than usual; over as soon as one comes."""
    mark = fingerprint("", "silence", "")
    before = ongoing.get(mark)
    if window.source:
        if before is None:
            return []
        del ongoing[mark]
        return [_over(service, "silence", "", window, since=before.since, at=int(window.at))]
    waited = window.at - state.arrived
    if before is not None or not state.arrived or len(state.gaps) < 5:
        return []
    if waited < max(limits.silence_minutes * MINUTE, GAPS_OF_SILENCE * median(state.gaps)):
        return []
    since = int(state.arrived)
    ongoing[mark] = Ongoing("silence", "", since, since)
    why = f"nothing came for {waited / MINUTE:.0f} minutes; every {median(state.gaps) / MINUTE:.1f} is usual"
    return [_change(service, "silence", "", since, window, severity="error", why=why, usual=median(state.gaps))]


def _change(
    service: str,
    kind: Kind,
    template_id: str,
    at: int,
    window: Window,
    *,
    severity: Severity = "warning",
    why: str,
    count: int = 0,
    usual: float = 0.0,
    examples: Sequence[str] | None = None,
) -> Change:
    return Change(
        over=False,
        fingerprint=fingerprint(service, kind, template_id),
        service=service,
        kind=kind,
        since=at,
        at=at,
        severity=severity,
        template_id=template_id,
        template=window.templates.get(template_id, ""),
        why=why,
        count=count,
        usual=usual,
        examples=list(window.examples.get(template_id, []) if examples is None else examples)[:10],
        source=window.source,
    )


def _over(
    service: str, kind: Kind, template_id: str, window: Window, *, at: int, since: int = 0, count: int = 0
) -> Change:
    return Change(
        over=True,
        fingerprint=fingerprint(service, kind, template_id),
        service=service,
        kind=kind,
        since=since,
        at=at,
        template_id=template_id,
        count=count,
        source=window.source,
    )
