"""For more chunks than a process should hold: a copy of the table as a Lance dataset in a folder, with an index of its
words and one of its vectors on disk, both searched together.

The table stays what is true, and the copy follows it. `update` reads the files of the table that changed since, and
brings in the documents of each in one commit, so a document is there as it was or as it is. A copy that does not have
as many chunks as the table afterwards is built again, in one commit as well. One process updates a copy at a time; any
number search it meanwhile.

Words and vectors give candidates, whose scores are BM25 and the cosine as in `search`. What a standard deviation is, a
sample of the chunks says; up to its size, scores are those of the exact search.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from bucketmq.apps.documents.encoders import Encoder, load
from bucketmq.apps.documents.library import LIMIT, QUERY_CHARACTERS_MAX, Found
from bucketmq.apps.documents.names import table_of
from bucketmq.apps.documents.search import (
    COLUMNS,
    K1,
    SCORE_DIGITS,
    SHOWN,
    Floats,
    Hit,
    Index,
    Part,
    Spread,
    Vocabulary,
    marks_of,
    place_of,
    spread_of,
)
from bucketmq.apps.documents.serving import serving, snapshot_of
from bucketmq.apps.documents.terms import asked_for
from bucketmq.errors import NotFound, Unsupported
from bucketmq.tables.head import slot_of

if TYPE_CHECKING:
    import pyarrow as pa

    from bucketmq.client import Bucket
    from bucketmq.procedures.tables.read import Snapshot

SAMPLE = 4_096
CANDIDATES = 200
"""Of each of the two lists; more if more hits are wanted."""
PROBES = 32
"""Lists of similar vectors that are looked through, of one for every 4,096 chunks."""
INDEXED_MIN = 10_000
"""Fewer vectors are compared one by one, which is exact."""
UNINDEXED_MAX = 2_000
"""More vectors that are not indexed yet are added to their index."""
OLD = timedelta(hours=1)
"""Readers of an older version have so long."""
WORDS, VECTORS = "words", "embedding"
STATE = "bucketmq"
"""The dataset's own setting that says what it is a copy of."""
LANCE_TIMES = K1 + 1
"""Its BM25 has this constant factor, ours does not; it orders nothing otherwise."""


class State(msgspec.Struct, frozen=True):
    """What a copy was made of."""

    encoder: str
    version: int
    files: tuple[str, ...]
    """Of the table, whose documents are all in the copy."""


class Updated(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an update."""

    encoder: str
    version: int
    """Of the table."""
    chunks: int
    documents: int
    """That came or changed."""
    gone: int
    files: int
    """Of the table that were read."""
    rebuilt: bool
    """The copy was made from nothing."""


def update(bucket: Bucket, path: str) -> Updated:
    """Make the copy in the folder `path` what the table is that serves now. `NotFound` while there is none.

    One GET for each file of the table that changed since.
    """
    name = bucket.run(serving(bucket.api))
    at = None if name is None else bucket.run(snapshot_of(bucket.api, name))
    if name is None or at is None:
        raise NotFound("there is no table of chunks yet; index documents first: bucketmq apps run documents")
    done = _followed(bucket, path, name, at) or _made_anew(bucket, path, name, at)
    _keep_indexes(_library().dataset(path))
    return done


def _library() -> Any:
    os.environ.setdefault("LANCE_LOG", "error")  # it warns of every list that has nothing new, hundreds of lines
    try:
        import lance
    except ImportError:
        raise Unsupported("a copy in Lance needs the package pylance; run: pip install 'bucketmq[lance]'") from None
    return lance


def _opened(path: str) -> Any | None:
    lance = _library()
    try:
        return lance.dataset(path)
    except (ValueError, OSError):  # there is none, or none yet
        return None


def _state(dataset: Any) -> State | None:
    try:
        return msgspec.json.decode(dataset.config().get(STATE, ""), type=State)
    except msgspec.DecodeError:
        return None


def _made_anew(bucket: Bucket, path: str, name: str, at: Snapshot) -> Updated:
    import pyarrow as pa

    batches = (batch for file in at.files for batch in _rows(_read(bucket, name, at, file)).to_batches())
    first = next(batches, None)
    if first is None:
        raise NotFound("nothing is indexed, so there is nothing to copy")
    reader = pa.RecordBatchReader.from_batches(first.schema, itertools.chain([first], batches))
    dataset = _library().write_dataset(reader, path, mode="create" if _opened(path) is None else "overwrite")
    documents = len(_states(dataset.to_table(columns=["doc", "at"])))
    _remember(dataset, name, at)
    read = len(at.files)
    return Updated(
        encoder=name, version=at.version, chunks=at.rows, documents=documents, gone=0, files=read, rebuilt=True
    )


def _followed(bucket: Bucket, path: str, name: str, at: Snapshot) -> Updated | None:
    """Bring in what changed; None if there is no copy of this table, or it is not what it should be afterwards."""
    dataset = _opened(path)
    known = None if dataset is None else _state(dataset)
    if dataset is None or known is None or known.encoder != name:
        return None
    came = gone = read = 0
    for place, file in enumerate(at.files):
        if file in known.files:
            continue
        rows = _read(bucket, name, at, file)
        slots = f"slot >= {at.head.shards[place].start} AND slot < {at.head.stop_of(place)}"
        had = _states(dataset.to_table(columns=["doc", "at"], filter=slots))
        has = _states(rows)
        changed = [doc for doc, when in has.items() if had.get(doc) != when]
        left = [doc for doc in had if doc not in has]
        if changed or left:
            _commit(dataset, _chosen(rows, changed), f"{slots} AND doc IN ({_listed([*changed, *left])})")
        came, gone, read = came + len(changed), gone + len(left), read + 1
    if dataset.count_rows() != at.rows:
        return None
    if read or known.version != at.version:
        _remember(dataset, name, at)
    return Updated(
        encoder=name, version=at.version, chunks=at.rows, documents=came, gone=gone, files=read, rebuilt=False
    )


def _commit(dataset: Any, rows: pa.Table, which: str) -> None:
    """Documents are replaced, and those that went go, in one commit."""
    if not rows.num_rows:
        dataset.delete(which)
        return
    merge = dataset.merge_insert(["doc", "chunk"]).when_matched_update_all().when_not_matched_insert_all()
    merge.when_not_matched_by_source_delete(which).execute(_rows(rows))


def _remember(dataset: Any, name: str, at: Snapshot) -> None:
    """After the rows: whoever dies in between compares files again that are there already."""
    dataset.update_config({STATE: msgspec.json.encode(State(name, at.version, at.files)).decode()})


def _keep_indexes(dataset: Any) -> None:
    """All words are indexed: BM25 counts them. Vectors are where there are many; a few new ones are compared one by
    one."""
    rows = dataset.count_rows()
    if not rows:
        return
    dataset.optimize.compact_files()
    there = {each.field_names[0] for each in dataset.describe_indices()}
    if WORDS not in there:
        dataset.create_scalar_index(
            WORDS,
            "INVERTED",
            base_tokenizer="whitespace",
            lower_case=False,
            stem=False,
            remove_stop_words=False,
            ascii_folding=False,
            with_position=False,
            max_token_length=None,
        )
    if VECTORS not in there and VECTORS in dataset.schema.names and rows >= INDEXED_MIN:
        dataset.create_index(VECTORS, "IVF_FLAT", metric="dot")
    for each in dataset.describe_indices():
        behind = dataset.stats.index_stats(each.name)["num_unindexed_rows"]
        if behind > (UNINDEXED_MAX if each.field_names[0] == VECTORS else 0):
            dataset.optimize.optimize_indices(index_names=[each.name])
    dataset.cleanup_old_versions(older_than=OLD)


def _read(bucket: Bucket, name: str, at: Snapshot, file: str) -> pa.Table:
    table = bucket.api.table(table_of(name))
    found: pa.Table = bucket.run(table.read_files(at, [file], columns=COLUMNS))[file]
    return found


def _states(rows: pa.Table) -> dict[str, Any]:
    return dict(zip(rows.column("doc").to_pylist(), rows.column("at").to_pylist(), strict=True))


def _chosen(rows: pa.Table, docs: Sequence[str]) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    return rows.filter(pc.is_in(rows.column("doc"), pa.array(docs, pa.string())))


def _listed(texts: Sequence[str]) -> str:
    return ", ".join(_quoted(each) for each in texts)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _rows(rows: pa.Table) -> pa.Table:
    """Rows of the table as the copy has them: with their terms as one text, their vectors in 16 bits, their slots."""
    import pyarrow as pa

    pairs = zip(rows.column("terms").to_pylist(), rows.column("counts").to_pylist(), strict=True)
    words = [" ".join(" ".join([term] * count) for term, count in zip(*each, strict=True)) for each in pairs]
    slots = [slot_of(doc) for doc in rows.column("doc").to_pylist()]
    made = rows.append_column(WORDS, pa.array(words, pa.string())).append_column("slot", pa.array(slots, pa.int32()))
    if rows.column("vector").null_count:
        return made
    vectors = _floats(rows)
    return made.append_column(
        VECTORS, pa.FixedSizeListArray.from_arrays(pa.array(vectors.astype(np.float16).ravel()), vectors.shape[1])
    )


def _floats(rows: pa.Table) -> Floats:
    """Vectors as they are stored in the table, as numbers."""
    whole = np.frombuffer(b"".join(rows.column("vector").to_pylist()), np.int8).reshape(rows.num_rows, -1)
    scales = rows.column("scale").to_numpy().astype(np.float32)
    return np.asarray(whole * scales[:, None], dtype=np.float32)


class LanceCopy:
    """A copy to search. Keep it: it holds a sample, and the indexes that were read. Calls from any thread."""

    def __init__(self, path: str, *, encoder_of: Callable[..., Encoder | None] = load) -> None:
        dataset = _opened(path)
        state = None if dataset is None else _state(dataset)
        if dataset is None or state is None:
            raise NotFound(f"there is no copy of documents in {path!r}; make it: bucketmq documents lance {path}")
        self._path = path
        self._load = encoder_of
        self._dataset = dataset
        self._state = state
        self._sample: tuple[int, Index] | None = None
        self._encoders: dict[str, Encoder | None] = {}

    def search(self, query: str, *, limit: int = LIMIT, prefix: str = "") -> Found:
        """The chunks that answer a query best, of documents whose keys begin with `prefix`, as the copy is now."""
        self._dataset.checkout_latest()
        self._state = _state(self._dataset) or self._state
        query = query[:QUERY_CHARACTERS_MAX]
        rows = self._dataset.count_rows()
        encoder = self._encoder(self._state.encoder) if VECTORS in self._dataset.schema.names else None
        hits = self._find(query, limit, prefix, encoder) if rows and query.strip() else ()
        return Found(
            query=query,
            ranking="bm25" if encoder is None else "hybrid",
            encoder=self._state.encoder,
            version=self._state.version,
            chunks=rows,
            hits=tuple(hits),
        )

    def _find(self, query: str, limit: int, prefix: str, encoder: Encoder | None) -> list[Hit]:
        terms = asked_for(query)
        vector = None if encoder is None else encoder.encode([query])[0]
        count = max(CANDIDATES, 4 * limit)
        only = f"starts_with(doc, {_quoted(prefix)})" if prefix else None
        words = self._by_words(terms, count, only)
        meaning = None if vector is None else self._by_meaning(vector, count, only)
        if vector is not None and meaning is not None:
            unread, unseen = meaning.keys() - words.keys(), words.keys() - meaning.keys()
            words |= dict.fromkeys(unread, 0.0)
            words |= self._by_words(terms, len(unread), _among(unread)) if unread else {}
            meaning |= self._cosines(vector, unseen) if unseen else {}
        said, meant = self._spreads(query, vector)
        scores = {row: said.of(score) for row, score in words.items()}
        if meaning is not None and meant is not None:
            scores = {row: score + meant.of(meaning[row]) for row, score in scores.items()}
        best = sorted(scores, key=lambda row: -scores[row])[: 4 * limit]
        shown = self._rows_of(best, SHOWN)
        found = sorted(
            (-round(scores[row], SCORE_DIGITS), each["doc"], each["chunk"], row, each) for row, each in shown.items()
        )
        shown = {row: each for *_, row, each in found}
        return _hits(shown, _Scores(scores, words, meaning), terms, limit)

    def _cosines(self, vector: Floats, rows: Collection[int]) -> dict[int, float]:
        found = self._rows_of(rows, ("vector", "scale"))
        whole = np.frombuffer(b"".join(each["vector"] for each in found.values()), np.int8).reshape(len(found), -1)
        scales = np.array([each["scale"] for each in found.values()], np.float32)
        return dict(zip(found, ((whole @ vector) * scales).tolist(), strict=True))

    def _rows_of(self, rows: Collection[int], columns: Sequence[str]) -> dict[int, dict[str, Any]]:
        found = self._dataset.to_table(columns=list(columns), filter=_among(rows), with_row_id=True) if rows else None
        return {} if found is None else {each.pop("_rowid"): each for each in found.to_pylist()}

    def _by_words(self, terms: Sequence[str], count: int, only: str | None) -> dict[int, float]:
        """BM25 of the best chunks, by their row ids."""
        asked = {"query": " ".join(terms), "columns": [WORDS]}
        found = self._scanned("_score", only, limit=count, full_text_query=asked)
        return {row: score / LANCE_TIMES for row, score in found.items()}

    def _by_meaning(self, vector: Floats, count: int, only: str | None) -> dict[int, float]:
        near = {"column": VECTORS, "q": vector.astype(np.float16), "k": count, "nprobes": PROBES, "metric": "dot"}
        return {row: 1 - distance for row, distance in self._scanned("_distance", only, nearest=near).items()}

    def _scanned(self, score: str, only: str | None, **query: Any) -> dict[int, float]:
        scanner = self._dataset.scanner(
            columns=["_rowid", score],
            filter=only,
            prefilter=True,
            with_row_id=True,
            disable_scoring_autoprojection=True,
            **query,
        )
        found = scanner.to_table()
        return dict(zip(found.column("_rowid").to_pylist(), found.column(score).to_pylist(), strict=True))

    def _spreads(self, query: str, vector: Floats | None) -> tuple[Spread, Spread | None]:
        """What a standard deviation of each score is, among the chunks of the sample."""
        version = self._state.version
        if self._sample is None or self._sample[0] != version:
            count = self._dataset.count_rows()
            places = np.unique(np.linspace(0, count - 1, min(SAMPLE, count)).astype(np.int64))
            vocabulary = Vocabulary()
            part = Part(self._dataset.take(places.tolist(), columns=list(COLUMNS)), vocabulary)
            self._sample = version, Index(version, self._state.encoder, {"": part}, vocabulary)
        scores = self._sample[1].scores(query, None if vector is None else _Known(vector))
        return spread_of(scores.words), None if scores.meaning is None else spread_of(scores.meaning)

    def _encoder(self, name: str) -> Encoder | None:
        if name not in self._encoders:
            try:
                self._encoders[name] = self._load(name, threads=2)
            except Unsupported:
                self._encoders[name] = None  # BM25 alone, which the answer says
        return self._encoders[name]


class _Known:
    """An encoder that was asked already."""

    def __init__(self, vector: Floats) -> None:
        self._vector = vector

    def encode(self, texts: Sequence[str]) -> Floats:
        return self._vector[None, :]


def _among(rows: Collection[int]) -> str:
    return f"_rowid IN ({', '.join(map(str, sorted(rows)))})"


class _Scores(msgspec.Struct, frozen=True):
    """By row ids: the sum, and what it is of."""

    sum: dict[int, float]
    words: dict[int, float]
    meaning: dict[int, float] | None


def _hits(found: Mapping[int, dict[str, Any]], scores: _Scores, terms: Sequence[str], limit: int) -> list[Hit]:
    """The rows as hits; those with the same text are one."""
    hits: dict[str, Hit] = {}
    for row, shown in found.items():
        place = place_of(shown)
        if place.text in hits:
            known = hits[place.text]
            hits[place.text] = msgspec.structs.replace(known, also=(*known.also, place.id))
        elif len(hits) < limit:
            hits[place.text] = Hit(
                place=place,
                score=round(scores.sum[row], SCORE_DIGITS),
                bm25=round(scores.words[row], 4),
                cosine=None if scores.meaning is None else round(scores.meaning[row], 4),
                marks=marks_of(place.text, terms),
            )
    return list(hits.values())
