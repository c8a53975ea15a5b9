"""A warm query over made-up chunks whose words are as rare as words are, beside two libraries that do their part
alone on the same numbers: a matrix times a vector in NumPy, and bm25s."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.documents.sizes import Sizes
from bench.results import BARE, Measurement, Target, measured
from bucketmq.apps.documents.encoders import load
from bucketmq.apps.documents.search import K1, B, Index, Part, Vocabulary

SCENARIO = "search"
WORDS, WORDS_OF_A_CHUNK, WIDTH = 60_000, 150, 384


def beside_the_libraries(sizes: Sizes) -> Iterator[Measurement]:
    dice = np.random.default_rng(7)
    tables = [_rows(dice, sizes.chunks // sizes.files, file) for file in range(sizes.files)]
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
    fixed = _Fixed(encoder.encode(["fixed"]))
    ranked = _each(queries, lambda query: index.find(query, 10, encoder=fixed))
    bare = _each(queries, _bare(index, tables))
    count = index.count
    yield measured(SCENARIO, "files to a searchable index", [loaded], "s", depth=count)
    yield measured(SCENARIO, "warm hybrid query", warm, "ms", depth=count, target=Target(at_most=50.0))
    yield measured(SCENARIO, "warm hybrid query, CPU", [cpu], "CPU ms", depth=count)
    yield measured(SCENARIO, "ranking alone", ranked, "ms", depth=count)
    yield measured(SCENARIO, "ranking alone", bare, "ms", depth=count, subject=BARE)


class _Fixed:
    """An encoder that costs nothing."""

    def __init__(self, vectors: NDArray[np.float32]) -> None:
        self._vectors = vectors

    def encode(self, texts: Any) -> NDArray[np.float32]:
        return self._vectors


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


def _words(dice: np.random.Generator, count: int) -> NDArray[np.int64]:
    """Words, the first the most frequent."""
    return np.minimum(dice.zipf(1.3, count), WORDS) - 1


def _rows(dice: np.random.Generator, count: int, file: int) -> Any:
    import pyarrow as pa

    terms, counts = [], []
    for _ in range(count):
        words, times = np.unique(_words(dice, WORDS_OF_A_CHUNK), return_counts=True)
        terms.append([f"w{word}" for word in words])
        counts.append(times.tolist())
    vectors = dice.integers(-127, 128, (count, WIDTH), dtype=np.int8)
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
            "scale": pa.array([0.0004] * count, pa.float32()),
        }
    )
