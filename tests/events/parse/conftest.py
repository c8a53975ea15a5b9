"""Payload files as their senders write them, and Hypothesis without a stopwatch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How fast an example runs on a busy machine says nothing about the code.
settings.register_profile("bucketmq", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("bucketmq")

FIXTURES = Path(__file__).parent.parent / "fixtures"


@pytest.fixture
def payload() -> Callable[[str], bytes]:
    """The bytes of `fixtures/<name>.json`."""
    return lambda name: (FIXTURES / f"{name}.json").read_bytes()
