"""Search is exact: its scores are those of BM25 and of the cosine, whatever files the table is cut into."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import bucketmq
from apps.documents.shelf import Shelf, sections
from bucketmq.apps.documents.answers import Answer, Quote, Said, answer, fault_of
from bucketmq.apps.documents.library import Library
from bucketmq.apps.documents.search import K1, B
from bucketmq.apps.documents.terms import asked_for, spans_of, terms_of
from bucketmq.procedures.tables import files as table_files

TEXTS = {
    "docs/a.txt": "Leases are judged by the clock of the bucket, so clocks of workers need not agree.",
    "docs/b.txt": "A dead letter keeps its history. Dead letters are redriven by hand.",
    "docs/c.txt": "The bucket is a folder, and a folder needs no account.",
    "docs/d.txt": "Workers extend leases while they work; a stale lease settles nothing.",
}


class Letters:
    """An encoder of the tests: how often each letter is there."""

    def encode(self, texts: Sequence[str]) -> Any:
        counts = np.array([[text.lower().count(chr(97 + n)) + 0.1 for n in range(26)] for text in texts], np.float32)
        return counts / np.linalg.norm(counts, axis=1, keepdims=True)


def test_scores_are_those_of_bm25() -> None:
    bm25s = pytest.importorskip("bm25s")
    shelf = Shelf()
    shelf.bucket.put_many(TEXTS)
    shelf.work()
    retriever = bm25s.BM25(k1=K1, b=B)
    retriever.index([terms_of(text) for text in TEXTS.values()], show_progress=False)
    for query in ("stale leases of workers", "folder", "dead letters history"):
        expected = dict(zip(TEXTS, retriever.get_scores(asked_for(query)), strict=True))
        found = {hit.place.doc: hit.bm25 for hit in shelf.search(query).hits}
        assert found == {doc: pytest.approx(score, abs=1e-3) for doc, score in expected.items() if score > 0}
    shelf.close()


def test_how_a_table_is_cut_into_files_changes_no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for size in (table_files.SPLIT_BYTES, 8_000):
        monkeypatch.setattr(table_files, "SPLIT_BYTES", size)
        shelf = Shelf(encoders=("granite",))
        shelf.bucket.put_many(TEXTS)
        shelf.work()
        found.append([shelf.search("stale leases")])
        assert (len(shelf.table.snapshot().files) > 1) == (size == 8_000)
        hits = [(hit.place.doc, hit.bm25, hit.cosine) for hit in found[-1][0].hits]
        found[-1] = sorted((doc, round(bm25, 3), round(cosine, 3)) for doc, bm25, cosine in hits)
        shelf.close()
    assert found[0] == found[1]


def test_equal_scores_have_the_order_of_their_names_whatever_was_indexed_first() -> None:
    texts = {f"docs/{n:02}.txt": f"report x{n}y" for n in range(50)}
    for order in (list(texts), list(texts)[::-1]):
        shelf = Shelf()
        for key in order[::25]:
            shelf.bucket.put_many({each: texts[each] for each in order[order.index(key) :][:25]})
            shelf.work()
        assert [hit.place.doc for hit in shelf.search("report", limit=3).hits] == sorted(texts)[:3]
        shelf.close()


def test_many_copies_of_a_text_leave_room_for_others(shelf: Shelf) -> None:
    shelf.bucket.put_many({f"docs/copy-{n:03}.txt": "alpha beta" for n in range(200)})
    shelf.bucket.put_many({f"docs/other-{n}.txt": f"alpha gamma delta epsilon x{n}y" for n in range(3)})
    shelf.work()
    found = shelf.search("alpha", limit=5).hits
    assert [hit.place.doc for hit in found] == ["docs/copy-000.txt", *(f"docs/other-{n}.txt" for n in range(3))]
    assert len(found[0].also) == 199


def test_meaning_finds_what_words_do_not() -> None:
    shelf = Shelf(encoders=("granite",))
    shelf.bucket.put_many({**TEXTS, "docs/e.txt": "Our physician treats infants and toddlers."})
    shelf.work()
    found = shelf.search("a doctor for small children")
    assert (found.ranking, found.hits[0].place.doc) == ("hybrid", "docs/e.txt")
    shelf.close()


def test_without_the_encoders_package_words_alone_are_searched() -> None:
    shelf = Shelf(encoders=("granite",))
    shelf.bucket.put_many(TEXTS)
    shelf.work()

    def missing(name: str, *, threads: int) -> Any:
        raise bucketmq.Unsupported("not installed")

    library = Library(shelf.bucket.api, encoder_of=missing)
    found = shelf.bucket.run(library.search("stale leases"))
    assert (found.ranking, found.hits[0].place.doc, found.hits[0].cosine) == ("bm25", "docs/d.txt", None)
    assert [hit.place.doc for hit in found.hits] == ["docs/d.txt", "docs/a.txt"]
    shelf.close()


def test_a_refresh_reads_only_the_files_that_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "SPLIT_BYTES", 16_000)
    shelf = Shelf()
    noise = {n: " ".join(hashlib.sha512(b"%d %d" % (n, m)).hexdigest()[:60] for m in range(20)) for n in range(40)}
    shelf.bucket.put_many({f"docs/{n}.txt": f"number {n} {text}" for n, text in noise.items()})
    shelf.work()
    files = len(shelf.table.snapshot().files)
    assert files > 3
    shelf.search("number")
    shelf.put(x_txt="a new one")
    before = shelf.bucket.requests
    assert shelf.search("new").hits[0].place.doc == "docs/x.txt"
    assert (shelf.bucket.requests - before).get <= 4 + 2  # the register, three heads, and what the commit made
    assert shelf.search("number", limit=100).chunks == 41
    shelf.close()


def test_a_table_that_was_dropped_and_made_anew_is_read_anew(shelf: Shelf) -> None:
    shelf.put(a_md="alpha", b_md="beta")
    assert shelf.search("alpha").hits
    shelf.table.drop()
    assert shelf.search("alpha").hits == ()
    shelf.put(c_md="gamma")
    assert [hit.place.doc for hit in shelf.search("gamma alpha").hits] == ["docs/c.md"]


def test_an_empty_bucket_and_an_empty_query_find_nothing(shelf: Shelf) -> None:
    assert shelf.search("anything").hits == ()
    shelf.put(a_md="text")
    assert shelf.search("  ").hits == () and shelf.search("absent").hits == ()
    assert shelf.search("text", prefix="docs/z").hits == ()


def test_marks_stand_on_the_words_that_were_asked_for(shelf: Shelf) -> None:
    shelf.put(a_md="The 🙂 workers extended their leases. Working is fun.")
    (hit,) = shelf.search("how does a worker extend a lease").hits
    assert [hit.place.text[start:stop] for start, stop in hit.marks] == ["workers", "extended", "leases"]


def test_terms_are_stems_and_pairs_where_there_are_no_spaces() -> None:
    assert terms_of("Running RUNS, the naïve café's v2.1") == ["run", "run", "the", "naïve", "café", "s", "v2", "1"]
    assert terms_of("全文検索") == ["全文", "文検", "検索"]
    assert terms_of("שלום עולם") == ["שלום", "עולם"]
    assert list(spans_of("x" * 100)) == []


def test_why_tells_the_place_and_the_neighbours(shelf: Shelf) -> None:
    shelf.put(a_md=sections("Acme Corp opens", "Widget Labs closes", "the end"))
    why = shelf.bucket.run(shelf.library.why("docs/a.md#1", query="widget labs"))
    assert (why.before, why.after, why.rank) == ("docs/a.md#0", "docs/a.md#2", 1)
    assert "Widget Labs" in [each.name for each in why.entities]
    with pytest.raises(bucketmq.NotFound, match="its document has 3"):
        shelf.bucket.run(shelf.library.why("docs/a.md#7"))
    with pytest.raises(bucketmq.Invalid, match="not the name of a chunk"):
        shelf.bucket.run(shelf.library.why("docs/a.md"))


class Model:
    """Says what it is told to say."""

    def __init__(self, said: Said) -> None:
        self.said = said
        self.asked = ""

    def ask_text(self, instructions: str, content: Any, *, schema: Any = None) -> str:
        import msgspec

        self.asked = content
        return msgspec.json.encode(self.said).decode()


QUOTED = Quote("docs/b.txt#0", "Dead letters are\nredriven by hand.")


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        (Said("By hand.", (QUOTED,)), ""),
        (Said("By hand.", (Quote("docs/b.txt#0", "Dead letters are redriven by magic."),)), "is not in docs/b.txt#0"),
        (Said("By hand.", (QUOTED, Quote("docs/z.txt#0", "Dead letters are redriven"))), "which it was not shown"),
        (Said("By hand.", (Quote("docs/b.txt#0", "a"),)), "is not in docs/b.txt#0"),
        (Said("By hand."), "quotes nothing"),
        (Said(""), "do not answer"),
    ],
)
def test_an_answer_stands_only_on_quotes_that_are_there(said: Said, refused: str) -> None:
    shelf = Shelf()
    shelf.bucket.put_many(TEXTS)
    shelf.work()
    found = shelf.search("how are dead letters redriven")
    model = Model(said)
    answered: Answer = answer(found, model)
    assert "docs/b.txt#0" in model.asked
    assert (answered.answer is None) == bool(refused)
    assert refused in answered.refused
    assert refused in fault_of(said, found.hits)
    assert answer(found, None).passages == found.hits  # without a key
    shelf.close()
