"""Tests of one group run in one process: what shares a JVM, a server or the processor's time relies on it."""

from __future__ import annotations

import pytest


@pytest.mark.xdist_group("groups")
def test_groups_are_honoured(request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("loadgroup", default=False):
        pytest.skip("without --dist loadgroup there are no groups")
    assert request.node.nodeid.endswith("@groups"), "the installed pytest and pytest-xdist do not fit: groups are lost"
