"""Thousands of histories of the production code under faults. What fails is replayed by its seed."""

from __future__ import annotations

from itertools import combinations

import pytest

from bucketmq.testing.simulation import swarm
from bucketmq.testing.simulation.faults import KINDS, NONE, only
from bucketmq.testing.simulation.plan import LONG, MORE, SHORT, Tilt
from bucketmq.testing.simulation.swarm import Totals

SEEDS = 10_000
PARTS = 10
THE_FIRST_AND_LATER = [0, *(pytest.param(part, marks=pytest.mark.long) for part in range(1, PARTS))]
"""`make test` runs the first part, `make test-long` the others, `make sim-deep` far more."""

RARE = {
    "dead name created": (
        100,
        only(["crash", "freeze", "late_landing", "skew", "slow"]),
        Tilt(long=True, more=True),
    ),
    "send unknown": (60, only(["freeze", "late_landing", "lost_request"]), LONG),
    "publish unknown": (200, only(["late_landing", "lost_reply", "lost_request"]), MORE),
}
"""What a thousand seeds may well not meet, and how many seeds, with which faults and tilt, meet it some ten times."""

SEEDS_SINGLE = 50
SEEDS_PAIR = 12
SEEDS_CALM = 150

REQUESTS_PER_MESSAGE = 60.0
"""Without faults, with a dozen messages for three to five processes that mostly poll (L6)."""

REQUESTS_PER_MESSAGE_SWARM = 120.0


def check(totals: Totals) -> None:
    assert not totals.failures, "\n".join(str(failure) for failure in totals.failures[:5])
    assert (totals.lost, totals.unexpected, totals.duplicated) == (0, 0, 0)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", THE_FIRST_AND_LATER)
def test_no_seed_of_the_swarm_breaks_a_promise(part: int) -> None:
    count = SEEDS // PARTS
    totals = swarm(range(part * count, (part + 1) * count))
    check(totals)
    assert totals.seeds == count
    missing = set(totals.missing) - RARE.keys()
    assert not missing, f"never met in {count} seeds: {missing}"
    assert totals.requests / totals.messages <= REQUESTS_PER_MESSAGE_SWARM


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("state", RARE)
def test_what_is_rare_breaks_no_promise_where_it_is_likely(state: str) -> None:
    count, faults, tilt = RARE[state]
    totals = swarm(range(500_000, 500_000 + count), faults=faults, tilt=tilt)
    check(totals)
    assert totals.covered[state], f"never met in {count} seeds"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", KINDS)
def test_each_fault_alone_and_often_breaks_nothing(kind: str) -> None:
    totals = swarm(range(100_000, 100_000 + SEEDS_SINGLE), faults=only([kind]))
    check(totals)
    assert totals.faults[kind], f"{kind} never happened"
    assert set(totals.faults) <= {kind, "crash"}, "a poisonous message may kill, nothing else comes by itself"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("pair", list(combinations(KINDS, 2)), ids="+".join)
def test_each_pair_of_faults_breaks_nothing(pair: tuple[str, str]) -> None:
    totals = swarm(range(200_000, 200_000 + SEEDS_PAIR), faults=only(pair))
    check(totals)
    for kind in pair:
        assert totals.faults[kind], f"{kind} never happened"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_without_faults_nothing_is_delivered_again_and_requests_stay_within_the_budget() -> None:
    totals = swarm(range(300_000, 300_000 + SEEDS_CALM), faults=NONE, tilt=SHORT)
    check(totals)
    assert not totals.faults
    assert totals.redeliveries == 0
    assert totals.recovered == 0
    assert totals.requests / totals.messages <= REQUESTS_PER_MESSAGE
