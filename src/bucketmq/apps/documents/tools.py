"""What an agent can ask of documents, ready for a door that speaks MCP or the like: for each a name, what it does, the
JSON schema of its arguments, and a procedure that answers JSON. None of them changes anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import Meta

from bucketmq.apps.documents.answers import Asks, ask
from bucketmq.apps.documents.library import LIMIT, NEIGHBOURS, QUERY_CHARACTERS_MAX, Library
from bucketmq.errors import Invalid
from bucketmq.procedures.requests import Procedure

LIMIT_MAX = 50

Words = Annotated[str, Meta(min_length=1, max_length=QUERY_CHARACTERS_MAX)]
Prefix = Annotated[str, Meta(description="only documents whose keys begin so")]
Many = Annotated[int, Meta(ge=1, le=LIMIT_MAX, description="how many, at most")]
Arguments = TypeVar("Arguments", bound=msgspec.Struct)


class Search(msgspec.Struct, forbid_unknown_fields=True):
    query: Annotated[Words, Meta(description="what to look for, in words")]
    limit: Many = LIMIT
    prefix: Prefix = ""


class Why(msgspec.Struct, forbid_unknown_fields=True):
    chunk: Annotated[str, Meta(description="a passage as search names it, like docs/a.pdf#3")]
    query: Annotated[str, Meta(description="also say how it ranks for this")] = ""


class Graph(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[Words, Meta(description="a name that documents have")]
    limit: Many = NEIGHBOURS


class Ask(msgspec.Struct, forbid_unknown_fields=True):
    question: Annotated[Words, Meta(description="what to answer from the documents")]
    prefix: Prefix = ""


class Tool(msgspec.Struct, Generic[Arguments], frozen=True):
    """Something that an agent can call."""

    name: str
    about: str
    takes: type[Arguments]
    answer: Callable[[Arguments], Procedure[Any]]

    def schema(self) -> dict[str, Any]:
        """The JSON schema of its arguments, in one piece."""
        (_,), parts = msgspec.json.schema_components([self.takes], ref_template="#/$defs/{name}")
        found: dict[str, Any] = parts[self.takes.__name__]
        return found

    def call(self, arguments: Mapping[str, Any]) -> Procedure[Any]:
        """What it answers, as JSON. `Invalid` says what is wrong with the arguments."""
        try:
            given = msgspec.convert(dict(arguments), self.takes)
        except msgspec.ValidationError as error:
            raise Invalid(f"{self.name}: {error}") from None
        return msgspec.to_builtins((yield from self.answer(given)))


def tools(library: Library, model: Asks | None = None) -> tuple[Tool[Any], ...]:
    """The tools of a library. With a `model`, questions are answered from quotes; without, by the passages alone."""
    return (
        Tool(
            "documents_search",
            "Find the passages of documents that answer a query best, by words and by meaning.",
            Search,
            lambda asked: library.search(asked.query, limit=asked.limit, prefix=asked.prefix),
        ),
        Tool(
            "documents_why",
            "Show a passage: its place in the source, what stands around it, what it is evidence of.",
            Why,
            lambda asked: library.why(asked.chunk, query=asked.query),
        ),
        Tool(
            "documents_graph",
            "Show what documents say around a name, each relation with the passages that prove it.",
            Graph,
            lambda asked: library.graph(asked.name, limit=asked.limit),
        ),
        Tool(
            "documents_ask",
            "Answer a question from quoted passages of documents alone, or give the passages.",
            Ask,
            lambda asked: ask(library, asked.question, model, prefix=asked.prefix),
        ),
    )
