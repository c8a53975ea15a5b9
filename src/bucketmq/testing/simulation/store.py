"""The simulated store: a linearizable dictionary at the end of an unreliable line.

Every request has two moments, when it arrives and is done, and when the answer reaches the client; faults fall on
either side of the first. Reads are never stale: the stores this project supports are strongly consistent.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from typing import Any, Protocol

from bucketmq.bucket.port import Entry, Missing, Object, Page, Refused, Unknown, Version, Written
from bucketmq.errors import Unavailable
from bucketmq.procedures.requests import Create, Delete, Get, List, Replace, StoreRequest
from bucketmq.testing.simulation.faults import NONE, Faults
from bucketmq.testing.simulation.world import World

LATENCY_SECONDS = 0.005, 0.040
TIMEOUT_SECONDS = 0.5, 3.0
"""How long a client waits for an answer that does not come."""

LATE_SECONDS = 0.0, 20.0
SLOW_SECONDS = 1.0, 20.0
"""A request that is slow is answered in the end: clients wait longer than this."""

Deliver = Callable[[Any, BaseException | None], None]

_LANDS = frozenset({"slow", "lost_reply", "late_landing"})
_NAMES = {Get: "get", Create: "create", Replace: "replace", Delete: "delete", List: "list"}


class Witness(Protocol):
    """Told of every change the moment it lands."""

    def landed(self, who: str, key: str, body: bytes | None) -> None: ...


class SimStore:
    """Five verbs, with faults. `answer_stamps` says whether a write's answer tells the store's clock."""

    def __init__(
        self, world: World, *, lists_in_order: bool, answer_stamps: bool, content_versions: bool, whole_seconds: bool
    ) -> None:
        self.world = world
        self.faults: Faults = NONE
        self.lists_in_order = lists_in_order
        self.witness: Witness | None = None
        self.objects: dict[str, Object] = {}
        self.requests = 0
        self.refused = 0
        self.who = ""
        """Whose request is being done."""
        self.creates_in_flight = 0
        """Creates that will still land, whether or not their senders live."""
        self._answer_stamps = answer_stamps
        self._content_versions = content_versions
        self._whole_seconds = whole_seconds
        self._keys: list[str] = []
        self._versions = 0

    def submit(self, who: str, request: StoreRequest, deliver: Deliver) -> None:
        """Send a request off; `deliver` is called with the answer, or with an error, or never if the client died."""
        self.requests += 1
        world, fault = self.world, self._draw(request)
        there, back = world.between(*LATENCY_SECONDS), world.between(*LATENCY_SECONDS)
        if isinstance(request, Create) and (fault is None or fault in _LANDS):
            self.creates_in_flight += 1
        if fault is None:
            world.after(there, self._arrive, who, request, deliver, back)
            return
        world.faults[fault] += 1
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

    def _draw(self, request: StoreRequest) -> str | None:
        faults = self.faults
        if faults is NONE:
            return None
        chance = self.world.chance
        if faults.lost_request and chance() < faults.lost_request:
            return "lost_request"
        if faults.lost_reply and chance() < faults.lost_reply:
            return "lost_reply"
        if faults.late_landing and chance() < faults.late_landing and not isinstance(request, Get | List):
            return "late_landing"
        if faults.conflict_409 and chance() < faults.conflict_409 and isinstance(request, Create | Replace):
            return "conflict_409"
        if faults.error_503 and chance() < faults.error_503:
            return "error_503"
        if faults.slow and chance() < faults.slow * 0.2:
            return "slow"
        return None

    def _arrive(self, who: str, request: StoreRequest, deliver: Deliver | None, back: float) -> None:
        self.who = who
        answer = self.perform(request)
        if isinstance(request, Create):
            self.creates_in_flight -= 1
        if self.world.lines is not None:
            self.world.note(who, f"{describe(request)} -> {type(answer).__name__ if answer is not None else 'ok'}")
        if deliver is not None:
            self.world.after(back, deliver, answer, None)

    def perform(self, request: StoreRequest) -> Object | Missing | Written | Refused | Page | None:
        """Do it, now."""
        match request:
            case Get(key):
                return self.objects.get(key) or Missing()
            case Create(key, body):
                if key in self.objects:
                    self.refused += 1
                    return Refused()
                insort(self._keys, key)
                return self._put(key, body)
            case Replace(key, body, version):
                found = self.objects.get(key)
                if found is None or found.version != version:
                    self.refused += 1
                    return Refused()
                return self._put(key, body)
            case Delete(key):
                if self.objects.pop(key, None) is not None:
                    del self._keys[bisect_left(self._keys, key)]
                    if self.witness is not None:
                        self.witness.landed(self.who, key, None)
                return None
            case List(prefix, after, limit):
                return self._list(prefix, after, limit)

    def _put(self, key: str, body: bytes) -> Written:
        self._versions += 1
        version = hashlib.md5(body).hexdigest() if self._content_versions else str(self._versions)
        now = self.world.now
        stored_at = float(int(now)) if self._whole_seconds else round(now, 3)
        self.objects[key] = Object(body, Version(version), stored_at)
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
        entries = tuple(Entry(key, len(self.objects[key].body), self.objects[key].stored_at) for key in chosen)
        return Page(entries, more=len(keys) > limit)


def _no_answer(request: StoreRequest, why: str) -> tuple[Unknown | None, Unavailable | None]:
    """What a client makes of silence: a write's outcome is unknown, anything else may be tried again."""
    if isinstance(request, Create | Replace):
        return Unknown(why), None
    return None, Unavailable(f"simulated {why}: {describe(request)}")


def describe(request: StoreRequest) -> str:
    name = _NAMES[type(request)]
    if isinstance(request, List):
        return f"{name} {request.prefix} after {request.after!r}"
    if isinstance(request, Create | Replace):
        return f"{name} {request.key} {request.body[:400].decode(errors='replace').rstrip()}"
    return f"{name} {request.key}"
