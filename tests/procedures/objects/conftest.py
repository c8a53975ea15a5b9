"""Each test that asks for `world` runs on every sort of store; `memory` is for those about something else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from procedures.objects.world import STORES, World


@pytest.fixture(params=STORES)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = World(request.param, tmp_path / "bucket")
    yield made
    made.close()


@pytest.fixture
def memory() -> Iterator[World]:
    """For tests about something else than a store."""
    made = World("copying")
    yield made
    made.close()


@pytest.fixture
def bucket(memory: World) -> Any:
    return memory.connect()
