"""Every example that a help text shows is run as it is printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bucketmq.cli.examples import EXAMPLES
from bucketmq.client import Bucket

from .ran import Shell, bury

ELSEWHERE = {"demo": "test_demo runs it"}

TASKS = """
import os
import bucketmq

queue = bucketmq.connect(os.environ["BUCKETMQ_URL"], probe=False).queue("jobs")

def handle(delivery):
    print(delivery.body)

@queue.handler
def decorated(delivery):
    print(delivery.body)
"""

SHOWN = [(verb, line) for verb, lines in EXAMPLES.items() if verb not in ELSEWHERE for line in lines]


@pytest.fixture
def prepared(bucket: Bucket, folder: Path) -> None:
    """What the examples take for granted: a queue with messages and dead letters, and a module with handlers."""
    (folder / "tasks.py").write_text(TASKS)
    queue = bucket.queue("jobs")
    bury(queue, "no such user", "no network")
    queue.send_many({"n": n} for n in range(20))


@pytest.mark.parametrize(("verb", "line"), SHOWN, ids=[line for _, line in SHOWN])
@pytest.mark.usefixtures("prepared")
def test_example(shell: Shell, folder: Path, verb: str, line: str) -> None:
    ran = shell(line.replace("/tmp/inbox", str(folder / "inbox")))
    assert ran.code == (124 if line.startswith("timeout ") else 0), ran
    assert "Traceback" not in ran.err
