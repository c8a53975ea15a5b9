"""Nothing outside the facades reaches into them: what other code needs of a bucket or a queue is public."""

from __future__ import annotations

import ast
from pathlib import Path

PROJECT = Path(__file__).parents[2]
PLACES = ("src", "tests", "bench", "training", "examples")
PRIVATE = {"_engine", "_api", "_sub", "_bus", "_hands"}


def reaches(source: str) -> list[str]:
    """Where the private parts of an object are used by somebody else than itself."""
    return [
        ast.unparse(node)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and node.attr in PRIVATE and ast.unparse(node.value) != "self"
    ]


def test_a_reach_is_seen() -> None:
    assert reaches("queue._engine.run(x)") == ["queue._engine"]
    assert reaches("self.bucket._api.open()") == ["self.bucket._api"]
    assert reaches("connect(url).queue('a')._api") == ["connect(url).queue('a')._api"]
    assert reaches("x = self._engine.run(self._api)") == []


def test_nothing_reaches_into_a_facade() -> None:
    found = {
        str(path.relative_to(PROJECT)): lines
        for place in PLACES
        for path in (PROJECT / place).rglob("*.py")
        if (lines := reaches(path.read_text()))
    }
    assert found == {}
