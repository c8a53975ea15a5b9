"""Nothing outside `apps/` knows an application by its name: neither imports, nor names, nor texts of the code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import bucketmq
from bucketmq.apps.registry import BUILT_IN

SOURCE = Path(bucketmq.__file__).parent

MAY_KNOW = {
    "cli/app.py": "examples in the help of `apps` name an application that everybody has",
    "testing/simulation/bus": "the simulator plays scenes after applications, with code of its own",
}

THINGS = {"artifacts", "documents", "images", "logs", "research"}
NAMES = {*BUILT_IN, *THINGS}


def words(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every name, import and text that is not a docstring, with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                continue
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=module, names=names):
                yield from ((node.lineno, f"{module}.{alias.name}") for alias in names)
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield node.lineno, name
        if not isinstance(node, ast.Expr):
            yield from (
                (each.lineno, each.value)
                for each in ast.iter_child_nodes(node)
                if isinstance(each, ast.Constant) and isinstance(each.value, str)
            )


def knows(path: Path) -> list[str]:
    found = words(ast.parse(path.read_text()))
    return [f"{path}:{line} {text!r}" for line, text in found for name in NAMES if names(text.lower(), name)]


def names(text: str, name: str) -> bool:
    """Whether a text speaks of the application. Some have the name of a thing, which other code may speak of."""
    if name not in THINGS:
        return name in text
    return any(f"{before}{name}" in text for before in ("apps.", "apps/", "bucketmq ", "apps run ", "apps demo "))


def outside() -> list[Path]:
    found = [path for path in SOURCE.rglob("*.py") if "apps" not in path.relative_to(SOURCE).parts]
    return [path for path in found if not any(str(path.relative_to(SOURCE)).startswith(each) for each in MAY_KNOW)]


def test_nothing_outside_knows_an_application_by_its_name() -> None:
    assert [each for path in outside() for each in knows(path)] == []


@pytest.mark.parametrize(
    "code",
    [
        "from bucketmq.apps.moderation import posts",
        "import bucketmq.apps.moderation.posts",
        "MODERATION = 1",
        "x = ('moderation', 2)",
        "def moderation_demo(): ...",
        "f(name='moderation')",
        "from bucketmq.apps.images import app",
        "run('bucketmq documents search')",
    ],
)
def test_a_name_is_seen_however_it_is_written(tmp_path: Path, code: str) -> None:
    (tmp_path / "module.py").write_text(code)
    assert knows(tmp_path / "module.py")
    (tmp_path / "module.py").write_text('"""Of moderation, in a docstring."""\n')
    assert not knows(tmp_path / "module.py")
