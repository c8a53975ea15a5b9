"""Each test that asks for `world` runs on the blocking and on the asyncio facade."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from procedures.world import World


@pytest.fixture(params=["blocking", "asyncio"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made = World(request.param)
    yield made
    made.close()


@pytest.fixture
def blocking() -> Iterator[World]:
    """For tests about something else than a facade, or about the blocking one only."""
    made = World()
    yield made
    made.close()


@pytest.fixture
def bucket(world: World) -> Any:
    return world.connect()


@pytest.fixture
def queue(bucket: Any) -> Any:
    return bucket.queue("jobs")
