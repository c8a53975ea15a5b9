"""Typed relations of Claude: each has a chunk that proves it and a quote that stands there, or it is dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("anthropic")

import bucketmq
from apps.documents.shelf import Shelf, sections
from bucketmq.apps.documents.graph import Graph, said_of
from bucketmq.apps.documents.relations import TYPES, Typed, held
from bucketmq.apps.documents.settings import DocumentSettings
from bucketmq.apps.settings import read_settings
from bucketmq.testing.endpoints import Step
from bucketmq.testing.messages_api import Asked, MessagesApi, messages_api, refused

TEXT = "Ada Example was born in Exampleville. She leads the Acme\nCorp since spring, which makes presses."
LEADS = Typed("Ada Example", "leads", "Acme Corp", "She leads the Acme Corp since spring")


def said(*relations: Typed) -> str:
    return msgspec.json.encode({"relations": relations}).decode()


def by_heart(asked: Asked) -> str:
    """A model that knows one sentence: `A founded B.` is that A owns B."""
    found = []
    for sentence in msgspec.json.decode(asked.user)["passage"].split(". "):
        first, verb, second = sentence.removeprefix("In short ").partition(" founded ")
        if verb:
            quote = f"{first.rpartition(chr(10))[2].removeprefix('In short ')} founded {second.partition('.')[0]}"
            found.append(Typed(quote.partition(" founded ")[0], "owns", second.partition(".")[0], quote))
    return said(*found)


Api = Callable[[Callable[[Asked], str | Step]], MessagesApi]


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    import contextlib

    with contextlib.ExitStack() as stack:

        def serve(model: Callable[[Asked], str | Step]) -> MessagesApi:
            there = stack.enter_context(messages_api(model))
            monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-made-up-key-for-tests-0123456789")
            monkeypatch.setenv("ANTHROPIC_BASE_URL", there.url)
            return there

        yield serve


def typed(shelf: Shelf) -> dict[str, list[dict[str, str]] | None]:
    rows = shelf.table.read(columns=["doc", "chunk", "typed"]).to_pylist()
    return {f"{row['doc']}#{row['chunk']}": row["typed"] for row in rows}


def graph_of(shelf: Shelf) -> tuple[Any, Any]:
    made = Graph(said_of(shelf.table.read().to_pylist()))
    return made.nodes, made.edges()


@pytest.mark.parametrize(
    ("relation", "kept"),
    [
        (LEADS, True),
        (Typed("Ada Example", "leads", "Acme Corp", "She leads the Acme Corp since summer"), False),
        (Typed("Ada Example", "leads", "Acme Corp", ""), False),
        (Typed("Ada Example", "leads", "Acme Corp", "leads"), False),
        (Typed("Bo Sample", "leads", "Acme Corp", LEADS.quote), False),
        (Typed("Ada Example", "leads", "Acme", LEADS.quote), True),
        (Typed("Ada Exam", "leads", "Acme Corp", LEADS.quote), False),
        (Typed("Ada Example", "leads", "", LEADS.quote), False),
        (Typed("Ada Example", "leads", "Ada Example", LEADS.quote), False),
        (Typed("Ada Example", "admires", "Acme Corp", LEADS.quote), False),
    ],
)
def test_a_relation_holds_only_if_its_names_and_its_quote_stand_in_the_chunk(relation: Typed, kept: bool) -> None:
    assert bool(held([relation], TEXT)) == kept


def test_a_quote_is_kept_exactly_as_the_chunk_has_it() -> None:
    (relation,) = held([LEADS, LEADS], TEXT)
    assert relation.quote == "She leads the Acme\nCorp since spring" and relation.quote in TEXT
    assert relation.object == "Acme Corp"


def test_relations_of_claude_are_edges_with_their_chunks_and_quotes_and_go_with_them(api: Api) -> None:
    there = api(by_heart)
    shelf = Shelf(relations="claude")
    shelf.put(a_md="Ada Example founded Acme Corp. It rained.", b_md="Nothing of the kind.")
    question = there.asked[0]
    assert msgspec.json.decode(there.asked[0].user)["passage"] and "data" in question.system
    schema = question.params["output_config"]["format"]["schema"]
    assert schema["properties"]["relations"]["items"]["properties"]["relation"]["enum"] == list(TYPES)
    around = shelf.bucket.run(shelf.library.graph("Ada Example"))
    (edge,) = [each for each in around.edges if each.relation == "owns"]
    assert (edge.subject, edge.object, edge.chunks) == ("Ada Example", "Acme Corp", ("docs/a.md#0",))
    assert [(each.chunk, each.quote) for each in edge.quotes] == [("docs/a.md#0", "Ada Example founded Acme Corp")]
    shelf.bucket.delete("docs/a.md")
    shelf.work()
    with pytest.raises(bucketmq.NotFound, match="no chunk speaks of"):
        shelf.bucket.run(shelf.library.graph("Ada Example"))
    shelf.close()


def test_names_that_only_claude_saw_are_nodes(api: Api) -> None:
    api(lambda asked: said(Typed("pump", "part of", "press", "the pump is in the press")))
    shelf = Shelf(relations="claude")
    shelf.put(a_md="Everybody knows that the pump is in the press.")
    (edge,) = shelf.bucket.run(shelf.library.graph("press")).edges
    assert (edge.subject, edge.relation, edge.object) == ("pump", "part of", "press")
    shelf.close()


def test_after_changes_and_deletions_the_graph_is_the_one_made_from_nothing(api: Api) -> None:
    api(by_heart)
    shelf = Shelf(relations="claude")
    shelf.put(a_md="Ada Example founded Acme Corp.", b_md="Bo Sample founded Widget Labs.", c_md="Acme Corp met.")
    shelf.put(a_md=sections("In short Ada Example founded Widget Labs.", "In short Bo Sample founded Acme Corp."))
    shelf.bucket.delete("docs/b.md")
    shelf.put(c_md="Cy Specimen founded Acme Corp.")
    anew = Shelf(relations="claude")
    anew.put(c_md="Cy Specimen founded Acme Corp.")
    anew.put(a_md=sections("In short Ada Example founded Widget Labs.", "In short Bo Sample founded Acme Corp."))
    assert graph_of(shelf) == graph_of(anew)
    assert {edge.subject for edge in graph_of(shelf)[1] if edge.relation == "owns"} == {
        "Ada Example",
        "Bo Sample",
        "Cy Specimen",
    }
    shelf.close()
    anew.close()


def test_a_chunk_that_stays_the_same_is_not_asked_about_again(api: Api, tmp_path: Path) -> None:
    there = api(by_heart)
    shelf = Shelf(bucketmq.connect(str(tmp_path)), relations="claude", url=str(tmp_path))
    shelf.put(a_md=sections("Ada Example founded Acme Corp.", "Bo Sample rests."))
    assert len(there.asked) == 2
    before = typed(shelf)["docs/a.md#0"]
    shelf.put(a_md=sections("Ada Example founded Acme Corp.", "Bo Sample rests.", "Cy Specimen founded Widget Labs."))
    assert len(there.asked) == 3
    assert typed(shelf)["docs/a.md#0"] == before and before
    shelf.close()


def test_while_claude_is_away_or_its_budget_is_spent_documents_are_indexed_without(api: Api) -> None:
    there = api(lambda asked: refused(400))
    shelf = Shelf(relations="claude")
    shelf.put(a_md="Ada Example founded Acme Corp.")
    assert typed(shelf) == {"docs/a.md#0": None} and shelf.search("founded").hits
    assert shelf.bucket.run(shelf.library.overview()).untyped == 0  # nobody was read: it says nothing
    shelf.close()
    there = api(by_heart)
    shelf = Shelf(relations="claude", relations_requests_max=1)
    shelf.put(a_md="Ada Example founded Acme Corp.")
    shelf.put(b_md="Bo Sample founded Widget Labs.")
    assert len(there.asked) == 1
    assert typed(shelf)["docs/b.md#0"] is None
    assert shelf.bucket.run(shelf.library.overview()).untyped == 1
    assert shelf.reasons() == []
    shelf.close()


def test_an_answer_that_is_not_what_was_asked_for_gives_no_relations(api: Api) -> None:
    api(lambda asked: "Certainly!")
    shelf = Shelf(relations="claude")
    shelf.put(a_md="Ada Example founded Acme Corp.")
    assert typed(shelf) == {"docs/a.md#0": None}
    shelf.close()


def test_nobody_is_asked_without_a_key_or_unless_it_is_wanted(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    there = api(by_heart)
    plain = Shelf()
    plain.put(a_md="Ada Example founded Acme Corp.")
    assert "typed" not in plain.table.read().schema.names
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    wanted = Shelf(relations="claude")
    wanted.put(a_md="Ada Example founded Acme Corp.")
    assert there.asked == []
    assert graph_of(wanted) == graph_of(plain)
    assert read_settings(DocumentSettings, options={"url": "memory://"}, environment={}).relations == "text"
    wanted.close()
    plain.close()


def test_a_table_with_typed_relations_goes_on_without(api: Api, tmp_path: Path) -> None:
    api(by_heart)
    shelf = Shelf(bucketmq.connect(str(tmp_path)), relations="claude")
    shelf.put(a_md="Ada Example founded Acme Corp.")
    shelf.close()
    after = Shelf(bucketmq.connect(str(tmp_path)))
    after.put(a_md="Ada Example founded Widget Labs.")
    assert not [edge for edge in graph_of(after)[1] if edge.quotes]
    assert after.search("widget").hits
    after.close()
