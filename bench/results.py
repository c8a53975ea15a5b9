"""What a run found, as values: measurements with their target, and the report that holds them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import msgspec

from bench.machine import Machine, load_now

OURS = "bucketmq"
PEER = "single-json"
"""One state object, read, changed and replaced with a condition: the public pattern."""
PEER_REMEMBERS = "single-json, remembering"
"""The same, but what was written last is not read again: better than what is published."""
BARE = "bare"
"""The part that nobody can do without, done alone: the listing without a comparison, the request without a queue. A
ratio to it is below one, and says how much of the speed that is possible is left."""

EARLIER = "version 1"
"""What an earlier version of ours did for the same thing."""

PEERS = frozenset({PEER, PEER_REMEMBERS, BARE, EARLIER})
MORE_IS_BETTER = frozenset({"messages/s", "events/s", "keys/s", "pages/CPU s", "share"})


class Target(msgspec.Struct, frozen=True):
    """What the project aims at. Exactly one of the two is set."""

    at_least: float | None = None
    at_most: float | None = None

    def reached(self, value: float) -> bool:
        if self.at_least is not None:
            return value >= self.at_least
        assert self.at_most is not None
        return value <= self.at_most


class Measurement(msgspec.Struct, frozen=True, omit_defaults=True):
    """One number, the median of `runs`."""

    scenario: str
    what: str
    value: float
    unit: str
    subject: str = OURS
    store: str = ""
    depth: int | None = None
    runs: tuple[float, ...] = ()
    target: Target | None = None
    reached: bool | None = None
    ratio: float | None = None
    """This over the peer's number for the same thing in the same run; times faster, or times less."""
    load: float | None = None
    """The machine's load average when it was measured."""
    note: str = ""
    details: dict[str, Any] = {}


class Report(msgspec.Struct, frozen=True):
    """Everything one run found."""

    machine: Machine
    sizes: str
    started_at: str
    seconds: float
    measurements: list[Measurement]
    broken: dict[str, str]
    """Scenarios that could not be run, and why."""


def measured(
    scenario: str,
    what: str,
    runs: Sequence[float],
    unit: str,
    *,
    subject: str = OURS,
    store: str = "",
    depth: int | None = None,
    target: Target | None = None,
    note: str = "",
    details: dict[str, Any] | None = None,
) -> Measurement:
    """A measurement from one or several runs of the same thing."""
    value = statistics.median(runs)
    return Measurement(
        scenario=scenario,
        what=what,
        value=value,
        unit=unit,
        subject=subject,
        store=store,
        depth=depth,
        runs=tuple(runs),
        target=target,
        reached=target.reached(value) if target is not None else None,
        load=load_now(),
        note=note,
        details=details or {},
    )


def with_ratios(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Our measurements with how many times they are better than the peer's at the same place: the published one, the
    bare thing, or an earlier version of ours."""
    peers = {_place(each): each.value for each in measurements if each.subject in (PEER, BARE, EARLIER)}
    found = []
    for each in measurements:
        peer = peers.get(_place(each))
        if each.subject == OURS and peer and each.value:
            ratio = each.value / peer if each.unit in MORE_IS_BETTER else peer / each.value
            found.append(msgspec.structs.replace(each, ratio=ratio))
        else:
            found.append(each)
    return found


def _place(each: Measurement) -> tuple[object, ...]:
    return each.scenario, each.what, each.store, each.depth, each.unit
