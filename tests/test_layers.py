"""Arrows point down only: which part of the source may import which, and no module imports itself by a detour."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import bucketmq

SOURCE = Path(bucketmq.__file__).parent

PURE = {"errors", "outcomes", "queue", "log", "events"}
BELOW_FACADES = PURE | {"engines", "procedures", "bucket.urls"}
FACADES = BELOW_FACADES | {
    "",
    "aio",
    "aio_events",
    "bucket",
    "changes",
    "client",
    "client_events",
    "deliveries",
    "notify",
    "rulebook",
}

MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "outcomes": set(),
    "queue": {"errors", "outcomes", "queue"},
    "log": {"errors", "outcomes", "queue", "log"},
    "events": {"errors", "queue.settings", "log.layout", "events"},
    "bucket": {"errors", "bucket"},
    "procedures": PURE | {"procedures", "bucket.port"},
    "engines": {"errors", "procedures", "engines", "bucket.port"},
    "notify": {"errors", "events", "notify", "procedures.requests"},
    "deliveries": BELOW_FACADES,
    "changes": BELOW_FACADES,
    "rulebook": BELOW_FACADES,
    "client_events": BELOW_FACADES | {"bucket.port", "changes", "rulebook"},
    "aio_events": BELOW_FACADES | {"bucket.port", "changes", "rulebook"},
    "client": BELOW_FACADES | {"deliveries", "client_events", "notify.lazy"},
    "aio": BELOW_FACADES | {"deliveries", "aio_events", "notify.lazy"},
    "server": FACADES | {"server"},
    "spark": BELOW_FACADES | {"bucket.port", "bucket.settings", "client", "deliveries", "spark"},
    "pipelines": FACADES | {"bucket.port", "server", "spark", "pipelines"},
    "pricing": {"errors", "engines"},
    # bucketmq/__init__.py: the public names
    "": BELOW_FACADES | {"deliveries", "changes", "client", "aio", "spark.history"},
    "testing": FACADES | {"pricing", "server", "spark", "pipelines", "testing"},
    "cli": FACADES | {"pricing", "server", "spark", "pipelines", "testing", "cli"},
}
"""Part -> what it may import. A part is a package or a module right below `bucketmq`; "" is the package itself."""


def modules() -> dict[str, Path]:
    """Name below `bucketmq` -> file."""
    found = {}
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports(name: str) -> set[str]:
    """The modules of ours that a module imports, wherever in the file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        match node:
            case ast.Import(names=names):
                found |= {alias.name for alias in names}
            case ast.ImportFrom(module=str(module), level=0, names=names):
                # `from package import thing`: the thing may be a module of its own.
                inside = {f"{module}.{alias.name}" for alias in names}
                modules_inside = {each for each in inside if _below(each) in MODULES}
                found |= modules_inside or {module}
            case ast.ImportFrom(level=level) if level:
                raise AssertionError(f"{name} imports relatively; write the whole name")
    return {_below(each) for each in found if each.split(".")[0] == "bucketmq"}


def _below(name: str) -> str:
    return name.removeprefix("bucketmq").removeprefix(".")


def part_of(name: str) -> str:
    return name.split(".", maxsplit=1)[0]


def test_every_part_of_the_source_has_its_place() -> None:
    assert {part_of(name) for name in MODULES} == set(MAY_IMPORT)


@pytest.mark.parametrize("name", sorted(MODULES))
def test_arrows_point_down_only(name: str) -> None:
    allowed = MAY_IMPORT[part_of(name)]
    for other in imports(name):
        assert other in MODULES, f"{name} imports {other}, which is not there"
        assert part_of(other) in allowed or other in allowed, f"{name or 'bucketmq'} must not import {other}"


def test_no_module_imports_itself_by_a_detour() -> None:
    graph = {name: imports(name) - {name} for name in MODULES}
    done: set[str] = set()

    def visit(name: str, way: tuple[str, ...]) -> None:
        assert name not in way, " -> ".join((*way[way.index(name) :], name))
        if name not in done:
            for other in graph[name]:
                visit(other, (*way, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_pure_parts_use_no_clock_chance_or_thread() -> None:
    for name in MODULES:
        if part_of(name) in PURE:
            tree = ast.parse(MODULES[name].read_text())
            used = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
            assert not used & {"time", "random", "threading", "asyncio", "os", "socket"}, name
