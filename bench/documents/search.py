"""A warm query over made-up chunks whose words are as rare as words are, beside two libraries that do their part
alone on the same numbers: a matrix times a vector in NumPy, and bm25s."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.documents.sizes import Sizes
from bench.results import BARE, Measurement, Target, measured
from bucketmq.apps.documents.encoders import load, rounded
from bucketmq.apps.documents.library import Library
from bucketmq.apps.documents.search import K1, B, Index, Part, Vocabulary
from bucketmq.client import connect

SCENARIO, LANCE = "search", "lance"
WORDS, WORDS_OF_A_CHUNK, WIDTH = 60_000, 150, 384
TOPICS = 1_000


def _centres() -> NDArray[np.float32]:
    made = np.random.default_rng(5).normal(size=(TOPICS, WIDTH)).astype(np.float32)
    return np.asarray(made / np.linalg.norm(made, axis=1, keepdims=True), dtype=np.float32)


CENTRES = _centres()
"""What chunks are about: their vectors lie around these, as those of texts do."""


def beside_the_libraries(sizes: Sizes) -> Iterator[Measurement]:
    dice = np.random.default_rng(7)
    tables = [made_up_rows(dice, sizes.chunks // sizes.files, file) for file in range(sizes.files)]
    began = time.perf_counter()
    vocabulary = Vocabulary()
    parts = {str(file): Part(rows, vocabulary) for file, rows in enumerate(tables)}
    index = Index(1, "granite", parts, vocabulary)
    loaded = time.perf_counter() - began
    queries = [" ".join(f"w{n}" for n in _words(dice, 6)) for _ in range(sizes.queries)]
    encoder = load("granite", threads=2)
    assert encoder is not None
    index.find(queries[0], 10, encoder=encoder)
    cpu = time.process_time()
    warm = _each(queries, lambda query: index.find(query, 10, encoder=encoder))
    cpu = (time.process_time() - cpu) * 1000 / len(queries)
    fixed = Fixed(encoder.encode(["fixed"]))
    ranked = _each(queries, lambda query: index.find(query, 10, encoder=fixed))
    bare = _each(queries, _bare(index, tables))
    count = index.count
    yield measured(SCENARIO, "files to a searchable index", [loaded], "s", depth=count)
    yield measured(SCENARIO, "warm hybrid query", warm, "ms", depth=count, target=Target(at_most=50.0))
    yield measured(SCENARIO, "warm hybrid query, CPU", [cpu], "CPU ms", depth=count)
    yield measured(SCENARIO, "ranking alone", ranked, "ms", depth=count)
    yield measured(SCENARIO, "ranking alone", bare, "ms", depth=count, subject=BARE)


def in_lance(sizes: Sizes) -> Iterator[Measurement]:
    """The same chunks as a copy in Lance: making it, following one changed document, a query, what it finds."""
    from bucketmq.apps.documents.lance_copy import LanceCopy, update

    dice = np.random.default_rng(7)
    fixed = Fixed(CENTRES[:1])
    with tempfile.TemporaryDirectory() as folder, connect("memory://") as bucket:
        table = bucket.table("documents-granite", key="chunk", group="doc", newer_by="at")
        for file in range(sizes.files):
            table.upsert(made_up_rows(dice, sizes.chunks // sizes.files, file))
        exact = Library(bucket.api, encoder_of=lambda *_, **__: fixed)
        for what in ("make the copy", "follow a changed document"):
            began = time.process_time()
            update(bucket, folder)
            yield measured(LANCE, what, [time.process_time() - began], "CPU s", depth=sizes.chunks)
            table.upsert(made_up_rows(dice, 1, 0))
        update(bucket, folder)
        copy = LanceCopy(folder, encoder_of=lambda *_, **__: fixed)
        spent, shared = [], []
        for query in [" ".join(f"w{n}" for n in _words(dice, 6)) for _ in range(sizes.queries + 1)]:
            fixed.vectors = near(dice, CENTRES[dice.integers(0, TOPICS, 1)])
            began = time.process_time()
            found = {hit.place.id for hit in copy.search(query).hits}
            spent.append((time.process_time() - began) * 1000)
            true = {hit.place.id for hit in bucket.run(exact.search(query)).hits}
            shared.append(len(found & true) / max(1, len(true)))
        yield measured(LANCE, "warm query without its encoding", spent[1:], "CPU ms", depth=sizes.chunks)
        mean = sum(shared) / len(shared)
        yield measured(LANCE, "of the ten best of the exact search, found", [mean], "share", depth=sizes.chunks)


class Fixed:
    """An encoder that costs nothing."""

    def __init__(self, vectors: NDArray[np.float32]) -> None:
        self.vectors = vectors

    def encode(self, texts: Any) -> NDArray[np.float32]:
        return self.vectors


def _each(queries: list[str], ask: Callable[[str], object]) -> list[float]:
    found = []
    for query in queries:
        began = time.perf_counter()
        ask(query)
        found.append((time.perf_counter() - began) * 1000)
    return found


def _bare(index: Index, tables: list[Any]) -> Callable[[str], object]:
    import bm25s

    corpus = [
        [word for word, count in zip(terms, counts, strict=True) for _ in range(count)]
        for rows in tables
        for terms, counts in zip(rows.column("terms").to_pylist(), rows.column("counts").to_pylist(), strict=True)
    ]
    retriever = bm25s.BM25(k1=K1, b=B)
    retriever.index(corpus, show_progress=False)
    stored = [part.vectors for part in index.parts.values() if part.vectors is not None]
    matrix = np.concatenate([each.whole * each.scales[:, None] for each in stored], dtype=np.float32)
    vector = np.ascontiguousarray(matrix[0])

    def ask(query: str) -> object:
        words, meaning = retriever.get_scores(query.split()), matrix @ vector
        both = (words - words.mean()) / words.std() + (meaning - meaning.mean()) / meaning.std()
        return np.argpartition(-both, 10)[:10]

    return ask


def near(dice: np.random.Generator, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Other vectors of length 1, at a cosine of some 0.7."""
    made = vectors + dice.normal(size=vectors.shape).astype(np.float32) / np.float32(WIDTH**0.5)
    return np.asarray(made / np.linalg.norm(made, axis=1, keepdims=True), dtype=np.float32)


def _words(dice: np.random.Generator, count: int) -> NDArray[np.int64]:
    """Words, the first the most frequent."""
    return np.minimum(dice.zipf(1.3, count), WORDS) - 1


def made_up_rows(dice: np.random.Generator, count: int, file: int) -> Any:
    import pyarrow as pa

    terms, counts = [], []
    for _ in range(count):
        words, times = np.unique(_words(dice, WORDS_OF_A_CHUNK), return_counts=True)
        terms.append([f"w{word}" for word in words])
        counts.append(times.tolist())
    vectors, scales = rounded(near(dice, CENTRES[dice.integers(0, len(CENTRES), count)]))
    nothing: list[list[Any]] = [[]] * count
    entity = pa.struct([("name", pa.string()), ("kind", pa.string())])
    relation = pa.struct([("subject", pa.string()), ("relation", pa.string()), ("object", pa.string())])
    return pa.table(
        {
            "doc": [f"docs/{file}/{n}.txt" for n in range(count)],
            "chunk": pa.array([0] * count, pa.int32()),
            "at": [datetime.now(UTC)] * count,
            "version": ["1"] * count,
            "kind": ["text"] * count,
            "title": [""] * count,
            "page": pa.nulls(count, pa.int32()),
            "heading": [""] * count,
            "start": [0] * count,
            "stop": [1000] * count,
            "text": [" ".join([f"{file}/{n}", *words]) for n, words in enumerate(terms)],
            "terms": terms,
            "counts": counts,
            "entities": pa.array(nothing, pa.list_(entity)),
            "relations": pa.array(nothing, pa.list_(relation)),
            "vector": [vector.tobytes() for vector in vectors],
            "scale": pa.array(scales, pa.float32()),
        }
    )
