"""The index agrees with its source, whatever happens to either: what users complain about elsewhere, each as a test."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest

import bucketmq
from apps.documents.shelf import Shelf, sections, texts_of
from bucketmq.apps.documents.demo.made import pdf
from bucketmq.apps.documents.serving import switch
from bucketmq.pipeline.again import Which, retell


def test_a_shorter_version_leaves_no_chunk_of_the_longer_one(shelf: Shelf) -> None:
    shelf.put(a_md=sections("one", "two", "three"))
    assert len(shelf.texts()["docs/a.md"]) == 3
    shelf.put(a_md=sections("uno"))
    (text,) = shelf.texts()["docs/a.md"]
    assert "uno" in text
    assert [hit.place.id for hit in shelf.search("uno one two three").hits] == ["docs/a.md#0"]


def test_a_version_that_cannot_be_read_leaves_the_one_before(shelf: Shelf) -> None:
    shelf.put(a_md="the old version")
    shelf.put(a_md=b"\x00\x01 no text")
    assert shelf.texts() == {"docs/a.md": ["the old version"]}
    assert "docs/a.md' cannot be indexed" in shelf.reasons()[0]
    shelf.put(a_md="the new version")
    assert shelf.texts() == {"docs/a.md": ["the new version"]}


def test_a_document_that_failed_is_told_until_a_version_comes_that_can_be_read(shelf: Shelf) -> None:
    shelf.put(b_md="another", a_pdf=b"%PDF-1.4 broken")
    (failure,) = shelf.bucket.run(shelf.library.overview()).failures
    assert failure.key == "docs/a.pdf" and "cannot be opened" in failure.reason
    assert list(shelf.texts()) == ["docs/b.md"]
    shelf.put(a_pdf=pdf(["repaired"]))
    assert shelf.texts()["docs/a.pdf"] == ["repaired"]
    assert shelf.bucket.run(shelf.library.overview()).failures == ()


def test_a_failed_document_is_indexed_when_its_letter_is_redriven(shelf: Shelf) -> None:
    shelf.put(a_pdf=b"%PDF-1.4 broken")
    shelf.bucket.put("docs/a.pdf", pdf(["repaired"]))
    shelf.bucket.queue("events").dead_letters.redrive()
    shelf.work()
    assert shelf.texts() == {"docs/a.pdf": ["repaired"]}


def test_an_older_run_that_is_late_changes_nothing(shelf: Shelf) -> None:
    shelf.put(a_md="version one", b_md="soon gone")
    rows = shelf.table.read()
    shelf.put(a_md="version two")
    shelf.bucket.delete("docs/b.md")
    shelf.work()
    for doc in ("docs/a.md", "docs/b.md"):  # what an indexer commits that slept since the first version
        late = rows.filter([each == doc for each in rows.column("doc").to_pylist()])
        assert shelf.table.replace(doc, late).stale == (doc,)
    assert shelf.texts() == {"docs/a.md": ["version two"]}


def test_documents_that_are_told_again_are_neither_doubled_nor_written(shelf: Shelf) -> None:
    shelf.put(a_md=sections("one", "two"), b_md="bee")
    before, version = shelf.texts(), shelf.table.snapshot().version
    bucket = shelf.bucket
    told = bucket.run(retell(bucket.run(bucket.api.open()), shelf.pipeline, Which(prefix="docs/")))
    assert told.told == 2
    shelf.work()
    assert shelf.texts() == before
    assert shelf.table.snapshot().version in (version, version + 1)  # an event that tells a later time moves the state
    bucket.run(retell(bucket.run(bucket.api.open()), shelf.pipeline, Which(prefix="docs/")))
    version = shelf.table.snapshot().version
    shelf.work()
    assert shelf.texts() == before
    assert shelf.table.snapshot().version == version


def test_what_is_deleted_moved_away_or_emptied_is_gone_in_one_commit(shelf: Shelf) -> None:
    shelf.put(a_md="alpha", b_md="beta", c_md="gamma", d_md="delta")
    version = shelf.table.snapshot().version
    shelf.bucket.delete("docs/a.md")
    shelf.work()
    assert shelf.table.snapshot().version == version + 1
    shelf.bucket.move("docs/b.md", "elsewhere/b.md")
    shelf.bucket.move("docs/c.md", "docs/deep/c.md")
    shelf.put(d_md="")
    assert shelf.texts() == {"docs/deep/c.md": ["gamma"]}
    assert shelf.search("alpha beta delta").hits == ()
    assert shelf.reasons() == []


def test_the_same_text_under_two_keys_is_one_hit_and_goes_with_both(shelf: Shelf) -> None:
    shelf.put(a_md="the same text", b_md="the same text", c_md="another")
    (hit,) = shelf.search("same").hits
    assert (hit.place.doc, hit.also) == ("docs/a.md", ("docs/b.md#0",))
    shelf.bucket.delete("docs/a.md")
    shelf.work()
    (hit,) = shelf.search("same").hits
    assert (hit.place.doc, hit.also) == ("docs/b.md", ())


def test_two_indexers_of_one_bucket_lose_nothing(tmp_path: Path) -> None:
    shelves = [Shelf(bucketmq.connect(str(tmp_path))) for _ in range(2)]
    shelves[0].bucket.put_many({f"docs/{n}.txt": f"document number {n}" for n in range(40)})
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda each: each.work(), shelves))
    assert texts_of(shelves[0].table) == {f"docs/{n}.txt": [f"document number {n}"] for n in range(40)}
    for each in shelves:
        each.close()


def test_other_tools_read_chunks_vectors_and_evidence(tmp_path: Path) -> None:
    shelf = Shelf(bucketmq.connect(str(tmp_path)), encoders=("granite",))
    shelf.put(a_md="Acme Corp acquired Widget Labs.")
    head = json.loads((tmp_path / "tables/documents-granite/head.json").read_text())
    files = [str(tmp_path / "tables/documents-granite" / shard["file"]) for shard in head["shards"]]
    query = "select doc, octet_length(vector), unnest(relations).relation from read_parquet(?)"
    assert duckdb.execute(query, [files]).fetchall() == [("docs/a.md", 384, "acquired")]
    shelf.close()


def test_a_document_costs_so_many_requests(shelf: Shelf) -> None:
    """Beside what any watcher costs: its content, and a commit of one shard. Searching: the register, and the head."""
    bare = Shelf()
    bare.bucket.watchers.by_name.clear()
    bare.bucket.watch('key LIKE "docs/%"', name="bare", start="beginning")(lambda change: None)
    spent = []
    for each in (shelf, bare):
        each.put(a_md="warm", b_md="up")
        before = each.bucket.requests
        each.put(c_md=sections("one", "two", "three"))
        spent.append(each.bucket.requests - before)
    own, others = spent
    assert (own.create - others.create, own.replace - others.replace) == (1, 1)
    assert own.get - others.get <= 5
    assert (own.list, own.look, own.delete) == (others.list, others.look, others.delete)
    bare.close()
    bucket = shelf.bucket
    for gets in (5, 2):  # without the register the heads of all three tables are looked at
        shelf.search("one")
        before = bucket.requests
        shelf.search("two")
        spent_searching = bucket.requests - before
        assert (spent_searching.get, spent_searching.list, spent_searching.look) == (gets, 0, 0)
        bucket.run(switch(bucket.api, "none"))


def test_another_encoder_is_built_beside_and_switched(shelf: Shelf) -> None:
    shelf.put(a_md="alpha text", b_md="beta text")
    bucket = shelf.bucket
    with pytest.raises(bucketmq.NotFound, match="no table of the encoder 'minilm'"):
        bucket.run(switch(bucket.api, "minilm"))
    bucket.table("documents-minilm", key="chunk", group="doc", newer_by="at").replace(
        "docs/a.md", shelf.table.read(groups=["docs/a.md"])
    )
    with pytest.raises(bucketmq.Invalid, match=r"1 documents are not in the table of 'minilm' yet, 'docs/b.md'"):
        bucket.run(switch(bucket.api, "minilm"))
    assert shelf.search("alpha").encoder == "none"  # nobody has switched: a table that is being built does not serve
    done = bucket.run(switch(bucket.api, "minilm", force=True))
    assert (done.before, done.documents) == ("none", 1)
    found = shelf.search("beta alpha")
    assert (found.encoder, [hit.place.doc for hit in found.hits]) == ("minilm", ["docs/a.md"])


def test_one_pipeline_fills_the_tables_of_two_encoders() -> None:
    shelf = Shelf(encoders=("none", "granite"))
    shelf.put(a_md="alpha text")
    assert texts_of(shelf.table) == texts_of(shelf.bucket.table("documents-granite")) == {"docs/a.md": ["alpha text"]}
    shelf.bucket.delete("docs/a.md")
    shelf.work()
    assert texts_of(shelf.table) == texts_of(shelf.bucket.table("documents-granite")) == {}
    shelf.close()
