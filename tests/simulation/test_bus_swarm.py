"""Thousands of histories of the event bus under faults. What fails is replayed by its seed."""

from __future__ import annotations

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
    assert not totals.missing, f"never met in {len(seeds)} seeds: {totals.missing}"


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
