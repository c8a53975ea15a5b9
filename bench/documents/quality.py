"""How well a collection with known answers is searched: `python -m bench.documents.quality CORPUS QUERIES`.

CORPUS has a line of JSON for each document (`id`, `text`, perhaps `title`), QUERIES one for each query (`id`, `text`,
`relevant`: the ids of the documents that answer it); either may be gzipped. Documents go through the stages of the
application as they are, and a document ranks where its best chunk does. Printed are nDCG@10 and recall@10 of the words
alone, of the vectors alone, and of both as the application adds them. None of it comes with BucketMQ.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from bucketmq.apps.documents.encoders import ENCODERS, Loaded, load
from bucketmq.apps.documents.search import Index, Part, Scores, Vocabulary
from bucketmq.apps.documents.stages import DOCUMENT, INDEXED, chunks, encoded, evidence, terms

FIRST = 10
"""How far down a list people look."""


class Document(msgspec.Struct, frozen=True):
    id: str
    text: str
    title: str = ""


class Query(msgspec.Struct, frozen=True):
    id: str
    text: str
    relevant: tuple[str, ...]


class Quality(msgspec.Struct, frozen=True):
    """Means over all queries."""

    ndcg: float
    recall: float


def lines_of(path: Path, kind: Any) -> list[Any]:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rb") as body:
        return [msgspec.json.decode(line, type=kind) for line in body if line.strip()]


def index_of(documents: Sequence[Document], encoder: str, loaded: Any) -> Index:
    """The documents through the stages, in memory."""
    import pyarrow as pa

    from bucketmq.pipeline.columns import arrow_schema

    now = datetime.now(UTC)
    rows = [
        {"doc": each.id, "at": now, "gone": False, "kind": "text", "title": each.title, "text": each.text}
        for each in documents
    ]
    batch: Any = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(DOCUMENT))
    for stage in (chunks, terms, evidence):
        batch = stage.run(batch)
    done = encoded(batch.select(arrow_schema(INDEXED).names), Loaded({encoder: loaded})).rows
    vocabulary = Vocabulary()
    return Index(1, encoder, {"": Part(done, vocabulary)}, vocabulary)


def ranked(index: Index, scores: Any) -> list[str]:
    """The ids of documents, the best first."""
    docs = [doc for part in index.parts.values() for doc in part.rows.column("doc").to_pylist()]
    order = np.argsort(-scores, kind="stable")
    return list(dict.fromkeys(docs[place] for place in order if np.isfinite(scores[place])))


def quality(found: Mapping[str, Sequence[str]], queries: Sequence[Query]) -> Quality:
    """nDCG@10 and recall@10, where a document is relevant or not."""
    gains, recalls = [], []
    for query in queries:
        hits = [1.0 if doc in query.relevant else 0.0 for doc in found[query.id][:FIRST]]
        weights = 1 / np.log2(np.arange(2, FIRST + 2))
        best = weights[: len(query.relevant)].sum()
        gains.append(float((np.array(hits) * weights[: len(hits)]).sum() / best))
        recalls.append(sum(hits) / len(query.relevant))
    return Quality(round(float(np.mean(gains)), 4), round(float(np.mean(recalls)), 4))


def measure(documents: Sequence[Document], queries: Sequence[Query], encoder: str) -> dict[str, Quality]:
    """By what a list is sorted: `bm25`, the encoder's name, and `hybrid`."""
    loaded = load(encoder, threads=1)
    index = index_of(documents, encoder, loaded)
    lists: dict[str, dict[str, list[str]]] = {}
    for query in queries:
        scores: Scores = index.scores(query.text, loaded)
        lists.setdefault("bm25", {})[query.id] = ranked(index, np.where(scores.words > 0, scores.words, -np.inf))
        if scores.meaning is not None:
            lists.setdefault(encoder, {})[query.id] = ranked(index, scores.meaning)
            lists.setdefault("hybrid", {})[query.id] = ranked(index, scores.sum)
    return {name: quality(found, queries) for name, found in lists.items()}


def main(words: Sequence[str]) -> int:
    options = argparse.ArgumentParser(prog="python -m bench.documents.quality", description=__doc__)
    options.add_argument("corpus", type=Path)
    options.add_argument("queries", type=Path)
    options.add_argument("--encoder", choices=ENCODERS, default="granite")
    options.add_argument("--json", action="store_true", help="one JSON value on standard output")
    given = options.parse_args(words)
    documents, queries = lines_of(given.corpus, Document), lines_of(given.queries, Query)
    began = time.process_time()
    found = measure(documents, queries, given.encoder)
    if given.json:
        print(json.dumps(msgspec.to_builtins(found)))
        return 0
    print(f"{len(documents):,} documents, {len(queries):,} queries, {time.process_time() - began:.0f} s of CPU")
    for name, each in found.items():
        print(f"{name:<10} nDCG@{FIRST} {each.ndcg:.3f}   recall@{FIRST} {each.recall:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
