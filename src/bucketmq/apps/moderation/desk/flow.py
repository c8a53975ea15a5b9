"""How posts flow: how many passed each step in the last minutes, and how long each step took. Pure.

Fed with what the logs say: submissions, lines of the audit log, events, and the journal of deliveries. Reading them is
`figures`'.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from bucketmq.apps.moderation.audit import Line
from bucketmq.apps.moderation.ids import id_at
from bucketmq.apps.moderation.notice import NOTICE_RULE
from bucketmq.apps.moderation.record import APPROVED, FLAGGED, NEEDS_REVIEW, PENDING
from bucketmq.events.event import seconds_of
from bucketmq.procedures.rules.journal import Attempt

MINUTES = 15
WINDOW_SECONDS = MINUTES * 60.0
TIMES_MAX = 50_000
"""Passages of one step that are remembered."""
POSTS_MAX = 50_000
LATENCIES_MAX = 5_000

Passed = Literal["accepted", "judged", "approved", "flagged", "needs-review", "reviewed", "told"]
PASSED: tuple[Passed, ...] = ("accepted", "judged", "approved", "flagged", "needs-review", "reviewed", "told")

_ROUTED: dict[str, Passed] = {APPROVED: "approved", FLAGGED: "flagged", NEEDS_REVIEW: "needs-review"}

Step = Literal["judging", "routing", "whole", "review", "notice"]
STEPS: tuple[Step, ...] = ("judging", "routing", "whole", "review", "notice")
"""Accepted until judged; judged until routed; accepted until routed; routed until a person decided; flagged until
somebody was told."""


class Latency(msgspec.Struct, frozen=True):
    """Seconds that a step took, of those that ended within the window."""

    count: int
    p50: float
    p90: float
    most: float


REPEAT_SECONDS = 60.0
"""A revision that is sent so long after it was accepted was sent before, also if that was not seen."""


class Submission(msgspec.Struct, frozen=True):
    """What was sent to be judged, and when."""

    id: str
    revision: int
    at: float
    accepted_at: float


class Explained(msgspec.Struct, frozen=True):
    """What became of everything that was submitted within the window. Each submission counts once: `submitted` is the
    sum of the next four, and `judged` the sum of the last three."""

    submitted: int
    repeats: int
    """The same text and image again."""
    replaced: int
    """A newer version of the post was submitted since."""
    judged: int
    waiting: int
    """To be judged, or to be routed."""
    approved: int
    flagged: int
    needs_review: int


class Flow:
    """What happened within the window. Times are by the store's clock."""

    def __init__(self) -> None:
        self._times: dict[Passed, deque[float]] = {name: deque(maxlen=TIMES_MAX) for name in PASSED}
        self._took: dict[Step, deque[tuple[float, float]]] = {name: deque(maxlen=LATENCIES_MAX) for name in STEPS}
        self._began: OrderedDict[tuple[str, str], float] = OrderedDict()
        """When a post last came somewhere."""
        self._seen: OrderedDict[str, None] = OrderedDict()
        """Actions that were counted: a line may come twice."""
        self._sent: deque[tuple[Submission, bool]] = deque(maxlen=TIMES_MAX)
        """What was submitted, and whether it is a repeat."""
        self._known: OrderedDict[tuple[str, int], None] = OrderedDict()
        """Revisions that were submitted."""
        self._routed: OrderedDict[str, tuple[int, Passed]] = OrderedDict()
        """The newest revision of a post that was routed, and where to."""

    def add(self, lines: Iterable[Any], events: Iterable[Any]) -> None:
        """What the audit log and the log of events say, of the same stretch of time. What says nothing is passed over.

        A record below `pending/` is a post that was judged.
        """
        found: list[tuple[float, Line | str]] = [line for body in lines if (line := _line_of(body)) is not None]
        found += [judged for body in events if (judged := _judged(body)) is not None]
        for at, what in sorted(found, key=_order):
            if isinstance(what, Line):
                self._add_line(what, at)
            else:
                self._pass("judged", at)
                self._take("judging", self._began.get((what, "accepted")), at)
                self._come(what, "judged", at)

    def _add_line(self, line: Line, at: float) -> None:
        if line.action in self._seen:
            return
        _note(self._seen, line.action, None)
        match line.did:
            case "accepted":
                self._pass("accepted", at)
                self._come(line.id, "accepted", at)
            case "routed":
                if line.outcome in _ROUTED:
                    self._pass(_ROUTED[line.outcome], at)
                    if line.revision >= self._routed.get(line.id, (0, ""))[0]:
                        _note(self._routed, line.id, (line.revision, _ROUTED[line.outcome]))
                self._take("routing", self._began.get((line.id, "judged")), at)
                self._take("whole", self._began.get((line.id, "accepted")), at)
                self._come(line.id, "routed", at)
            case "approve" | "uphold":
                self._pass("reviewed", at)
                self._take("review", self._began.get((line.id, "routed")), at)

    def add_attempt(self, attempt: Attempt) -> None:
        if attempt.rule != NOTICE_RULE or attempt.outcome != "done":
            return
        try:
            at, since = seconds_of(attempt.at), seconds_of(attempt.happened_at)
        except ValueError:
            return
        self._pass("told", at)
        self._take("notice", since, at)

    def add_submission(self, sent: Submission) -> None:
        """In the order in which they were sent."""
        revision = (sent.id, sent.revision)
        again = revision in self._known or sent.at - sent.accepted_at > REPEAT_SECONDS
        _note(self._known, revision, None)
        self._sent.append((sent, again))

    def explained(self, now: float) -> Explained:
        """Of everything that was submitted within the window: why not all of it has an outcome of its own."""
        recent = [(sent, again) for sent, again in self._sent if now - sent.at < WINDOW_SECONDS]
        newest: dict[str, int] = {}
        for sent, _ in recent:
            newest[sent.id] = max(sent.revision, newest.get(sent.id, 0))
        counts = dict.fromkeys(("repeats", "replaced", "waiting", "approved", "flagged", "needs-review"), 0)
        for sent, again in recent:
            revision, outcome = self._routed.get(sent.id, (0, "waiting"))
            if again:
                counts["repeats"] += 1
            elif newest[sent.id] > sent.revision:
                counts["replaced"] += 1
            else:
                counts[outcome if revision >= sent.revision else "waiting"] += 1
        outcomes = counts["approved"], counts["flagged"], counts["needs-review"]
        return Explained(
            len(recent), counts["repeats"], counts["replaced"], sum(outcomes), counts["waiting"], *outcomes
        )

    def rates(self, now: float) -> dict[Passed, list[int]]:
        """How many passed each step in each of the last minutes, the oldest first."""
        found: dict[Passed, list[int]] = {}
        for name, times in self._times.items():
            counts = [0] * MINUTES
            for at in times:
                age = int((now - at) // 60)
                if 0 <= age < MINUTES:
                    counts[MINUTES - 1 - age] += 1
                elif age < 0:  # a clock that is ahead of the store's
                    counts[-1] += 1
            found[name] = counts
        return found

    def latencies(self, now: float) -> dict[Step, Latency | None]:
        """How long each step took; None where nothing came through."""
        found: dict[Step, Latency | None] = {}
        for name, took in self._took.items():
            seconds = sorted(each for at, each in took if now - at < WINDOW_SECONDS)
            found[name] = _latency(seconds) if seconds else None
        return found

    def _pass(self, name: Passed, at: float) -> None:
        self._times[name].append(at)

    def _come(self, id: str, where: str, at: float) -> None:
        _note(self._began, (id, where), at)

    def _take(self, step: Step, since: float | None, at: float) -> None:
        if since is not None:
            self._took[step].append((at, max(0.0, at - since)))


def _order(found: tuple[float, Line | str]) -> tuple[int, int]:
    """By time, which lines tell in milliseconds; within one, in the order in which a post comes by."""
    at, what = found
    step = 1 if isinstance(what, str) else 0 if what.did == "accepted" else 2
    return int(at * 1000 + 0.001), step


def _line_of(body: Any) -> tuple[float, Line] | None:
    try:
        line = msgspec.convert(body, Line)
        return seconds_of(line.at), line
    except ValueError:  # of its shape, or of its time
        return None


def _judged(body: Any) -> tuple[float, str] | None:
    """When which post was judged, if an event says that."""
    if not isinstance(body, dict) or body.get("kind") not in ("created", "changed"):
        return None
    key, at = body.get("key"), body.get("at")
    id = id_at(PENDING, key) if isinstance(key, str) else None
    if id is None or not isinstance(at, str):
        return None
    try:
        return seconds_of(at), id
    except ValueError:
        return None


def _note(kept: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > POSTS_MAX:
        kept.popitem(last=False)


def _latency(seconds: list[float]) -> Latency:
    last = len(seconds) - 1
    return Latency(len(seconds), seconds[int(0.5 * last)], seconds[int(0.9 * last)], seconds[-1])
