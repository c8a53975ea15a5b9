"""The demo, from beginning to end, as a newcomer runs it."""

from __future__ import annotations

import pytest
from cli.ran import Cli

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def test_the_demo_shows_a_search_a_change_and_a_deletion(cli: Cli) -> None:
    ran = cli("apps", "demo", "documents", "--encoder", "none", "--json")
    steps = {each["step"]: each["good"] for each in ran.row["steps"]}
    assert ran.row["page"].startswith("http://127.0.0.1:")
    meaning = {step for step in steps if step.startswith("“")}  # without vectors, words alone are too little for some
    assert len(meaning) == 4
    assert {step: good for step, good in steps.items() if step not in meaning} == dict.fromkeys(
        set(steps) - meaning, True
    )
