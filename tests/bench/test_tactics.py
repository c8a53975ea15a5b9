"""The bench of the tactics against contention: its numbers depend on the seed only, and every switch is one."""

from __future__ import annotations

import msgspec
import pytest

from bench.tactics import OFF, Scene, run
from bucketmq.procedures.heads.contention import TACTICS

SCENE = Scene("3 workers, 2 shards", 3, 2, work_seconds=0.1, seconds=2.0)


def test_a_seed_gives_the_same_numbers_again() -> None:
    assert run(SCENE, TACTICS, 1) == run(SCENE, TACTICS, 1)
    assert run(SCENE, TACTICS, 1) != run(SCENE, TACTICS, 2)


def test_turns_save_refused_writes() -> None:
    blind = msgspec.structs.replace(TACTICS, shared_seconds=0.0)
    assert run(SCENE, TACTICS, 1).refused < run(SCENE, blind, 1).refused


@pytest.mark.parametrize("name", OFF)
def test_every_switch_changes_a_field(name: str) -> None:
    assert msgspec.structs.replace(TACTICS, **OFF[name]) != TACTICS
