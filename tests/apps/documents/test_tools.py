"""What agents call: a schema that says what is taken, an answer that is JSON, and a refusal that says what is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

import bucketmq
from apps.documents.shelf import Shelf
from bucketmq.apps.documents.tools import tools

CALLS: dict[str, dict[str, Any]] = {
    "documents_search": {"query": "who leads"},
    "documents_why": {"chunk": "docs/a.md#0", "query": "leads"},
    "documents_graph": {"name": "Acme Corp"},
    "documents_ask": {"question": "who leads Acme Corp?"},
}


def test_every_tool_takes_what_its_schema_says_and_answers_json(shelf: Shelf) -> None:
    shelf.put(a_md="Ada Example leads Acme Corp.")
    found = {each.name: each for each in tools(shelf.library)}
    assert found.keys() == CALLS.keys()
    for name, arguments in CALLS.items():
        schema = found[name].schema()
        assert schema["type"] == "object" and set(schema["required"]) <= arguments.keys() <= set(schema["properties"])
        assert "docs/a.md#0" in json.dumps(shelf.bucket.run(found[name].call(arguments)))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [({}, "query"), ({"query": 7}, "str"), ({"query": "x", "limit": 0}, ">= 1"), ({"query": "x", "url": "y"}, "url")],
)
def test_arguments_that_do_not_fit_are_refused(shelf: Shelf, arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(bucketmq.Invalid, match=f"documents_search: .*{why}"):
        shelf.bucket.run(tools(shelf.library)[0].call(arguments))
