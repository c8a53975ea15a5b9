"""The simulated store: a linearizable dictionary at the end of an unreliable line.

Every request has two moments, when it arrives and is done, and when the answer reaches the client; faults fall on
either side of the first. Reads are never stale: the stores this project supports are strongly consistent.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, insort
from collections.abc import Callable
from typing import Any, Protocol

from bucketmq.bucket.memory import MemoryStore
from bucketmq.bucket.port import PLAIN, Attributes, Object, Page, Refused, Unknown, Version, Written
from bucketmq.engines.meter import NAMES
from bucketmq.engines.perform import Reply, carry_out
from bucketmq.errors import Unavailable
from bucketmq.procedures.requests import Copy, Create, Get, List, Look, Remove, Rename, Replace, StoreRequest
from bucketmq.testing.simulation.faults import NONE, Faults
from bucketmq.testing.simulation.world import World

LATENCY_SECONDS = 0.005, 0.040
_SOONEST_SECONDS, _SPREAD_SECONDS = LATENCY_SECONDS[0], LATENCY_SECONDS[1] - LATENCY_SECONDS[0]
TIMEOUT_SECONDS = 0.5, 3.0
"""How long a client waits for an answer that does not come."""

LATE_SECONDS = 0.0, 20.0
SLOW_SECONDS = 1.0, 20.0
"""A request that is slow is answered in the end: clients wait longer than this."""

Deliver = Callable[[Any, BaseException | None], None]

_LANDS = frozenset({"slow", "lost_reply", "late_landing"})
_READS = frozenset({Get, Look, List})
_CONDITIONAL = frozenset({Create, Replace, Remove, Rename, Copy})
_MAKES = frozenset({Create, Rename, Copy})


class Witness(Protocol):
    """Called with every change the moment it lands."""

    def landed(self, who: str, key: str, body: bytes | None) -> None: ...


class SimStore(MemoryStore):
    """A store in memory at the end of that line. `answer_stamps` says whether a write's answer tells the store's clock,
    and `content_versions` whether equal bytes get equal versions, as on S3.
    """

    def __init__(
        self,
        world: World,
        *,
        lists_in_order: bool,
        answer_stamps: bool,
        content_versions: bool,
        whole_seconds: bool,
        renames: bool = False,
        copies: bool = False,
        local: bool = False,
    ) -> None:
        super().__init__(self._stamp)
        self.world = world
        self.faults: Faults = NONE
        self.lists_in_order = lists_in_order
        self.local = local
        self.renames = renames
        self.copies = copies
        self.exact_versions = not content_versions
        self.witness: Witness | None = None
        self.objects = self._objects
        self.ahead_seconds = 0.0
        """How far its clock is ahead of true time."""
        self.requests = 0
        self.refused = 0
        self.who = ""
        """Whose request is being done."""
        self.creates_in_flight = 0
        """Creates, renames and copies that will still land, whether or not their senders live."""
        self.writes_in_flight = 0
        """Everything that will still change something."""
        self._answer_stamps = answer_stamps
        self._whole_seconds = whole_seconds

    def submit(self, who: str, request: StoreRequest, deliver: Deliver) -> None:
        """Send a request off; `deliver` is called with the answer, or with an error, or never if the client died."""
        self.requests += 1
        world, kind = self.world, type(request)
        fault = None if self.faults is NONE else self._draw(kind)
        there = _SOONEST_SECONDS + _SPREAD_SECONDS * world.chance()
        back = _SOONEST_SECONDS + _SPREAD_SECONDS * world.chance()
        if kind not in _READS and (fault is None or fault in _LANDS):
            self.writes_in_flight += 1
            if kind in _MAKES:
                self.creates_in_flight += 1
        if fault is None:
            world.after(there, self._arrive, who, request, deliver, back)
            return
        world.faults[fault] += 1
        if world.lines is not None:
            world.note(who, f"{fault}: {describe(request)}")
        if fault == "slow":
            seconds, part = world.between(*SLOW_SECONDS), world.chance()
            world.after(seconds * part, self._arrive, who, request, deliver, seconds * (1 - part))
        elif fault == "conflict_409":
            world.after(there + back, deliver, Refused(), None)
        elif fault == "error_503":
            world.after(there + back, deliver, *_no_answer(request, "503"))
        else:
            patience = world.between(*TIMEOUT_SECONDS)
            world.after(patience, deliver, *_no_answer(request, "timeout"))
            if fault == "lost_reply":
                world.after(there, self._arrive, who, request, None, 0.0)
            elif fault == "late_landing":
                world.after(patience + world.between(*LATE_SECONDS), self._arrive, who, request, None, 0.0)

    def _draw(self, kind: type) -> str | None:
        faults, chance = self.faults, self.world.chance
        if faults.lost_request and chance() < faults.lost_request:
            return "lost_request"
        if faults.lost_reply and chance() < faults.lost_reply:
            return "lost_reply"
        if faults.late_landing and chance() < faults.late_landing and kind not in _READS:
            return "late_landing"
        if faults.conflict_409 and chance() < faults.conflict_409 and kind in _CONDITIONAL:
            return "conflict_409"
        if faults.error_503 and chance() < faults.error_503:
            return "error_503"
        if faults.slow and chance() < faults.slow * 0.2:
            return "slow"
        return None

    def _arrive(self, who: str, request: StoreRequest, deliver: Deliver | None, back: float) -> None:
        self.who = who
        kind = type(request)
        answer = self.perform(request)
        if kind not in _READS:
            self.writes_in_flight -= 1
            if kind in _MAKES:
                self.creates_in_flight -= 1
        if self.world.lines is not None:
            self.world.note(who, f"{describe(request)} -> {type(answer).__name__ if answer is not None else 'ok'}")
        if deliver is not None:
            self.world.after(back, deliver, answer, None)

    def overwrite(self, who: str, key: str, body: bytes, attributes: Attributes = PLAIN) -> None:
        """A plain PUT by somebody who knows nothing of conditions, landing now."""
        self.who = who
        if key not in self.objects:
            insort(self._keys, key)
        self._put(key, body, attributes)

    def erase(self, who: str, key: str) -> None:
        """A plain DELETE by somebody who knows nothing of the library, landing now."""
        self.who = who
        self._drop(key)

    def perform(self, request: StoreRequest) -> Reply:
        """Do it, now."""
        answer = carry_out(self, request)
        self.refused += isinstance(answer, Refused)
        return answer

    def keys(self, prefix: str) -> list[str]:
        first = bisect_left(self._keys, prefix)
        last = bisect_left(self._keys, prefix + "\U0010ffff")
        return self._keys[first:last]

    def list(self, prefix: str, *, after: str, limit: int) -> Page:
        page = super().list(prefix, after=after, limit=limit)
        if self.lists_in_order:
            return page
        entries = [*page.entries]
        self.world.random.shuffle(entries)
        return Page(tuple(entries), page.more)

    def _stamp(self) -> float:
        now = self.world.now + self.ahead_seconds
        return float(int(now)) if self._whole_seconds else round(now, 3)

    def _version_of(self, body: bytes) -> Version:
        return super()._version_of(body) if self.exact_versions else Version(hashlib.md5(body).hexdigest())

    def _drop(self, key: str) -> Object:
        dropped = super()._drop(key)
        self._tell(key, None)
        return dropped

    def _put(self, key: str, body: bytes, attributes: Attributes) -> Written:
        written = super()._put(key, body, attributes)
        self._tell(key, body)
        return written if self._answer_stamps else Written(written.version, None)

    def _tell(self, key: str, body: bytes | None) -> None:
        if self.witness is not None:
            self.witness.landed(self.who, key, body)


def _no_answer(request: StoreRequest, why: str) -> tuple[Unknown | None, Unavailable | None]:
    """What a client makes of silence: a write's outcome is unknown, anything else may be tried again."""
    if type(request) in _CONDITIONAL:
        return Unknown(why), None
    return None, Unavailable(f"simulated {why}: {describe(request)}")


def describe(request: StoreRequest) -> str:
    name = NAMES[type(request)]
    if isinstance(request, List):
        return f"{name} {request.prefix} after {request.after!r}"
    if isinstance(request, Create | Replace):
        return f"{name} {request.key} {request.body[:400].decode(errors='replace').rstrip()}"
    if isinstance(request, Rename | Copy):
        return f"{name} {request.key} to {request.target}"
    return f"{name} {request.key}"
