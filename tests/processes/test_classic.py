"""The classic: 100 messages, 10 worker processes, each message settled once."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from processes.chaos import connect

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("processes")]

WORKER = """
import sys
import bucketmq

with bucketmq.connect(sys.argv[1], probe=False) as bucket:
    queue = bucket.queue("jobs")
    while batch := queue.receive(5, wait_seconds=2):
        for delivery in batch:
            delivery.ack(wait=True)
            print(delivery.body, delivery.attempt, flush=True)
"""


@pytest.mark.parametrize("shards", [1, 4])
def test_a_hundred_messages_and_ten_workers(place: str, tmp_path: Path, shards: int) -> None:
    with connect(place) as bucket:
        queue = bucket.queue("jobs", shards=shards)
        for start in range(0, 100, 10):
            queue.send_many(range(start, start + 10))
        workers = [
            subprocess.Popen([sys.executable, "-c", WORKER, place], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for _ in range(10)
        ]
        outputs = [worker.communicate(timeout=90) for worker in workers]
        assert [err.decode() for _, err in outputs] == [""] * 10
        assert [worker.returncode for worker in workers] == [0] * 10
        settled = [tuple(map(int, line.split())) for out, _ in outputs for line in out.decode().splitlines()]
        assert Counter(body for body, _ in settled) == Counter(range(100))
        assert {attempt for _, attempt in settled} == {1}
        stats = queue.stats()
        assert (stats.depth, stats.in_flight, stats.dead) == (0, 0, 0)
