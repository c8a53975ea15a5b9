"""The simulated store: a linearizable dictionary at the end of an unreliable line.

Every request has two moments, when it arrives and is done, and when the answer reaches the client; faults fall on
either side of the first. Reads are never stale: the stores this project supports are strongly consistent.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from typing import Any, Protocol

from bucketmq.bucket.port import (
    PLAIN,
    Attributes,
    Entry,
    Found,
    Missing,
    Object,
    Page,
    Refused,
    Removed,
    Unknown,
    Version,
    Written,
)
from bucketmq.errors import Unavailable
from bucketmq.procedures.requests import Copy, Create, Delete, Get, List, Look, Remove, Rename, Replace, StoreRequest
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
_NAMES = {
    Get: "get",
    Create: "create",
    Replace: "replace",
    Delete: "delete",
    List: "list",
    Look: "look",
    Remove: "remove",
    Rename: "rename",
    Copy: "copy",
}


class Witness(Protocol):
    """Called with every change the moment it lands."""

    def landed(self, who: str, key: str, body: bytes | None) -> None: ...


class SimStore:
    """The port's verbs, with faults. `answer_stamps` says whether a write's answer tells the store's clock, and
    `content_versions` whether equal bytes get equal versions, as on S3.
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
    ) -> None:
        self.world = world
        self.faults: Faults = NONE
        self.lists_in_order = lists_in_order
        self.local = False
        self.renames = renames
        self.exact_versions = not content_versions
        self.witness: Witness | None = None
        self.objects: dict[str, Object] = {}
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
        self._content_versions = content_versions
        self._whole_seconds = whole_seconds
        self._keys: list[str] = []
        self._versions = 0

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

    def perform(self, request: StoreRequest) -> Object | Found | Missing | Written | Removed | Refused | Page | None:
        """Do it, now."""
        match request:
            case Get(key):
                return self.objects.get(key) or Missing()
            case Look(key):
                found = self.objects.get(key)
                if found is None:
                    return Missing()
                return Found(len(found.body), found.version, found.stored_at, found.attributes)
            case Create(key, body, attributes):
                if key in self.objects:
                    return self._refuse()
                insort(self._keys, key)
                return self._put(key, body, attributes)
            case Replace(key, body, version, attributes):
                return self._put(key, body, attributes) if self._is_at(key, version) else self._refuse()
            case Delete(key):
                if key in self.objects:
                    self._drop(key)
                return None
            case Remove(key, version):
                if not self._is_at(key, version):
                    return self._refuse()
                self._drop(key)
                return Removed()
            case Rename(key, target, version):
                if target in self.objects or not self._is_at(key, version):
                    return self._refuse()
                moved = self._drop(key)
                insort(self._keys, target)
                self._put(target, moved.body, moved.attributes)
                return Removed()
            case Copy(key, target, source, attributes):
                if target in self.objects or not self._is_at(key, source.version):
                    return self._refuse()
                insort(self._keys, target)
                return self._put(target, self.objects[key].body, attributes)
            case List(prefix, after, limit):
                return self._list(prefix, after, limit)

    def _is_at(self, key: str, version: Version) -> bool:
        found = self.objects.get(key)
        return found is not None and found.version == version

    def _refuse(self) -> Refused:
        self.refused += 1
        return Refused()

    def _drop(self, key: str) -> Object:
        del self._keys[bisect_left(self._keys, key)]
        dropped = self.objects.pop(key)
        if self.witness is not None:
            self.witness.landed(self.who, key, None)
        return dropped

    def _put(self, key: str, body: bytes, attributes: Attributes) -> Written:
        self._versions += 1
        version = hashlib.md5(body).hexdigest() if self._content_versions else str(self._versions)
        now = self.world.now + self.ahead_seconds
        stored_at = float(int(now)) if self._whole_seconds else round(now, 3)
        self.objects[key] = Object(body, Version(version), stored_at, attributes)
        if self.witness is not None:
            self.witness.landed(self.who, key, body)
        return Written(Version(version), stored_at if self._answer_stamps else None)

    def keys(self, prefix: str) -> list[str]:
        first = bisect_left(self._keys, prefix)
        last = bisect_left(self._keys, prefix + "\U0010ffff")
        return self._keys[first:last]

    def _list(self, prefix: str, after: str, limit: int) -> Page:
        keys = self.keys(prefix)
        keys = keys[bisect_right(keys, after) :] if after else keys
        chosen = keys[:limit]
        if not self.lists_in_order:
            self.world.random.shuffle(chosen)
        return Page(tuple(self._entry(key) for key in chosen), more=len(keys) > limit)

    def _entry(self, key: str) -> Entry:
        found = self.objects[key]
        return Entry(key, len(found.body), found.stored_at, found.version)


def _no_answer(request: StoreRequest, why: str) -> tuple[Unknown | None, Unavailable | None]:
    """What a client makes of silence: a write's outcome is unknown, anything else may be tried again."""
    if type(request) in _CONDITIONAL:
        return Unknown(why), None
    return None, Unavailable(f"simulated {why}: {describe(request)}")


def describe(request: StoreRequest) -> str:
    name = _NAMES[type(request)]
    if isinstance(request, List):
        return f"{name} {request.prefix} after {request.after!r}"
    if isinstance(request, Create | Replace):
        return f"{name} {request.key} {request.body[:400].decode(errors='replace').rstrip()}"
    if isinstance(request, Rename | Copy):
        return f"{name} {request.key} to {request.target}"
    return f"{name} {request.key}"
