"""The verbs of documents, and the application as `bucketmq apps` sees it."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.ran import Cli

from apps.documents.shelf import Shelf
from bucketmq.client import Bucket


@pytest.fixture
def indexed(bucket: Bucket) -> Shelf:
    shelf = Shelf(bucket)
    shelf.put(
        handbook_md="# Leases\n\nAda Example leads Acme Corp. A lease is exclusive and timed.",
        other_md="Acme Corp acquired Widget Labs.",
        broken_pdf=b"%PDF-1.4",
    )
    return shelf


def test_where_nothing_was_indexed_yet_status_says_what_makes_it(cli: Cli) -> None:
    status = cli("documents", "status")
    assert (status.code, status.out) == (
        0,
        "0 documents, 0 chunks, and no table of them; bucketmq apps run documents makes it\n",
    )


@pytest.mark.usefixtures("indexed")
def test_search_why_graph_ask_and_status_answer_in_words_and_in_json(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    ran = cli("documents", "search", "exclusive lease")
    assert ran.code == 0 and "docs/handbook.md#0  (Leases)" in ran.out and "by words alone" in ran.err
    assert cli("documents", "search", "exclusive lease", "--json").row["place"]["id"] == "docs/handbook.md#0"
    why = cli("documents", "why", "docs/handbook.md#0", "--query", "lease")
    assert "rank 1" in why.out and "speaks of Acme Corp" in why.out
    assert cli("documents", "graph", "acme", "--json").row["node"]["name"] == "Acme Corp"
    assert "acquired" in cli("documents", "graph", "Acme Corp").out
    asked = cli("documents", "ask", "who leads Acme Corp?", "--json").row
    assert asked["answer"] is None and "no key" in asked["refused"] and asked["passages"]
    status = cli("documents", "status")
    assert "2 documents, 2 chunks, served by none" in status.out and "not indexed: docs/broken.pdf" in status.out


@pytest.mark.usefixtures("indexed")
def test_what_is_not_there_is_said_and_has_its_exit_code(cli: Cli) -> None:
    assert cli("documents", "search", "zebra").code == 3
    assert "no chunk" in cli("documents", "why", "docs/handbook.md#9").err
    assert "no chunk speaks of" in cli("documents", "graph", "Zebra").err
    assert "not an encoder" in cli("documents", "switch", "huge").err
    assert cli("documents", "switch", "none", "--json").row == {"encoder": "none", "before": "none", "documents": 2}


@pytest.mark.usefixtures("indexed")
def test_a_copy_in_lance_is_made_and_searched(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("lance")
    assert "made: 2 documents came or changed, 0 went; 2 chunks of none" in cli("documents", "lance", tmp_path).out
    assert cli("documents", "lance", tmp_path, "--json").row["rebuilt"] is False
    ran = cli("documents", "search", "exclusive lease", "--lance", tmp_path)
    assert ran.code == 0 and "docs/handbook.md#0  (Leases)" in ran.out and "by words alone" in ran.err
    assert "there is no copy" in cli("documents", "search", "lease", "--lance", tmp_path / "none").err


def test_text_of_documents_cannot_command_a_terminal(cli: Cli, bucket: Bucket) -> None:
    Shelf(bucket).put(evil_md="lease \x1b[2J \u202e hidden")
    out = cli("documents", "search", "lease").out
    assert "\x1b" not in out and "\u202e" not in out


def test_the_application_is_listed_with_its_parts(cli: Cli) -> None:
    (row,) = [each for each in cli("apps", "ls", "--json").rows if each["name"] == "documents"]
    assert row["parts"] == ["page", "documents-index", "spark"] and row["problem"] is None
    shown = cli("apps", "show", "documents", "--json").row
    assert [each["name"] for each in shown["pipelines"]] == ["documents-index"]
    assert shown["pipelines"][0]["stages"] == ["text", "chunks", "terms", "evidence", "vectors"]
