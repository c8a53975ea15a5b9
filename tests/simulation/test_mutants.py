"""Planted bugs: the simulator must see every one of them. A miss means that it is blind to something that matters."""

from __future__ import annotations

import pytest

from bucketmq.testing.simulation.hunting import Mutant, hunt
from bucketmq.testing.simulation.mutants import MUTANTS

SEEDS_MAX = 150


def test_there_are_enough_planted_bugs() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 32


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_a_planted_bug_is_seen(mutant: Mutant) -> None:
    found = hunt(mutant, SEEDS_MAX)

    assert found.seed is not None, f"{mutant.name}: not seen in {SEEDS_MAX} seeds"
