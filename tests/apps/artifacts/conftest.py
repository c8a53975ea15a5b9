"""A bucket in memory with the made-up shop, and the browser of the dashboard's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from dashboard.browsing import browser, chromium
from procedures.objects.world import World

from apps.artifacts.making import Shop


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    world = World("copying")
    yield Shop(world, tmp_path)
    world.close()


@pytest.fixture(params=["copying", "cloning", "hashing", "folder"])
def shops(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """On every sort of store: with copies of its own and without, with versions that are hashes, in a folder."""
    world = World(request.param, tmp_path / "bucket")
    yield Shop(world, tmp_path / "files")
    world.close()


__all__ = ["browser", "chromium"]
