"""Documents through the stages of the index, one stage after the other: where the CPU time goes. Then the same ones
through a watcher on a bucket in memory, beside the encoder alone in the same run; and pages of a PDF, beside bare
pypdfium2.

Documents are read in this process here, so that their CPU time is counted; the application reads them in a child.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any
from unittest.mock import patch

from bench.documents.sizes import Sizes
from bench.results import BARE, Measurement, Target, measured
from bucketmq.apps.documents.demo import made
from bucketmq.apps.documents.encoders import Loaded, load
from bucketmq.apps.documents.pipeline import index
from bucketmq.apps.documents.reading import Text, read_text
from bucketmq.apps.documents.stages import chunks, encoded, evidence, terms, text, vectors_with
from bucketmq.cli.apps_run import CHANGES_AT_ONCE
from bucketmq.client import connect
from bucketmq.models.granite import Encoder
from bucketmq.pipeline.columns import arrow_schema

SCENARIO = "index"


class Here:
    """Reads documents in this process."""

    def read(self, key: str, content: bytes) -> Text:
        return read_text(key, content)


def by_stage(sizes: Sizes) -> Iterator[Measurement]:
    said = files(made.__package__ or "").joinpath("docs").joinpath("handbook.md").read_text() * 3
    documents = {f"docs/{n}.md": f"{said}\n\n# Document {n}".encode() for n in range(sizes.documents)}
    spent, count = _staged(documents)
    whole = sum(spent.values())
    for name, seconds in spent.items():
        yield measured(SCENARIO, f"{name}, share of the time", [seconds / whole], "of CPU", depth=sizes.documents)
    yield measured(SCENARIO, "chunks through all stages", [count / whole], "chunks/CPU s", depth=count)
    through, encoding, commits = _watched(documents)
    through += spent["text"]  # which a child did
    yield measured(SCENARIO, "documents through a watcher", [through], "CPU s", depth=sizes.documents)
    yield measured(SCENARIO, "documents through a watcher", [encoding], "CPU s", depth=sizes.documents, subject=BARE)
    yield measured(SCENARIO, "encoder, share of a watcher", [encoding / through], "of CPU", depth=sizes.documents)
    yield measured(SCENARIO, "commits of a watcher", [commits], "commits", depth=sizes.documents)
    pages = made.pdf([f"Page {n}\n" + "A line of text of a page.\n" * 40 for n in range(sizes.pages)])
    for subject, work in (("bucketmq", lambda: read_text("docs/a.pdf", pages)), (BARE, lambda: _bare_pdf(pages))):
        work()
        rate = sizes.pages / _cpu(work)
        target = None if subject == BARE else Target(at_least=200.0)
        yield measured(SCENARIO, "PDF", [rate], "pages/CPU s", depth=sizes.pages, target=target, subject=subject)


def _cpu(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _staged(documents: dict[str, bytes]) -> tuple[dict[str, float], int]:
    """The CPU seconds of each stage, and how many chunks there were."""
    import pyarrow as pa

    rows = [
        {
            "key": key,
            "kind": "created",
            "at": datetime.now(UTC),
            "from_key": None,
            "content": content,
            "content_version": "1",
            "content_state": "same",
        }
        for key, content in documents.items()
    ]
    batch: Any = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(text.takes))
    loaded = Loaded({"granite": load("granite", threads=1)})
    spent: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        began = time.process_time()
        found = work()
        spent[name] = time.process_time() - began
        return found

    read = timed("text", lambda: text(batch, readers=Here()).rows)
    batch = pa.RecordBatch.from_pydict(read, schema=arrow_schema(text.gives or ""))
    for stage in (chunks, terms, evidence):
        batch = timed(stage.name, functools.partial(stage.run, batch))
    takes = arrow_schema(vectors_with(("granite",)).takes).names
    done = timed("vectors", lambda: encoded(batch.select(takes), loaded).rows)
    with connect("memory://") as bucket:
        table = bucket.table("documents-granite", key="chunk", group="doc", newer_by="at")
        timed("commit", lambda: table.upsert(done.drop_columns(["gone"])))
    return spent, done.num_rows


def _watched(documents: dict[str, bytes]) -> tuple[float, float, int]:
    """From events to rows of the table, as the application does it without Spark: the CPU seconds of all but reading,
    those of the encoder among them, and how many commits there were."""
    pipeline = index()
    source: Any = pipeline.source
    encoding = 0.0
    encode = Encoder.encode

    def timed(self: Encoder, texts: Sequence[str]) -> Any:
        nonlocal encoding
        began = time.thread_time()  # it runs in the thread that asks
        found = encode(self, texts)
        encoding += time.thread_time() - began
        return found

    with connect("memory://") as bucket, patch.object(Encoder, "encode", timed):
        watch = bucket.watch(source.filter, name=pipeline.name, start="beginning", batch=CHANGES_AT_ONCE)
        watch(pipeline.watcher(bucket))
        bucket.put("docs/first.md", "loads the encoder")
        bucket.run_watchers(stop_when_empty=True, signals=False)
        bucket.put_many(documents)
        table, encoding = bucket.table("documents-granite"), 0.0
        version = table.snapshot().version
        spent = _cpu(lambda: bucket.run_watchers(stop_when_empty=True, signals=False))
        return spent, encoding, table.snapshot().version - version


def _bare_pdf(content: bytes) -> list[str]:
    import pypdfium2

    document = pypdfium2.PdfDocument(content)
    try:
        return [document[number].get_textpage().get_text_bounded() for number in range(len(document))]
    finally:
        document.close()
