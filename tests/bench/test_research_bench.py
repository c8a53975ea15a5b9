"""The benchmark of research runs and says what it promises to say. No number is judged here."""

from __future__ import annotations

import json
from pathlib import Path

from bench.research.command import run


def test_a_study_is_measured_beside_a_bare_pool(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    code = run(["--size", "tiny", "--json", str(file)])
    report = json.loads(file.read_text())
    assert code == 0, report["broken"]
    assert [(each["unit"], each.get("subject", "bucketmq")) for each in report["measurements"]] == [
        ("s", "bucketmq"),
        ("ms", "bucketmq"),
        ("requests", "bucketmq"),
        ("s", "bare"),
    ]
    assert report["measurements"][0]["ratio"] > 0
