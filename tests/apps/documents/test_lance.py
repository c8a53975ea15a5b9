"""A copy in Lance finds what the exact search finds, and follows the table: changed, gone, half copied, doubled."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lance")

import lance
import numpy as np

import bucketmq
from apps.documents.shelf import Shelf, sections
from apps.documents.test_search import TEXTS
from bench.documents.search import CENTRES, Fixed, made_up_rows, near
from bucketmq.apps.documents import lance_copy
from bucketmq.apps.documents.lance_copy import LanceCopy, update
from bucketmq.apps.documents.library import Library
from bucketmq.procedures.tables import files as table_files

QUERIES = ("stale leases of workers", "folder without an account", "who judges the clock", "bread")


@pytest.fixture(params=[("granite",), ("none",)], ids=["granite", "none"])
def shelf(request: pytest.FixtureRequest) -> Any:
    made = Shelf(encoders=request.param)
    made.bucket.put_many({**TEXTS, "docs/it's.md": sections("rye bread", "plum cake", "rye bread")})
    made.work()
    yield made
    made.close()


def ranked(found: Any) -> list[tuple[str, Any, Any, Any]]:
    hits = [(hit.place.id, hit.score, hit.bm25, hit.cosine) for hit in found.hits]
    return [(name, *(value and pytest.approx(value, abs=0.02) for value in scores)) for name, *scores in hits]


def agree(shelf: Shelf, copy: LanceCopy, **options: Any) -> None:
    for query in QUERIES:
        exact, found = shelf.search(query, limit=50, **options), copy.search(query, limit=50, **options)
        assert [(hit.place, hit.marks, hit.also) for hit in found.hits] == [
            (hit.place, hit.marks, hit.also) for hit in exact.hits
        ], query
        assert ranked(found) == ranked(exact), query
        assert (found.ranking, found.encoder, found.version, found.chunks) == (
            exact.ranking,
            exact.encoder,
            exact.version,
            exact.chunks,
        )


def test_a_copy_finds_what_the_exact_search_finds(shelf: Shelf, tmp_path: Path) -> None:
    done = update(shelf.bucket, str(tmp_path))
    assert (done.chunks, done.documents, done.rebuilt) == (7, 5, True)
    copy = LanceCopy(str(tmp_path))
    agree(shelf, copy)
    agree(shelf, copy, prefix="docs/it's")
    assert copy.search(" ").hits == () and copy.search("bread", prefix="docs/z").hits == ()


def test_a_copy_follows_changes_and_deletions(shelf: Shelf, tmp_path: Path) -> None:
    update(shelf.bucket, str(tmp_path))
    copy = LanceCopy(str(tmp_path))
    shelf.put(a_txt="The clock of the bread oven is late.", new_md=sections("stale bread", "a folder"))
    shelf.bucket.put("docs/it's.md", "plum cake")
    shelf.bucket.delete("docs/b.txt")
    shelf.work()
    done = update(shelf.bucket, str(tmp_path))
    assert (done.documents, done.gone, done.rebuilt) == (3, 1, False)
    agree(shelf, copy)
    assert update(shelf.bucket, str(tmp_path)).files == 0, "nothing has changed"
    for doc in shelf.texts():
        shelf.bucket.delete(doc)
    shelf.work()
    update(shelf.bucket, str(tmp_path))
    assert copy.search("bread").hits == () and copy.search("bread").chunks == 0


def test_only_files_that_changed_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "SPLIT_BYTES", 8_000)
    shelf = Shelf()
    noise = {n: " ".join(hashlib.sha512(b"%d %d" % (n, m)).hexdigest()[:60] for m in range(20)) for n in range(20)}
    shelf.bucket.put_many({f"docs/{n}.txt": f"report {n} {text}" for n, text in noise.items()})
    shelf.work()
    files = update(shelf.bucket, str(tmp_path)).files
    shelf.put(x_txt="a new report")
    assert files > 2 and update(shelf.bucket, str(tmp_path)).files <= 2
    assert LanceCopy(str(tmp_path)).search("new").hits[0].place.doc == "docs/x.txt"
    shelf.close()


def test_a_copy_that_died_half_way_or_has_rows_twice_is_what_the_table_is_afterwards(
    shelf: Shelf, tmp_path: Path
) -> None:
    update(shelf.bucket, str(tmp_path))
    before = lance.dataset(str(tmp_path)).config()[lance_copy.STATE]
    shelf.put(a_txt="stale bread", z_md="a new folder")
    update(shelf.bucket, str(tmp_path))
    dataset = lance.dataset(str(tmp_path))
    dataset.update_config({lance_copy.STATE: before})  # it died behind the rows, before it noted the files
    assert not update(shelf.bucket, str(tmp_path)).rebuilt
    agree(shelf, LanceCopy(str(tmp_path)))
    dataset = lance.dataset(str(tmp_path))
    dataset.insert(dataset.to_table(limit=2))  # as two updates at a time would
    assert update(shelf.bucket, str(tmp_path)).rebuilt
    agree(shelf, LanceCopy(str(tmp_path)))


def test_another_encoder_that_serves_is_copied_again(tmp_path: Path) -> None:
    from bucketmq.apps.documents.serving import switch

    shelf = Shelf(encoders=("none", "granite"))
    shelf.put(a_md="alpha bread", b_md="beta bread")
    bucket = shelf.bucket
    bucket.run(switch(bucket.api, "none"))
    assert update(bucket, str(tmp_path)).encoder == "none"
    assert LanceCopy(str(tmp_path)).search("bread").ranking == "bm25"
    bucket.run(switch(bucket.api, "granite"))
    done = update(bucket, str(tmp_path))
    assert (done.encoder, done.rebuilt) == ("granite", True)
    assert LanceCopy(str(tmp_path)).search("bread").ranking == "hybrid"
    shelf.close()


def test_where_there_is_nothing_to_copy_or_to_search_that_is_said(tmp_path: Path) -> None:
    with bucketmq.connect("memory://") as bucket, pytest.raises(bucketmq.NotFound, match="index documents first"):
        update(bucket, str(tmp_path))
    with pytest.raises(bucketmq.NotFound, match="there is no copy of documents in"):
        LanceCopy(str(tmp_path))


def test_with_an_index_of_vectors_and_a_small_sample_nearly_the_same_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lance_copy, "INDEXED_MIN", 500)
    monkeypatch.setattr(lance_copy, "SAMPLE", 300)
    dice = np.random.default_rng(3)
    fixed = Fixed(near(dice, CENTRES[:1]))
    with bucketmq.connect("memory://") as bucket:
        table = bucket.table("documents-granite", key="chunk", group="doc", newer_by="at")
        table.upsert(made_up_rows(dice, 2_000, 0))
        update(bucket, str(tmp_path))
        table.upsert(made_up_rows(dice, 20, 1))  # these are in no index yet
        assert not update(bucket, str(tmp_path)).rebuilt
        assert len(lance.dataset(str(tmp_path)).describe_indices()) == 2
        exact = Library(bucket.api, encoder_of=lambda *_, **__: fixed)
        copy = LanceCopy(str(tmp_path), encoder_of=lambda *_, **__: fixed)
        same = []
        for number in range(10):
            fixed.vectors = near(dice, CENTRES[number : number + 1])
            query = f"w{number} w{number * 7} w{number * 31}"
            lists = (bucket.run(exact.search(query)), copy.search(query))
            true, found = ({hit.place.id for hit in each.hits} for each in lists)
            same.append(len(true & found) / len(true))
        assert sum(same) / len(same) > 0.9
