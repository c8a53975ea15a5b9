"""The demo of logs, and the script that measures quality."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.logs.quality import grouping, grouping_accuracy, grouping_in_parts, sessions


@pytest.mark.long
@pytest.mark.timeout(200)
def test_the_demo_tells_one_incident_once_and_resolves_it(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "bucketmq.cli", "apps", "demo", "logs", "--json"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    told = json.loads(ran.stdout)
    assert told["good"] is True and told["secret_seen"] is False
    assert (told["triggered"], told["incidents"], told["resolved"]) == (1, 1, 1)
    assert not list(tmp_path.glob("bucketmq-logs-*"))


def test_grouping_accuracy_counts_lines_of_groups_that_are_exactly_right() -> None:
    assert grouping_accuracy([1, 1, 2, 3], ["a", "a", "b", "b"]) == 0.5
    assert grouping_accuracy("xxy", "aab") == 1.0


def test_the_script_reads_samples_and_sessions(tmp_path: Path) -> None:
    (tmp_path / "loghub").mkdir()
    rows = "Content,EventId\n" + "".join(f"took {n} ms,E1\nwent to {n},E2\n" for n in range(5))
    (tmp_path / "loghub" / "Acme_2k.log_structured.csv.gz").write_bytes(gzip.compress(rows.encode()))
    assert grouping(tmp_path) == grouping_in_parts(tmp_path, 3) == {"Acme": 1.0}
    for name, lines in (("normal", "1 2 3\n" * 40), ("abnormal", "1 9\n" * 10)):
        (tmp_path / f"hdfs-sessions-{name}.txt.gz").write_bytes(gzip.compress(lines.encode()))
    assert sessions(tmp_path)["F1"] == 1.0
