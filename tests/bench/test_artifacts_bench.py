"""The bench of artifacts runs, and compares the same work."""

from __future__ import annotations

from pathlib import Path

from bench.artifacts import run


def test_it_measures_publishing_verifying_and_promoting(tmp_path: Path) -> None:
    rows = run(3, 0.01, 1, tmp_path)
    assert [row.what.partition(":")[0] for row in rows] == ["publish", "verify", "promote"]
    assert all(row.ours.cpu_seconds > 0 and row.plain.seconds > 0 for row in rows)
