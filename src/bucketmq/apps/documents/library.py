"""What can be asked of the documents of a bucket: search, why, graph, overview, ask. Each is a procedure that any
caller can carry out (the command line, the page, a tool of an agent) and answers a value that becomes JSON as it is.

The index is kept in memory and brought up to date before every answer: two GETs where nothing has changed, one more for
each file of the table that a commit has changed since.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import msgspec

from bucketmq.api.bucket import BucketApi
from bucketmq.apps.documents.encoders import Encoder, load
from bucketmq.apps.documents.graph import Graph, Neighbourhood, Node, said_of
from bucketmq.apps.documents.names import PIPELINE, chunk_id, of_chunk_id, table_of
from bucketmq.apps.documents.search import COLUMNS, TYPED, Hit, Index, Part, Place, Vocabulary, marks_of, place_of
from bucketmq.apps.documents.serving import serving, snapshot_of
from bucketmq.apps.documents.terms import asked_for
from bucketmq.errors import NotFound, Unsupported
from bucketmq.events.event import seconds_of
from bucketmq.procedures.queues import EVENTS
from bucketmq.procedures.requests import Call, Procedure
from bucketmq.procedures.tables.files import read_schema
from bucketmq.procedures.tables.read import Snapshot

LIMIT = 10
NEIGHBOURS = 12
QUERY_CHARACTERS_MAX = 2_000
READ_AGAIN_MAX = 3
DEAD_SHOWN = 50


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a search found."""

    query: str
    ranking: str
    """hybrid, or bm25 where there are no vectors to compare with."""
    encoder: str | None
    version: int
    """Of the table; 0 while there is none."""
    chunks: int
    hits: tuple[Hit, ...]


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk, where it comes from, and what it is evidence of."""

    place: Place
    before: str
    """The chunk before it in its document, empty at the beginning."""
    after: str
    entities: tuple[Node, ...]
    marks: tuple[tuple[int, int], ...] = ()
    rank: int | None = None
    """Which place it has among the hits for a query, if one was asked about."""
    hit: Hit | None = None


class Failure(msgspec.Struct, frozen=True):
    """A document that could not be indexed."""

    key: str
    reason: str
    at: str


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """What there is."""

    encoder: str | None
    version: int
    documents: int
    chunks: int
    entities: tuple[Node, ...]
    failures: tuple[Failure, ...] = ()
    untyped: int = 0
    """Chunks that Claude has not read for typed relations, where it has read others."""


class Library:
    """The documents of one bucket, as one process knows them. Calls from any thread."""

    def __init__(
        self, bucket: BucketApi, *, threads: int = 2, encoder_of: Callable[..., Encoder | None] = load
    ) -> None:
        self._bucket = bucket
        self._threads = threads
        self._load = encoder_of
        self._lock = threading.Lock()
        self._index = Index(0, "", {}, Vocabulary())
        self._turn = self._kept = 0
        self._graph: tuple[Index, Graph] | None = None
        self._encoders: dict[str, Encoder | None] = {}

    def refresh(self) -> Procedure[Index]:
        """The index as the table is now. Only files that changed are read."""
        with self._lock:
            self._turn = turn = self._turn + 1
        for again in range(READ_AGAIN_MAX):
            name = yield from serving(self._bucket)
            at = None if name is None else (yield from snapshot_of(self._bucket, name))
            if name is None or at is None:
                return self._take(Index(0, name or "", {}, Vocabulary()), turn)
            known = self._index
            same = known.encoder == name
            if same and known.version == at.version and known.parts.keys() == set(at.files):
                return known
            kept = {file: part for file, part in known.parts.items() if file in at.files} if same else {}
            vocabulary = known.vocabulary if same else Vocabulary()
            parts = dict(kept)
            try:
                for file in at.files:
                    if file not in kept:
                        table = self._bucket.table(table_of(name))
                        read = yield from table.read_files(at, [file], columns=_columns(at))
                        parts[file] = yield from Call(_part, (read[file], vocabulary))
            except NotFound:  # so long ago that its files are gone
                if again == READ_AGAIN_MAX - 1:
                    raise
                continue
            return self._take(Index(at.version, name, parts, vocabulary), turn)
        raise AssertionError("a loop that returns or raises")

    def _take(self, index: Index, turn: int) -> Index:
        """Keep an index, unless one was kept whose reading began later. Not by version: a dropped table starts over."""
        with self._lock:
            if turn >= self._kept:
                self._index, self._kept = index, turn
        return index

    def search(self, query: str, *, limit: int = LIMIT, prefix: str = "") -> Procedure[Found]:
        """The chunks that answer a query best, of documents whose keys begin with `prefix`."""
        index = yield from self.refresh()
        found: Found = yield from Call(self._search, (index, query[:QUERY_CHARACTERS_MAX], limit, prefix))
        return found

    def _search(self, asked: tuple[Index, str, int, str]) -> Found:
        index, query, limit, prefix = asked
        encoder = self._encoder(index.encoder) if index.count else None
        wanted = (lambda doc: doc.startswith(prefix)) if prefix else None
        hits = index.find(query, limit, encoder=encoder, wanted=wanted)
        return Found(
            query=query,
            ranking="hybrid" if any(hit.cosine is not None for hit in hits) else "bm25",
            encoder=index.encoder or None,
            version=index.version,
            chunks=index.count,
            hits=tuple(hits),
        )

    def why(self, chunk: str, *, query: str = "", neighbours: int = NEIGHBOURS) -> Procedure[Why]:
        """A chunk with its place, its neighbours and its evidence; with `query`, its place among the hits, too."""
        doc, number = of_chunk_id(chunk)
        index = yield from self.refresh()
        why: Why = yield from Call(self._why, (index, doc, number, query[:QUERY_CHARACTERS_MAX], neighbours))
        return why

    def _why(self, asked: tuple[Index, str, int, str, int]) -> Why:
        index, doc, number, query, neighbours = asked
        places = _places(index, doc)
        if number not in places:
            there = f"; its document has {len(places):,}" if places else "; its document is not in the index"
            raise NotFound(f"there is no chunk {chunk_id(doc, number)!r}{there}")
        place = places[number]
        graph = self._graph_of(index)
        speaks = [each for each in graph.most(len(graph.nodes)) if place.id in each.chunks]
        rank, hit = None, None
        if query:
            found = self._search((index, query, min(index.count, 1_000), ""))
            for at, each in enumerate(found.hits):
                if place.id == each.place.id or place.id in each.also:
                    rank, hit = at + 1, each
        return Why(
            place=place,
            before=places[number - 1].id if number - 1 in places else "",
            after=places[number + 1].id if number + 1 in places else "",
            entities=tuple(speaks[:neighbours]),
            marks=marks_of(place.text, asked_for(query)) if query else (),
            rank=rank,
            hit=hit,
        )

    def graph(self, name: str, *, limit: int = NEIGHBOURS) -> Procedure[Neighbourhood]:
        """A name that chunks speak of and what is around it, each edge with the chunks that prove it."""
        index = yield from self.refresh()
        graph: Graph = yield from Call(self._graph_of, index)
        around = graph.around(name, limit)
        if around is None:
            most = ", ".join(each.name for each in graph.most(5)) or "none yet"
            raise NotFound(f"no chunk speaks of {name[:100]!r}; most speak of: {most}")
        return around

    def overview(self, *, entities: int = 24) -> Procedure[Overview]:
        """How much there is, what is spoken of most, and what could not be indexed."""
        index = yield from self.refresh()
        graph: Graph = yield from Call(self._graph_of, index)
        return Overview(
            encoder=index.encoder or None,
            version=index.version,
            documents=index.documents,
            chunks=index.count,
            entities=tuple(graph.most(entities)),
            failures=(yield from self._failures(index)),
            untyped=_untyped(index),
        )

    def _failures(self, index: Index) -> Procedure[tuple[Failure, ...]]:
        try:
            letters = yield from self._bucket.existing_queue(EVENTS).dead().peek(DEAD_SHOWN)
        except NotFound:
            return ()
        bodies = [(each, each.body) for each in letters if _is_ours(each.subscription)]
        found = [
            Failure(str(body.get("key", "")), each.reason, str(body.get("at", "")))
            for each, body in bodies
            if isinstance(body, dict)
        ]
        return tuple(each for each in found if not _is_mended(index, each))

    def _graph_of(self, index: Index) -> Graph:
        with self._lock:
            known = self._graph
        if known is not None and known[0] is index:
            return known[1]
        rows = (row for part in index.parts.values() for row in part.evidence.to_pylist())
        made = Graph(said_of(rows))
        with self._lock:
            self._graph = index, made
        return made

    def _encoder(self, name: str) -> Encoder | None:
        """The encoder of the table that is searched; None where it cannot be had here."""
        with self._lock:
            if name not in self._encoders:
                try:
                    self._encoders[name] = self._load(name, threads=self._threads)
                except Unsupported:
                    self._encoders[name] = None  # BM25 alone, which the answer says
            return self._encoders[name]


def _columns(at: Snapshot) -> tuple[str, ...]:
    """The columns to read: those of every table, and those that only some have."""
    names = read_schema(at.head.schema, at.table).names
    return (*COLUMNS, *(name for name in TYPED if name in names))


def _untyped(index: Index) -> int:
    having = [part.evidence for part in index.parts.values() if "typed_by" in part.evidence.schema.names]
    missing = sum(each.column("typed_by").null_count for each in having)
    return missing if missing < sum(each.num_rows for each in having) else 0


def _part(given: tuple[Any, Vocabulary]) -> Part:
    rows, vocabulary = given
    return Part(rows, vocabulary)


def _is_ours(subscription: str) -> bool:
    """Spark reads by the pipeline's name, a watcher by that of its rule."""
    return subscription == PIPELINE or subscription.startswith(f"rule-{PIPELINE}-")


def _is_mended(index: Index, failure: Failure) -> bool:
    """Whether a newer state of the document was indexed since."""
    places = _places(index, failure.key)
    return any(seconds_of(place.at) > seconds_of(failure.at) for place in places.values()) if failure.at else False


def _places(index: Index, doc: str) -> dict[int, Place]:
    import pyarrow.compute as pc

    for part in index.parts.values():
        rows = part.rows.filter(pc.equal(part.rows.column("doc"), doc))
        if rows.num_rows:
            return {row["chunk"]: place_of(row) for row in rows.to_pylist()}
    return {}
