"""Documents through the stages of the index, one stage after the other: where the time goes. And pages of a PDF."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

from bench.documents.sizes import Sizes
from bench.results import Measurement, Target, measured
from bucketmq.apps.documents.demo import made
from bucketmq.apps.documents.encoders import Loaded, load
from bucketmq.apps.documents.reader import Readers
from bucketmq.apps.documents.stages import chunks, encoded, evidence, terms, text, vectors_with
from bucketmq.client import connect

SCENARIO = "index"


def by_stage(sizes: Sizes) -> Iterator[Measurement]:
    import pyarrow as pa

    from bucketmq.pipeline.columns import arrow_schema

    said = files(made.__package__ or "").joinpath("docs").joinpath("handbook.md").read_text() * 3
    rows = [
        {
            "key": f"docs/{n}.md",
            "kind": "created",
            "at": datetime.now(UTC),
            "from_key": None,
            "content": f"{said}\n\n# Document {n}".encode(),
            "content_version": "1",
            "content_state": "same",
        }
        for n in range(sizes.documents)
    ]
    batch: Any = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(text.takes))
    loaded = Loaded({"granite": load("granite", threads=1)})
    readers = Readers()
    readers.read("docs/warm.pdf", made.pdf(["warm"]))
    spent: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        found = work()
        spent[name] = time.perf_counter() - began
        return found

    batch = timed("text", lambda: text.run(batch))
    for stage in (chunks, terms, evidence):
        batch = timed(stage.name, functools.partial(stage.run, batch))
    takes = arrow_schema(vectors_with(("granite",)).takes).names
    done = timed("vectors", lambda: encoded(batch.select(takes), loaded).rows)
    with connect("memory://") as bucket:
        table = bucket.table("documents-granite", key="chunk", group="doc", newer_by="at")
        living = done.drop_columns(["gone"])
        timed("commit", lambda: table.upsert(living))
    whole = sum(spent.values())
    for name, seconds in spent.items():
        yield measured(SCENARIO, f"{name}, share of the time", [seconds / whole], "of the time", depth=sizes.documents)
    yield measured(SCENARIO, "chunks through all stages", [done.num_rows / whole], "chunks/s", depth=done.num_rows)
    pages = made.pdf([f"Page {n}\n" + "A line of text of a page.\n" * 40 for n in range(sizes.pages)])
    timed("pdf", lambda: readers.read("docs/a.pdf", pages))
    readers.close()
    target = Target(at_least=200.0)
    yield measured(SCENARIO, "PDF", [sizes.pages / spent["pdf"]], "pages/s", depth=sizes.pages, target=target)
