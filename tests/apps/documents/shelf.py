"""A bucket with documents and what indexes them, for tests: a watcher, without an encoder unless one is named."""

from __future__ import annotations

from typing import Any

import bucketmq
from bucketmq.apps.documents.library import Found, Library
from bucketmq.apps.documents.names import table_of
from bucketmq.apps.documents.pipeline import index


class Shelf:
    """Documents go in, and are indexed when `work` is called."""

    def __init__(self, bucket: Any = None, *, encoders: tuple[str, ...] = ("none",), **options: Any) -> None:
        self.bucket = bucket or bucketmq.connect("memory://")
        self.pipeline = index(encoders=encoders, **options)
        self.table = self.bucket.table(table_of(encoders[0]))
        self.library = Library(self.bucket.api)
        handler = self.pipeline.watcher(self.bucket)
        self.bucket.watch(self.pipeline.source.filter, name=self.pipeline.name, start="beginning", batch=100)(handler)

    def put(self, **documents: str | bytes) -> None:
        """Documents by name: `a_md="..."` is docs/a.md."""
        for name, body in documents.items():
            self.bucket.put(f"docs/{name.replace('_', '.')}", body)
        self.work()

    def work(self) -> None:
        self.bucket.run_watchers(stop_when_empty=True, signals=False)

    def texts(self) -> dict[str, list[str]]:
        return texts_of(self.table)

    def search(self, query: str, **options: Any) -> Found:
        return self.bucket.run(self.library.search(query, **options))

    def reasons(self) -> list[str]:
        """Why documents could not be indexed."""
        return [letter.reason for letter in self.bucket.queue("events").dead_letters.peek(100)]

    def close(self) -> None:
        self.bucket.close()


def texts_of(table: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in table.read(columns=["doc", "chunk", "text"]).sort_by("chunk").to_pylist():
        found.setdefault(row["doc"], []).append(row["text"])
    return found


def sections(*texts: str) -> str:
    """Markdown with a chunk for each text."""
    return "\n\n".join(f"# Part {n}\n\n{text} {'and so on ' * 40}" for n, text in enumerate(texts))
