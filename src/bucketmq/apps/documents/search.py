"""Search over all chunks of a table: BM25 and vectors, both exact, their z-scores added. In memory, made of the table's
own rows; nothing but the table is stored.

A `Part` holds what one file of the table says, so a commit costs a reader the files that it changed. BM25's statistics
are summed over the parts, and so are the means of both scores: how a table is cut into files changes no score. Reading
files is `library`'s.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from bucketmq.apps.documents.encoders import Encoder
from bucketmq.apps.documents.names import chunk_id
from bucketmq.apps.documents.terms import asked_for, spans_of

if TYPE_CHECKING:
    import pyarrow as pa

K1, B = 1.2, 0.75
"""BM25's usual constants."""
SCORE_DIGITS = 4
"""What differs by less differs by where chunks lie in memory alone, and is equal."""
DEVIATION_MIN = 1e-6
"""Scores that differ by less do not differ."""

SHOWN = ("doc", "chunk", "at", "version", "kind", "title", "page", "heading", "start", "stop", "text")
COLUMNS = (*SHOWN, "terms", "counts", "entities", "relations", "vector", "scale")
TYPED = ("typed", "typed_by")
"""Columns that a table has once somebody asked Claude for typed relations."""

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk: what it says, and where."""

    id: str
    doc: str
    chunk: int
    text: str
    kind: str
    title: str
    heading: str
    page: int | None
    start: int
    stop: int
    at: str
    """When its document was written, as its event says."""
    version: str | None


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk that answers a query."""

    place: Place
    score: float
    bm25: float
    cosine: float | None
    """None where chunks have no vectors, or the encoder is not installed here."""
    marks: tuple[tuple[int, int], ...] = ()
    """What to highlight: where words of the query begin and end in the text."""
    also: tuple[str, ...] = ()
    """Other chunks with the same text."""


class Vocabulary:
    """A number for each term, the same in all parts. It only grows."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._lock = threading.Lock()

    def number(self, term: str) -> int | None:
        return self._numbers.get(term)

    def numbers(self, terms: Iterable[str]) -> Ints:
        known = self._numbers
        with self._lock:  # two refreshes at a time must not give one number to two terms
            return np.fromiter((known.setdefault(term, len(known)) for term in terms), dtype=np.int32)


class Part:
    """The chunks of one file: their words, vectors and evidence."""

    def __init__(self, rows: pa.Table, vocabulary: Vocabulary) -> None:
        rows = rows.combine_chunks()
        self.count = rows.num_rows
        self.rows = rows.select(list(SHOWN))
        typed = [name for name in TYPED if name in rows.schema.names]
        self.evidence = rows.select(["doc", "chunk", "entities", "relations", *typed])
        self._postings(rows, vocabulary)
        self.vectors = _vectors(rows)

    def _postings(self, rows: pa.Table, vocabulary: Vocabulary) -> None:
        """For each term the chunks that have it and how often, the terms sorted by their numbers."""
        import pyarrow.compute as pc

        terms = _only(rows.column("terms"))
        lengths = pc.fill_null(pc.list_value_length(terms), 0).to_numpy(zero_copy_only=False).astype(np.int32)
        words = terms.flatten().dictionary_encode()
        own = vocabulary.numbers(words.dictionary.to_pylist())
        numbers = own[words.indices.to_numpy(zero_copy_only=False)] if len(words) else own
        counts = _only(rows.column("counts")).flatten().to_numpy(zero_copy_only=False).astype(np.float32)
        chunks = np.repeat(np.arange(self.count, dtype=np.int32), lengths)
        order = np.argsort(numbers, kind="stable")
        self._chunks, self._counts = chunks[order], counts[order]
        self._terms, starts = np.unique(numbers[order], return_index=True)
        self._starts = np.append(starts, len(order))
        self.lengths = np.bincount(chunks, weights=counts, minlength=self.count).astype(np.float32)

    def postings(self, term: int) -> tuple[Ints, Floats]:
        at = int(np.searchsorted(self._terms, np.int32(term)))  # of its type: otherwise all of them are converted
        if at == len(self._terms) or self._terms[at] != term:
            return self._chunks[:0], self._counts[:0]
        where = slice(self._starts[at], self._starts[at + 1])
        return self._chunks[where], self._counts[where]

    def name(self, row: int) -> tuple[str, int]:
        """Document and number of a chunk."""
        return self.rows.column("doc")[row].as_py(), self.rows.column("chunk")[row].as_py()

    def text(self, row: int) -> str:
        return self.rows.column("text")[row].as_py() or ""

    def place(self, row: int) -> Place:
        (found,) = self.rows.slice(row, 1).to_pylist()
        return place_of(found)


def place_of(row: Mapping[str, Any]) -> Place:
    return Place(
        id=chunk_id(row["doc"], row["chunk"]),
        doc=row["doc"],
        chunk=row["chunk"],
        text=row["text"] or "",
        kind=row["kind"] or "",
        title=row["title"] or "",
        heading=row["heading"] or "",
        page=row["page"],
        start=row["start"] or 0,
        stop=row["stop"] or 0,
        at=row["at"].isoformat().replace("+00:00", "Z"),
        version=row["version"],
    )


def _only(column: Any) -> Any:
    """A column of a table that was combined, as one array."""
    import pyarrow as pa

    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


class Vectors(msgspec.Struct, frozen=True):
    """The vectors of a part as they are stored."""

    whole: NDArray[np.int8]
    scales: Floats


def _vectors(rows: pa.Table) -> Vectors | None:
    """The vectors of chunks; None if these have none."""
    column = _only(rows.column("vector"))
    if not len(column) or column.null_count:
        return None
    width = len(column[0].as_py())
    joined = np.frombuffer(b"".join(column.to_pylist()), np.int8)
    if joined.size != width * len(column):
        return None
    scales = _only(rows.column("scale")).to_numpy(zero_copy_only=False).astype(np.float32)
    return Vectors(joined.reshape(-1, width), scales)


def _matrix(parts: Sequence[Part]) -> Floats | None:
    """All vectors as one matrix: one product is much quicker than one for each part, which all wait for their threads.
    None unless every chunk has one of the same width."""
    found = [part.vectors for part in parts if part.count]
    widths = {None if each is None else each.whole.shape[1] for each in found}
    if len(widths) != 1 or None in widths:
        return None
    vectors = [each for each in found if each is not None]
    made = np.empty((sum(len(each.scales) for each in vectors), vectors[0].whole.shape[1]), np.float32)
    at = 0
    for each in vectors:
        np.multiply(each.whole, each.scales[:, None], out=made[at : at + len(each.scales)])
        at += len(each.scales)
    return made


class Index:
    """All parts of a table at one version. A value: searching changes nothing, and a refresh makes another one."""

    def __init__(self, version: int, encoder: str, parts: Mapping[str, Part], vocabulary: Vocabulary) -> None:
        self.version = version
        self.encoder = encoder
        self.parts = parts
        self.vocabulary = vocabulary
        self.count = sum(part.count for part in parts.values())
        mean = float(sum(part.lengths.sum() for part in parts.values())) / max(1, self.count) or 1.0
        self._norms = [np.float32(K1) * (1 - B + B * part.lengths / np.float32(mean)) for part in parts.values()]
        """What the length of each chunk does to its score."""
        self._vectors = _matrix(list(parts.values()))

    @property
    def documents(self) -> int:
        return sum(part.rows.column("doc").combine_chunks().unique().__len__() for part in self.parts.values())

    def find(
        self,
        query: str,
        limit: int,
        *,
        encoder: Encoder | None = None,
        wanted: Callable[[str], bool] | None = None,
    ) -> list[Hit]:
        """The best chunks for a query, the best first; only of documents that are `wanted`, if that is said. Chunks
        with the same text are one hit."""
        terms = asked_for(query)
        if not self.count or not query.strip():
            return []
        parts = list(self.parts.values())
        found = self.scores(query, encoder)
        if wanted is not None:
            found = msgspec.structs.replace(found, sum=np.where(_chosen(parts, wanted), found.sum, -np.inf))
        there = int(np.isfinite(found.sum).sum())
        wanted_rows = limit * 4
        while True:
            hits = _hits(_best(parts, found.sum, wanted_rows), terms, limit, found)
            if len(hits) >= limit or wanted_rows >= there:
                return hits
            wanted_rows *= 8  # many chunks have the same text

    def scores(self, query: str, encoder: Encoder | None = None) -> Scores:
        """What every chunk scores, in the order of the parts. Without vectors, chunks that have none of the words are
        out."""
        words = self._bm25(asked_for(query), list(self.parts.values()))
        meaning = self._cosines(query, encoder)
        both = _standard(words)
        if meaning is None:
            both[words <= 0] = -np.inf
        else:
            both += _standard(meaning)
        return Scores(np.round(both, SCORE_DIGITS), words, meaning)

    def _bm25(self, terms: Sequence[str], parts: Sequence[Part]) -> Floats:
        scores = [np.zeros(part.count, np.float32) for part in parts]
        for term in terms:
            number = self.vocabulary.number(term)
            if number is None:
                continue
            found = [part.postings(number) for part in parts]
            having = sum(len(chunks) for chunks, _ in found)
            rarity = np.float32(np.log(1 + (self.count - having + 0.5) / (having + 0.5)))
            for own, norm, (chunks, counts) in zip(scores, self._norms, found, strict=True):
                own[chunks] += rarity * counts / (counts + norm[chunks])
        return np.concatenate(scores)

    def _cosines(self, query: str, encoder: Encoder | None) -> Floats | None:
        if encoder is None or self._vectors is None:
            return None
        vector = encoder.encode([query])[0]
        found: Floats = self._vectors @ vector
        return found


class Scores(msgspec.Struct, frozen=True):
    """Of each chunk: the sum of both in standard deviations, minus infinity for one that is out; BM25; the cosine."""

    sum: Floats
    words: Floats
    meaning: Floats | None


Best = list[tuple[int, Part, int]]
"""Chunks by their places: among all, and in their part."""


def _best(parts: Sequence[Part], scores: Floats, limit: int) -> Best:
    """The chunks with the highest scores, which come first. Equal scores have an order, too."""
    wanted = min(len(scores), limit)
    least = np.partition(scores, len(scores) - wanted)[-wanted] if wanted < len(scores) else -np.inf
    best = np.flatnonzero(scores >= least)  # with all that are equal to the last: which of them are taken has an order
    starts = np.cumsum([0, *(part.count for part in parts)])
    found: Best = []
    for row in best[np.isfinite(scores[best])]:
        at = int(np.searchsorted(starts, row, side="right")) - 1
        found.append((int(row), parts[at], int(row - starts[at])))
    return sorted(found, key=lambda each: (-float(scores[each[0]]), each[1].name(each[2])))[:wanted]


def _hits(found: Best, terms: Sequence[str], limit: int, scores: Scores) -> list[Hit]:
    """The chunks as hits; those with the same text are one."""
    hits: dict[str, Hit] = {}
    for row, part, own in found:
        text = part.text(own)
        if text in hits:
            known = hits[text]
            hits[text] = msgspec.structs.replace(known, also=(*known.also, chunk_id(*part.name(own))))
        elif len(hits) < limit:
            hits[text] = Hit(
                place=part.place(own),
                score=round(float(scores.sum[row]), 4),
                bm25=round(float(scores.words[row]), 4),
                cosine=None if scores.meaning is None else round(float(scores.meaning[row]), 4),
                marks=marks_of(text, terms),
            )
    return list(hits.values())


class Spread(msgspec.Struct, frozen=True):
    """Mean and standard deviation of scores."""

    mean: float
    deviation: float

    def of(self, score: float) -> float:
        """How many standard deviations above the mean a score is."""
        return (score - self.mean) / self.deviation if self.deviation > DEVIATION_MIN else 0.0


def spread_of(scores: Floats) -> Spread:
    mean = float(scores.mean())
    return Spread(mean, max(0.0, float(np.dot(scores, scores)) / len(scores) - mean**2) ** 0.5)


def _standard(scores: Floats) -> Floats:
    """`Spread.of` each."""
    found = spread_of(scores)
    if found.deviation <= DEVIATION_MIN:
        return np.zeros_like(scores)
    return (scores - np.float32(found.mean)) / np.float32(found.deviation)


def _chosen(parts: Sequence[Part], wanted: Callable[[str], bool]) -> NDArray[np.bool_]:
    return np.concatenate(
        [np.array([wanted(doc) for doc in part.rows.column("doc").to_pylist()], bool) for part in parts]
    )


def marks_of(text: str, terms: Iterable[str]) -> tuple[tuple[int, int], ...]:
    """Where the terms of a query stand in a text."""
    wanted = set(terms)
    return tuple((start, stop) for term, start, stop in spans_of(text) if term in wanted)
