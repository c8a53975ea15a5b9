"""The stages of the index: an event and its object in, the chunks of the document out. Each can be tried alone.

A document that is gone, or has nothing to say, is one row with `gone`: the table forgets it. What is wrong with a
document fails its row alone, and what the table has of it stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from bucketmq.apps.documents import evidence as evidences
from bucketmq.apps.documents.chunking import chunks_of
from bucketmq.apps.documents.encoders import Loaded, Loading, rounded
from bucketmq.apps.documents.names import PREFIX
from bucketmq.apps.documents.reader import Readers
from bucketmq.apps.documents.reading import Unreadable
from bucketmq.apps.documents.relations import TYPED
from bucketmq.apps.documents.terms import counted
from bucketmq.pipeline import Outcomes, Stage, stage
from bucketmq.pipeline.columns import column_names

if TYPE_CHECKING:
    import pyarrow as pa

EVENT = (
    "key string, kind string, at timestamp, from_key string, content binary, content_version string, "
    "content_state string"
)
DOCUMENT = (
    "doc string, at timestamp, version string, gone boolean, kind string, title string, text string, pages array<int>"
)
CHUNK = (
    "doc string, chunk int, at timestamp, version string, gone boolean, kind string, title string, page int, "
    "heading string, start int, stop int, text string"
)
TERMS = "terms array<string>, counts array<int>"
EVIDENCE = (
    "entities array<struct<name: string, kind: string>>, "
    "relations array<struct<subject: string, relation: string, object: string>>"
)
VECTOR = "encoder string, vector binary, scale float"

DOCUMENTS_AT_ONCE = 16
CHUNKS_AT_ONCE = 256


@stage(takes=EVENT, gives=DOCUMENT, uses=Readers, rows_max=DOCUMENTS_AT_ONCE)
def text(batch: pa.RecordBatch, readers: Readers) -> Outcomes:
    """The text of each document. One that was moved is gone where it was."""
    rows: list[dict[str, Any]] = []
    of: list[int] = []
    failed: dict[int, str] = {}
    for place, row in enumerate(batch.to_pylist()):
        made: list[dict[str, Any]] = []
        state = {"at": row["at"], "version": row["content_version"]}
        if (row["from_key"] or "").startswith(PREFIX) and row["from_key"] != row["key"]:
            made.append({**state, "doc": row["from_key"], "gone": True})
        if row["key"].startswith(PREFIX):
            own = {**state, "doc": row["key"]}
            if row["kind"] == "deleted" or row["content_state"] == "gone":
                made.append({**own, "gone": True})
            else:
                try:
                    read = readers.read(row["key"], row["content"])
                except Unreadable as error:
                    failed[place] = f"{row['key']!r} cannot be indexed: {error}"
                    continue
                made.append({**own, "gone": False, **msgspec.structs.asdict(read)})
        rows += made
        of += [place] * len(made)
    return Outcomes(rows=_columns(rows, DOCUMENT), failed=failed, of=of)


@stage(takes=DOCUMENT, gives=CHUNK)
def chunks(batch: pa.RecordBatch) -> Outcomes:
    """The chunks of each document, in order."""
    rows: list[dict[str, Any]] = []
    of: list[int] = []
    for place, row in enumerate(batch.to_pylist()):
        own = {name: row[name] for name in ("doc", "at", "version", "kind", "title")}
        found = [] if row["gone"] else list(chunks_of(row["kind"], row["text"], row["pages"] or ()))
        made = [
            {**own, "chunk": number, "gone": False, **msgspec.structs.asdict(each)} for number, each in enumerate(found)
        ]
        rows += made or [{**own, "gone": True}]
        of += [place] * (len(made) or 1)
    return Outcomes(rows=_columns(rows, CHUNK), of=of)


@stage(takes="doc string, title string, heading string, text string", adds=TERMS)
def terms(batch: pa.RecordBatch) -> dict[str, Any]:
    """The terms of each chunk, with those of its title and headings, which are often what people ask for."""
    found = [counted(_whole(row)) for row in batch.to_pylist()]
    return {"terms": [list(each) for each in found], "counts": [list(each.values()) for each in found]}


@stage(takes="text string", adds=EVIDENCE)
def evidence(batch: pa.RecordBatch) -> dict[str, Any]:
    """What each chunk speaks of."""
    found = [evidences.evidence_of(each or "") for each in batch.column("text").to_pylist()]
    return {
        "entities": [msgspec.to_builtins(entities) for entities, _ in found],
        "relations": [msgspec.to_builtins(relations) for _, relations in found],
    }


def encoded(batch: pa.RecordBatch, encoders: Loaded) -> Outcomes:
    """The function of the stage `vectors`: each chunk once for each encoder, with its vector."""
    import pyarrow as pa

    living = [place for place, gone in enumerate(batch.column("gone").to_pylist()) if not gone]
    said = batch.select(["title", "heading", "text"]).take(pa.array(living, pa.int64()))
    texts = [_whole(row) for row in said.to_pylist()]
    parts: list[pa.RecordBatch] = []
    of: list[int] = []
    for name, encoder in encoders.by_name.items():
        vectors: list[bytes | None] = [None] * batch.num_rows
        scales: list[float | None] = [None] * batch.num_rows
        if encoder is not None and texts:
            whole, factors = rounded(encoder.encode(texts))
            for place, vector, factor in zip(living, whole, factors, strict=True):
                vectors[place], scales[place] = vector.tobytes(), float(factor)
        added = {
            "encoder": pa.array([name] * batch.num_rows, pa.string()),
            "vector": pa.array(vectors, pa.binary()),
            "scale": pa.array(scales, pa.float32()),
        }
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        parts.append(pa.RecordBatch.from_pydict({**columns, **added}))
        of += range(batch.num_rows)
    return Outcomes(rows=pa.Table.from_batches(parts), of=of)


INDEXED = f"{CHUNK}, {TERMS}, {EVIDENCE}"


def vectors_with(names: tuple[str, ...], *, typed: bool = False) -> Stage:
    """The stage `vectors` with these encoders, of chunks that were asked about typed relations or not."""
    takes = f"{INDEXED}, {TYPED}" if typed else INDEXED
    return stage(name="vectors", takes=takes, gives=f"{takes}, {VECTOR}", uses=Loading(names), rows_max=CHUNKS_AT_ONCE)(
        encoded
    )


def _whole(row: dict[str, Any]) -> str:
    """A chunk below its title and headings, where it does not begin with them."""
    said = row["text"] or ""
    above = [each for each in (row["title"], row["heading"]) if each and each not in said[:600]]
    return "\n".join((*dict.fromkeys(above), said))


def _columns(rows: list[dict[str, Any]], ddl: str) -> dict[str, list[Any]]:
    return {name: [row.get(name) for row in rows] for name in column_names(ddl)}
