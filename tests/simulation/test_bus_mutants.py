"""Planted bugs of the event bus: its simulator must see every one of them."""

from __future__ import annotations

import pytest

from bucketmq.testing.simulation.bus.mutants import MUTANTS, SEEDS_MAX
from bucketmq.testing.simulation.hunting import Mutant, hunt


def test_there_are_enough_planted_bugs_of_the_event_bus() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 14


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_a_planted_bug_of_the_event_bus_is_seen(mutant: Mutant) -> None:
    found = hunt(mutant, SEEDS_MAX)

    assert found.seed is not None, f"{mutant.name}: not seen in {SEEDS_MAX} seeds"
    assert not found.problem.startswith("the run broke"), found.problem
