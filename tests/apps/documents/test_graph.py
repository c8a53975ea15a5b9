"""The graph is what the evidence says: after any changes it is the graph that would be made from nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bucketmq
from apps.documents.shelf import Shelf, sections
from bucketmq.apps.documents.evidence import Entity, Relation, evidence_of
from bucketmq.apps.documents.graph import Graph, Said, normal, said_of

NAMES = ("Acme Corp", "ACME Corp.", "Widget Labs", "Ada Example", "Bo Sample", "Exampleville", "ada@acme.example")
VERBS = ("acquired", "leads", "met", "and")


def graph_of(shelf: Shelf) -> tuple[Any, Any]:
    rows = shelf.table.read(columns=["doc", "chunk", "entities", "relations"]).to_pylist()
    made = Graph(said_of(rows))
    return made.nodes, made.edges()


documents = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(VERBS), st.sampled_from(NAMES)), min_size=1, max_size=3
).map(lambda said: sections(*(f"In short {a} {verb} {b}." for a, verb, b in said)))
changes = st.lists(st.tuples(st.sampled_from("abc"), st.none() | documents), min_size=1, max_size=6)


@settings(max_examples=10, deadline=None)
@given(changes)
def test_a_graph_after_changes_and_deletions_is_the_one_made_from_nothing(steps: list[tuple[str, str | None]]) -> None:
    shelf, left = Shelf(), {}
    shelf.put(z_md="Acme Corp met Ada Example.")
    for name, text in steps:
        if text is not None:
            left[name] = text
            shelf.bucket.put(f"docs/{name}.md", text)
        elif left.pop(name, None) is not None:
            shelf.bucket.delete(f"docs/{name}.md")
        shelf.work()
    anew = Shelf()
    anew.put(**{f"{name}_md": text for name, text in sorted(left.items(), reverse=True)})
    anew.put(z_md="Acme Corp met Ada Example.")
    assert graph_of(shelf) == graph_of(anew)
    shelf.close()
    anew.close()


def test_every_edge_has_the_chunks_that_prove_it_and_goes_with_them(shelf: Shelf) -> None:
    shelf.put(a_md="Acme Corp acquired Widget Labs.", b_md="Acme Corp's head is Ada Example. She met Bo Sample.")
    around = shelf.bucket.run(shelf.library.graph("acme"))
    assert around.node.name == "Acme Corp" and around.node.chunks == ("docs/a.md#0", "docs/b.md#0")
    told = {(each.subject, each.relation, each.object): each.chunks for each in around.edges}
    assert told["Acme Corp", "acquired", "Widget Labs"] == ("docs/a.md#0",)
    shelf.bucket.delete("docs/a.md")
    shelf.work()
    around = shelf.bucket.run(shelf.library.graph("Acme Corp"))
    assert "Widget Labs" not in [each.name for each in around.neighbours]
    with pytest.raises(bucketmq.NotFound, match="no chunk speaks of 'Widget Labs'"):
        shelf.bucket.run(shelf.library.graph("Widget Labs"))


def test_ways_to_write_a_name_are_one_node_with_aliases() -> None:
    said = [Said("a#0", (("Acme Corp", "name"),)), Said("b#0", (("ACME Corp.", "name"), ("Acme Inc", "name")))]
    (node,) = Graph(said).nodes.values()
    assert (node.name, node.aliases) == ("ACME Corp.", ("ACME Corp.", "Acme Corp", "Acme Inc"))
    assert normal("Acme, Inc.") == normal("acme") == "acme"


def test_a_single_word_is_a_node_only_if_it_recurs() -> None:
    once = Said("a#0", (("Berlin", "word"),))
    assert not Graph([once]).nodes
    assert "berlin" in Graph([once, Said("a#1", (("Berlin", "word"),))]).nodes


def test_evidence_is_names_patterns_and_what_a_verb_says() -> None:
    text = (
        "The Acme Corp acquired Widget Labs in spring. Write to ada@acme.example or see https://acme.example/a.\n"
        "PressOS 4.2 runs on the machine, ticket ACME-1207, part WL_4471. However it rained. "
        "Ada\nExample leads Acme Corp."
    )
    entities, relations = evidence_of(text)
    assert set(entities) == {
        Entity("Acme Corp", "name"),
        Entity("Widget Labs", "name"),
        Entity("ada@acme.example", "email"),
        Entity("https://acme.example/a", "url"),
        Entity("PressOS 4.2", "version"),
        Entity("ACME-1207", "identifier"),
        Entity("WL_4471", "identifier"),
        Entity("Ada Example", "name"),
    }
    assert relations == [
        Relation("Acme Corp", "acquired", "Widget Labs"),
        Relation("Ada Example", "leads", "Acme Corp"),
    ]
