"""The same comes of the same documents with Spark and without it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from spark.conftest import Inbox, inbox, java_here, spark  # noqa: F401

from apps.documents.shelf import Shelf, sections
from bucketmq.apps.documents.demo.made import docx, pdf
from bucketmq.apps.documents.pipeline import index
from bucketmq.spark import start

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.long, pytest.mark.timeout(300)]

FIRST = {
    "docs/a.md": sections("Acme Corp acquired Widget Labs", "Ada Example leads Acme Corp"),
    "docs/b.txt": "soon deleted",
    "docs/c.docx": docx("Minutes", [("Budget", "Widget Labs supplies seals.")]),
    "docs/d.pdf": pdf(["Page one", "Page two"]),
    "docs/bad.pdf": b"%PDF-1.4 broken",
}


def run(inbox: Inbox) -> None:  # noqa: F811
    checkpoint = str(inbox.folder / "checkpoint")
    start(index(encoders=("granite",)), inbox.url, inbox.spark, checkpoint=checkpoint, once=True).awaitTermination()


def test_with_and_without_spark_the_same_is_indexed(inbox: Inbox, tmp_path: Path) -> None:  # noqa: F811
    other = Inbox(tmp_path / "other")
    shelf = Shelf(other.bucket, encoders=("granite",))
    found = []
    for each, work in ((inbox, lambda: run(inbox)), (other, shelf.work)):
        each.bucket.put_many(FIRST)
        work()
        each.bucket.put("docs/a.md", "shorter, of Acme Corp")
        each.bucket.delete("docs/b.txt")
        each.bucket.move("docs/d.pdf", "elsewhere/d.pdf")
        work()
        rows = each.bucket.table("documents-granite").read().sort_by([("doc", "ascending"), ("chunk", "ascending")])
        letters = sorted(letter.reason for letter in each.bucket.queue("events").dead_letters.peek(10))
        found.append((rows.drop_columns(["at", "version"]).to_pylist(), letters))
    assert [row["doc"] for row in found[0][0]] == ["docs/a.md", "docs/c.docx"]
    assert found[0] == found[1]
    assert len(found[0][1]) == 1 and "docs/bad.pdf' cannot be indexed" in found[0][1][0]
    other.bucket.close()
