"""Thousands of histories of the event bus under faults. What fails is replayed by its seed."""

from __future__ import annotations

import msgspec
import pytest

from bucketmq.testing.simulation.bus import swarm
from bucketmq.testing.simulation.bus.plan import FINE, WEATHERS, Tilt, just
from bucketmq.testing.simulation.bus.swarm import Totals
from bucketmq.testing.simulation.faults import KINDS, NONE, only

A_FEW_AND_ALL = [
    range(400),
    *(pytest.param(range(n, n + 1_250), marks=pytest.mark.long) for n in range(0, 5_000, 1_250)),
]
"""`make test` runs a few seeds that meet everything, `make test-long` all of these, `make sim-deep` far more."""

HANDS = Tilt(weather=FINE, moderation=False, documents=True, temp="", together=8)
RARE = {
    "delete recovered from a note": (
        60,
        msgspec.structs.replace(HANDS, faults=only(["crash"]), victims="writer", verbs=("delete", "put")),
    ),
    "move together contended": (
        250,
        msgspec.structs.replace(HANDS, faults=only(["slow"]), verbs=("move", "put")),
    ),
    "per-event ack": (
        60,
        Tilt(faults=NONE, weather=just(["answer_partial"]), moderation=True, documents=True, batch=4),
    ),
}
"""What a few seeds may well not meet, and how many seeds of which kind meet it some ten times."""

SEEDS_SINGLE = 20
SEEDS_CALM = 100

REQUESTS_PER_EVENT = 60.0
"""Without faults, with some twenty events for half a dozen processes that mostly poll."""


def check(totals: Totals) -> None:
    assert not totals.failures, "\n".join(str(failure) for failure in totals.failures[:5])


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seeds", A_FEW_AND_ALL, ids=str)
def test_no_seed_of_the_event_bus_breaks_a_promise(seeds: range) -> None:
    totals = swarm(seeds)
    check(totals)
    assert totals.seeds == len(seeds)
    missing = set(totals.missing) - RARE.keys()
    assert not missing, f"never met in {len(seeds)} seeds: {missing}"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("state", RARE)
def test_what_is_rare_breaks_no_promise_where_it_is_likely(state: str) -> None:
    count, tilt = RARE[state]
    totals = swarm(range(500_000, 500_000 + count), tilt=tilt)
    check(totals)
    assert totals.covered[state], f"never met in {count} seeds"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", KINDS)
def test_each_fault_of_the_store_or_a_process_alone_breaks_nothing(kind: str) -> None:
    totals = swarm(range(100_000, 100_000 + SEEDS_SINGLE), tilt=Tilt(faults=only([kind]), weather=FINE))
    check(totals)
    assert totals.faults[kind], f"{kind} never happened"
    assert {name for name, count in totals.faults.items() if count} == {kind}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", WEATHERS)
def test_each_trouble_with_notifications_endpoints_and_handlers_alone_breaks_nothing(kind: str) -> None:
    tilt = Tilt(faults=NONE, weather=just([kind]), notifies=True, moderation=True, documents=True)
    totals = swarm(range(200_000, 200_000 + SEEDS_SINGLE), tilt=tilt)
    check(totals)
    assert totals.faults[kind], f"{kind} never happened"
    assert {name for name, count in totals.faults.items() if count} == {kind}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_without_faults_no_event_arrives_twice_and_requests_stay_within_the_budget() -> None:
    totals = swarm(range(300_000, 300_000 + SEEDS_CALM), tilt=Tilt(faults=NONE, weather=FINE, temp=""))
    check(totals)
    assert not any(totals.faults.values())
    assert totals.arrivals > SEEDS_CALM
    assert totals.repeated == 0
    assert totals.requests / totals.events <= REQUESTS_PER_EVENT
