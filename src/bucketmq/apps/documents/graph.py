"""The graph of what documents speak of: a pure function of the evidence that chunks hold, and of nothing else.

So there is nothing to keep in step: what a document says is in the graph while its chunks are in the table. A graph
after any number of changes and deletions is the graph that would be made from nothing.

Names that are the same but for case, endings of possession and company forms are one node, and its aliases are how it
was written. A single capitalised word is a node only if it recurs, in two chunks or more: sentences and headings are
full of capitals.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from bucketmq.apps.documents.names import chunk_id

RECURS = 2
_FORMS = re.compile(r"[\s,]+(?:inc|corp|corporation|ltd|limited|llc|gmbh|ag|plc|co)\.?$")


class Said(msgspec.Struct, frozen=True):
    """The evidence of one chunk."""

    chunk: str
    entities: tuple[tuple[str, str], ...]
    """Names and their kinds."""
    relations: tuple[tuple[str, str, str], ...] = ()
    quotes: tuple[tuple[str, str, str, str], ...] = ()
    """Typed relations, each with the words that state it."""


class Quoted(msgspec.Struct, frozen=True, order=True):
    """Words of a chunk that state a relation."""

    chunk: str
    quote: str


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """Something that chunks speak of."""

    name: str
    """As it is written most often."""
    kind: str
    aliases: tuple[str, ...]
    chunks: tuple[str, ...]
    """The chunks that prove it."""


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """Two nodes that stand in one chunk, or of which one does something to the other."""

    subject: str
    relation: str
    """What the text says, or `with` where they only stand together."""
    object: str
    chunks: tuple[str, ...]
    quotes: tuple[Quoted, ...] = ()
    """The words that state it, where Claude found them."""


class Neighbourhood(msgspec.Struct, frozen=True):
    """A node and what is around it, the strongest first."""

    node: Node
    neighbours: tuple[Node, ...]
    edges: tuple[Edge, ...]


TOGETHER = "with"


def normal(name: str) -> str:
    """The form by which two ways to write a name are known to be one."""
    form = unicodedata.normalize("NFKC", name).casefold()
    form = re.sub(r"['’]s$", "", form.strip(" .,;:()[]\"'"))
    return re.sub(r"\s+", " ", _FORMS.sub("", form) or form)


def said_of(rows: Iterable[Mapping[str, Any]]) -> Iterator[Said]:
    """The evidence in rows of the table."""
    for row in rows:
        entities = tuple((each["name"], each["kind"]) for each in row["entities"] or ())
        relations = tuple((each["subject"], each["relation"], each["object"]) for each in row["relations"] or ())
        typed = tuple(
            (each["subject"], each["relation"], each["object"], each["quote"]) for each in row.get("typed") or ()
        )
        if entities or relations or typed:
            yield Said(chunk_id(row["doc"], row["chunk"]), entities, relations, typed)


class Graph:
    """All nodes, by normal form, and what is needed to walk from one to its neighbours."""

    def __init__(self, evidence: Iterable[Said]) -> None:
        spelled: dict[str, Counter[str]] = defaultdict(Counter)
        kinds: dict[str, Counter[str]] = defaultdict(Counter)
        chunks: dict[str, set[str]] = defaultdict(set)
        names_of: dict[str, set[str]] = defaultdict(set)
        self._said: dict[tuple[str, str, str], set[str]] = defaultdict(set)
        self._quotes: dict[tuple[str, str, str], set[Quoted]] = defaultdict(set)
        for each in evidence:
            for name, kind in (*each.entities, *_named(each)):
                form = normal(name)
                spelled[form][name] += 1
                kinds[form][kind] += 1
                chunks[form].add(each.chunk)
                names_of[each.chunk].add(form)
            for subject, relation, object_ in each.relations:
                self._said[normal(subject), relation.casefold(), normal(object_)].add(each.chunk)
            for subject, relation, object_, quote in each.quotes:
                triple = normal(subject), relation, normal(object_)
                self._said[triple].add(each.chunk)
                self._quotes[triple].add(Quoted(each.chunk, quote))
        self.nodes = {
            form: Node(
                name=_most(spelled[form]),
                kind=_most(kinds[form]),
                aliases=tuple(sorted(spelled[form])),
                chunks=tuple(sorted(its)),
            )
            for form, its in sorted(chunks.items())
            if len(its) >= RECURS or set(kinds[form]) != {"word"}
        }
        self._names_of = {chunk: names & self.nodes.keys() for chunk, names in names_of.items()}

    def find(self, name: str) -> Node | None:
        """The node of this name; otherwise the one with the most evidence whose name has it as a word."""
        form = normal(name)
        if form in self.nodes:
            return self.nodes[form]
        within = [each for other, each in self.nodes.items() if form and re.search(rf"\b{re.escape(form)}\b", other)]
        return max(within, key=lambda each: (len(each.chunks), each.name), default=None)

    def around(self, name: str, limit: int) -> Neighbourhood | None:
        """A node with its strongest neighbours and the edges among all of them."""
        node = self.find(name)
        if node is None:
            return None
        own = normal(node.name)
        together = Counter(other for chunk in node.chunks for other in self._names_of[chunk] if other != own)
        told = Counter(dict.fromkeys(together, 0))
        for (subject, _, object_), chunks in self._said.items():
            other = object_ if subject == own else subject if object_ == own else None
            if other is not None and other in told:
                told[other] += len(chunks)
        ranked = sorted(together, key=lambda other: (-told[other], -together[other], other))[:limit]
        neighbours = tuple(self.nodes[other] for other in ranked)
        return Neighbourhood(node, neighbours, tuple(self._among([own, *ranked])))

    def edges(self) -> list[Edge]:
        """All edges, in order. For exports and for small graphs: there are as many as pairs in chunks."""
        return list(self._among(list(self.nodes)))

    def most(self, limit: int) -> list[Node]:
        """The nodes with the most evidence."""
        return sorted(self.nodes.values(), key=lambda each: (-len(each.chunks), each.name))[:limit]

    def _among(self, forms: list[str]) -> Iterator[Edge]:
        chosen = set(forms)
        told: set[frozenset[str]] = set()
        for (subject, relation, object_), chunks in sorted(self._said.items()):
            if subject in chosen and object_ in chosen and subject != object_:
                told.add(frozenset((subject, object_)))
                yield self._edge(subject, relation, object_, chunks)
        together: dict[tuple[str, str], set[str]] = defaultdict(set)
        for chunk in sorted({chunk for form in forms for chunk in self.nodes[form].chunks}):
            names = sorted(self._names_of[chunk] & chosen)
            for place, first in enumerate(names):
                for second in names[place + 1 :]:
                    together[first, second].add(chunk)
        for (first, second), chunks in sorted(together.items()):
            if frozenset((first, second)) not in told:
                yield self._edge(first, TOGETHER, second, chunks)

    def _edge(self, subject: str, relation: str, object_: str, chunks: set[str]) -> Edge:
        return Edge(
            subject=self.nodes[subject].name,
            relation=relation,
            object=self.nodes[object_].name,
            chunks=tuple(sorted(chunks)),
            quotes=tuple(sorted(self._quotes.get((subject, relation, object_), ()))),
        )


def _named(said: Said) -> Iterator[tuple[str, str]]:
    """Names of typed relations that the chunk's entities lack."""
    known = {normal(name) for name, kind in said.entities if kind != "word"}
    names = dict.fromkeys(name for subject, _, object_, _ in said.quotes for name in (subject, object_))
    return ((name, "name") for name in names if normal(name) not in known)


def _most(counted: Counter[str]) -> str:
    """What was counted most often; of several the first by the alphabet, so that it is the same whatever came first."""
    return min(counted, key=lambda each: (-counted[each], each))
