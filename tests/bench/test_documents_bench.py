"""The benches of documents run, small, and say what they measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("bm25s")
pytest.importorskip("Stemmer")

from bench.documents.command import run

pytestmark = pytest.mark.long


def test_a_small_run_measures_searching_and_indexing(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    assert run(["--size", "tiny", "--json", str(report)]) == 0
    found = {each["what"] for each in json.loads(report.read_text())["measurements"]}
    assert {"warm hybrid query", "ranking alone", "vectors, share of the time", "PDF"} <= found
