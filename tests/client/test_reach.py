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


def private_of_others(source: str) -> list[str]:
    """Uses of a private attribute that this module neither defines nor sets itself."""
    tree = ast.parse(source)
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    used = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__")
    ]
    own |= {"_replace"}  # of a named tuple, where it is public
    own |= {node.attr for node in used if isinstance(node.ctx, ast.Store)}
    return [ast.unparse(node) for node in used if node.attr not in own and ast.unparse(node.value) not in OPEN]


OPEN = {"self", "super()", "os", "SparkContext", "module.SparkContext"}
"""Oneself; `os._exit`; and PySpark, which tells in no other way whether there is a session, and where its JVM is."""


def test_a_reach_is_seen() -> None:
    assert reaches("queue._engine.run(x)") == ["queue._engine"]
    assert reaches("self.bucket._api.open()") == ["self.bucket._api"]
    assert reaches("connect(url).queue('a')._api") == ["connect(url).queue('a')._api"]
    assert reaches("x = self._engine.run(self._api)") == []


def test_a_private_attribute_of_another_module_is_seen() -> None:
    assert private_of_others("keeper._lots.clear()") == ["keeper._lots"]
    assert private_of_others("self._lots = []\nother._lots") == []


def test_no_module_uses_what_is_private_to_another() -> None:
    source = PROJECT / "src"
    planted = source / "bucketmq/testing/simulation"  # which breaks things from the inside, to see that it is noticed
    found = {
        str(path.relative_to(source)): lines
        for path in source.rglob("*.py")
        if not path.is_relative_to(planted) and (lines := private_of_others(path.read_text()))
    }
    assert found == {}


def test_nothing_reaches_into_a_facade() -> None:
    found = {
        str(path.relative_to(PROJECT)): lines
        for place in PLACES
        for path in (PROJECT / place).rglob("*.py")
        if (lines := reaches(path.read_text()))
    }
    assert found == {}
