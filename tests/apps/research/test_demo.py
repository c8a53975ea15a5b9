"""`bucketmq apps demo research` as users run it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_demo_ends_by_itself_with_every_number_checked() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bucketmq.cli", "apps", "demo", "research", "--json"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["good"], told["problems"]) == (True, [])
    assert [each["state"] for each in told["studies"]] == ["finished", "finished"]
    assert "was killed" in done.stderr
    assert told["page"].startswith("http://127.0.0.1:")
