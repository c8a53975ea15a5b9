"""Stages of the tests of tables: executors import this module, too."""

from __future__ import annotations

from typing import Any

from bucketmq.pipeline import stage

CHUNK = "id string, doc string, at timestamp, text string, gone boolean"


@stage(takes="key string, at timestamp, content string, content_state string", gives=CHUNK)
def chunks(batch: Any) -> Any:
    """A row for each line of a document; one row that says so for a document that is gone or empty."""
    rows: dict[str, list[Any]] = {name: [] for name in ("id", "doc", "at", "text", "gone")}
    for row in batch.to_pylist():
        lines = (row["content"] or "").splitlines()
        if "poison" in lines:
            raise ValueError(f"poison in {row['key']}")
        for n, line in enumerate(lines or [None]):
            made = (f"{row['key']}#{n}", row["key"], row["at"], line, line is None)
            for name, value in zip(rows, made, strict=True):
                rows[name].append(value)
    return rows
