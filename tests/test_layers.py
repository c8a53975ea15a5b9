"""Arrows point down only: which part of the source may import which, and no module imports itself by a detour."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

import bucketmq

SOURCE = Path(bucketmq.__file__).parent

PURE = {"errors", "outcomes", "typed", "values", "queue", "log", "events", "tables"}
SHARED = PURE | {"bucket.port", "procedures"}
"""What every room of `procedures/` may use: the modules right below it included."""

ROOMS = ("segments", "heads", "sending", "bulk", "upkeep", "claiming", "working", "objects", "tables", "rules")
"""The rooms of `procedures/`, from the lowest to the highest. A room may use those before it."""

PROCEDURES = {"procedures"} | {f"procedures.{room}" for room in ROOMS}
HANDED = {"binding", "changes", "deliveries", "rulebook"}
"""What users are handed, or hand over, and how verbs are bound to an engine."""
BELOW_FACADES = PURE | PROCEDURES | HANDED | {"api", "engines", "bucket.urls"}
FACADES = BELOW_FACADES | {
    "",
    "aio",
    "bucket",
    "client",
    "facade",
    "notify",
}
PIPELINE = PURE | PROCEDURES | {"bucket.port", "bucket.settings", "bucket.urls", "client", "pipeline"}
BELOW_SPARK = BELOW_FACADES | PIPELINE | {"client", "spark"}
"""What every room of `spark/` may use: the modules right below it included."""

SPARK_ROOMS = ("setup", "read", "write", "source", "running", "history", "upkeep")
"""The rooms of `spark/`, from the lowest to the highest. A room may use those before it."""

SPARK = {"spark", "spark.*"} | {f"spark.{room}" for room in SPARK_ROOMS}
APPS = FACADES | PIPELINE | SPARK | {"metrics", "server", "dashboard", "apps", "chores", "crew", "models"}

VERBS = {f"cli.{name}" for name in ("agent", "exits", "group", "options", "output", "screen", "serve", "tokens")}
"""What verbs of applications may use of the command line."""

MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "outcomes": set(),
    "typed": {"errors"},
    "values": set(),
    "queue": {"errors", "outcomes", "values", "queue"},
    "log": {"errors", "outcomes", "queue", "log"},
    "tables": {"errors", "queue.settings", "tables"},
    "events": {"errors", "values", "queue.settings", "log.layout", "events"},
    "bucket": {"errors", "values", "bucket", "log.layout"},
    "procedures": SHARED,
    **{
        f"procedures.{room}": SHARED | {f"procedures.{lower}" for lower in ROOMS[: place + 1]}
        for place, room in enumerate(ROOMS)
    },
    "api": PURE | PROCEDURES | HANDED | {"api", "bucket.port"},
    "engines": {"errors", "values", "procedures", "procedures.working", "engines", "bucket.port"},
    "notify": {"errors", "events", "notify", "procedures.requests"},
    "binding": {"procedures.requests"},
    "deliveries": PURE | PROCEDURES,
    "changes": PURE | PROCEDURES | {"binding"},
    "rulebook": PURE,
    "facade": BELOW_FACADES | {"bucket.port"},
    "client": BELOW_FACADES | {"facade", "notify.lazy"},
    "aio": BELOW_FACADES | {"facade", "notify.lazy"},
    "metrics": FACADES | {"metrics"},
    "server": FACADES | {"metrics", "server"},
    "dashboard": FACADES | {"metrics", "server", "dashboard", "pricing"},
    "pipeline": PIPELINE,
    "spark.*": SPARK,  # bucketmq/spark/__init__.py: the public names
    "spark": BELOW_SPARK,
    **{
        f"spark.{room}": BELOW_SPARK | {f"spark.{lower}" for lower in SPARK_ROOMS[: place + 1]}
        for place, room in enumerate(SPARK_ROOMS)
    },
    "models": {"errors", "notify", "procedures.requests", "models"},
    "chores": APPS - {"apps", "dashboard"},
    "apps": APPS | VERBS,
    "crew": set(),
    "pricing": {"errors", "engines"},
    # bucketmq/__init__.py: the public names
    "": BELOW_FACADES | {"client", "aio", "spark.history.tables"},
    "testing": APPS | {"pricing", "testing"},
    "cli": APPS | {"pricing", "testing", "cli"},
}
"""Part -> what it may import. A part is a package or a module right below `bucketmq`, or a room of `procedures/` or
`spark/`; "" is the package itself."""


def modules() -> dict[str, Path]:
    """Name below `bucketmq` -> file."""
    found = {}
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


@cache
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
    if f"{name}.*" in MAY_IMPORT:
        return f"{name}.*"
    top, _, rest = name.partition(".")
    room = f"{top}.{rest.partition('.')[0]}"
    return room if room in MAY_IMPORT else top


def test_every_part_of_the_source_has_its_place() -> None:
    assert {part_of(name) for name in MODULES} == set(MAY_IMPORT)


@pytest.mark.parametrize("name", sorted(MODULES))
def test_arrows_point_down_only(name: str) -> None:
    allowed = MAY_IMPORT[part_of(name)]
    for other in imports(name):
        assert other in MODULES, f"{name} imports {other}, which is not there"
        by_name = other in allowed and f"{other}.*" not in MAY_IMPORT
        assert part_of(other) in allowed or by_name, f"{name or 'bucketmq'} must not import {other}"


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


IMPURE = {"time", "random", "secrets", "threading", "asyncio", "os", "socket", "uuid"}


def impure(tree: ast.AST) -> set[str]:
    """The modules with a clock, chance, threads or I/O in them that are imported, in whichever way."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found |= {alias.name.partition(".")[0] for alias in names}
            case ast.ImportFrom(module=str(module), level=0):
                found.add(module.partition(".")[0])
    return found & IMPURE


@pytest.mark.parametrize(
    "line", ["import time", "from time import monotonic", "import os.path", "from random import *"]
)
def test_impurity_is_seen_however_it_is_imported(line: str) -> None:
    assert impure(ast.parse(line))


def test_pure_parts_use_no_clock_chance_or_thread() -> None:
    for name in MODULES:
        if part_of(name) in PURE:
            assert not impure(ast.parse(MODULES[name].read_text())), name
