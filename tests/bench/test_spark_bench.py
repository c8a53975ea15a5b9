"""The benchmarks of the connector run and say what they promise to say. No number is judged here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from spark.conftest import java_here, spark

from bench.results import OURS
from bench.spark.command import run

__all__ = ["java_here", "spark"]


@pytest.mark.long
@pytest.mark.timeout(400)  # a dozen queries, each of which starts Python processes
def test_reading_is_compared_on_the_same_rows_and_drawn(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Writing and the rest are the same helpers with other streams; they would double the time."""
    file, picture = tmp_path / "bench.json", tmp_path / "bench.png"
    chosen = ["--only", "read", "--only", "requests"]
    code = run(["--size", "tiny", *chosen, "--json", str(file), "--plot", str(picture)], spark)
    report = json.loads(file.read_text())
    assert code == 0, report["broken"]
    subjects = {each.get("subject", OURS) for each in report["measurements"] if each["unit"] == "rows/s"}
    assert subjects == {OURS, "Spark's JSON", "Spark's Parquet", "Python that does nothing"}
    (judged,) = [each for each in report["measurements"] if "target" in each]
    assert judged["unit"] == "×"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "requests" in capsys.readouterr().out
