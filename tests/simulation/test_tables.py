"""The simulator of tables: histories under faults, and the planted bugs that it must see."""

from __future__ import annotations

import pytest

from bucketmq.testing.simulation.faults import KINDS, only
from bucketmq.testing.simulation.hunting import Mutant, hunt
from bucketmq.testing.simulation.tables import run_seed, swarm
from bucketmq.testing.simulation.tables.mutants import MUTANTS, SEEDS_MAX

SEEDS = 100
SEEDS_SINGLE = 10


def test_the_same_seed_gives_the_same_history_of_a_table() -> None:
    first, second = run_seed(3, traced=True), run_seed(3, traced=True)
    assert first.trace
    assert first == second


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_seed_of_tables_breaks_a_promise() -> None:
    totals = swarm(range(SEEDS))
    assert not totals.failures, "\n".join(str(failure) for failure in totals.failures[:5])
    assert totals.seeds == SEEDS
    assert not totals.missing, f"never met in {SEEDS} seeds: {totals.missing}"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", KINDS)
def test_each_fault_alone_breaks_no_table(kind: str) -> None:
    totals = swarm(range(100_000, 100_000 + SEEDS_SINGLE), faults=only([kind]))
    assert not totals.failures, "\n".join(str(failure) for failure in totals.failures[:5])
    assert set(totals.faults) == {kind}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_a_planted_bug_of_tables_is_seen(mutant: Mutant) -> None:
    found = hunt(mutant, SEEDS_MAX)
    assert found.seed is not None, f"{mutant.name}: not seen in {SEEDS_MAX} seeds"
