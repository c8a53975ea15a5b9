"""Scenes with a script of their own: damaged and mended buckets, a corrected clock, newcomers beside a trim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from bucketmq.queue.settings import MAIN
from bucketmq.testing.simulation.corrected import run_corrected
from bucketmq.testing.simulation.crew import KEYS, Crew, SceneReport
from bucketmq.testing.simulation.damage import DAMAGE, run_damaged
from bucketmq.testing.simulation.newcomers import run_newcomers
from bucketmq.testing.simulation.run import quiet

Scene = Callable[[int], SceneReport]
FEW = {run_damaged: range(60), run_corrected: range(40), run_newcomers: range(40)}
MANY = {run_damaged: range(60, 2_000), run_corrected: range(40, 1_000), run_newcomers: range(40, 2_000)}

COVERED = {
    run_damaged: (*DAMAGE, "send refused", "receive refused", "acknowledged after damage", "mended", "loss recorded"),
    run_corrected: ("local", "elsewhere"),
    run_newcomers: ("segment deleted", "began with what is kept"),
}


def check(scene: Scene, seeds: range) -> None:
    covered: Counter[str] = Counter()
    for seed in seeds:
        report = scene(seed)
        assert not report.problems, f"seed {seed} ({report.scene}): {report.problems}"
        covered.update(report.covered)
    assert not [name for name in COVERED[scene] if not covered[name]]


@pytest.mark.slow
@pytest.mark.parametrize("scene", FEW)
def test_no_seed_of_a_scene_breaks_a_promise(scene: Scene) -> None:
    check(scene, FEW[scene])


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("scene", MANY)
def test_no_seed_of_many_breaks_a_promise(scene: Scene) -> None:
    check(scene, MANY[scene])


def test_a_log_that_is_trimmed_while_its_end_is_looked_for_is_not_taken_for_damaged() -> None:
    """The last segment that was listed is gone when it is read, and a later one has come."""
    assert run_newcomers(1094).problems == []


@pytest.mark.parametrize("scene", FEW)
def test_the_same_seed_of_a_scene_gives_the_same_history(scene: Callable[..., SceneReport]) -> None:
    assert scene(7, traced=True) == scene(7, traced=True)


def test_a_gap_that_opens_under_an_idle_receiver_is_passed() -> None:
    """The receiver has looked where the log ends, and only looks again minutes later: then it must list, not walk."""
    with quiet():
        crew = Crew("gap", {}, (MAIN,), lists_in_order=True, answer_stamps=True)
        knowing = crew.queue()
        crew.start_sender(["gone"], knowing)
        crew.run(5.0)
        crew.store.erase("outside", KEYS.segment(0, 0))
        crew.start_receiver(MAIN)
        crew.run(5.0)
        crew.start_sender(["behind"], knowing)

        assert crew.run(400.0, lambda: crew.got[MAIN] == {"behind"})
