"""The benches of documents run, small, and say what they measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("bm25s")
pytest.importorskip("Stemmer")

from bench.documents import quality
from bench.documents.command import run


@pytest.mark.long
def test_a_small_run_measures_searching_and_indexing(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    assert run(["--size", "tiny", "--json", str(report)]) == 0
    found = {each["what"] for each in json.loads(report.read_text())["measurements"]}
    assert {"warm hybrid query", "ranking alone", "vectors, share of the time", "PDF"} <= found


def test_the_quality_of_lists_is_that_of_the_textbook() -> None:
    queries = [quality.Query("q", "", ("a", "b")), quality.Query("r", "", ("c",))]
    perfect = quality.quality({"q": ["b", "a", "c"], "r": ["c"]}, queries)
    assert (perfect.ndcg, perfect.recall) == (1.0, 1.0)
    third = quality.quality({"q": ["x", "y", "a"], "r": []}, queries)
    assert (third.ndcg, third.recall) == (pytest.approx(0.5 / (1 + 0.63093) / 2, abs=1e-4), 0.25)


def test_a_collection_is_searched_as_the_application_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = {"a": "Leases are judged by the clock of the bucket.", "b": "A folder needs no account.", "c": "Rye bread."}
    corpus, queries = tmp_path / "corpus.jsonl", tmp_path / "queries.jsonl"
    corpus.write_text("\n".join(json.dumps({"id": id, "text": text}) for id, text in texts.items()))
    queries.write_text(json.dumps({"id": "1", "text": "whose clock judges a lease", "relevant": ["a"]}))
    assert quality.main([str(corpus), str(queries), "--encoder", "none", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"bm25": {"ndcg": 1.0, "recall": 1.0}}
