"""Rows and tables that several tests use."""

from __future__ import annotations

import hashlib
from typing import Any

from bucketmq.procedures.requests import Procedure
from procedures.world import World

SHAPE = {"key": "id", "group": "doc", "newer_by": "rev"}


def chunks(doc: str, count: int = 2, rev: int = 1, text: str = "") -> list[dict[str, Any]]:
    """The rows of a document, with something in them that cannot be compressed."""
    texts = [text or f"{doc} {n} of {rev}" for n in range(count)]
    return [
        {"id": n, "doc": doc, "rev": rev, "text": each, "vector": hashlib.sha512(each.encode()).digest()}
        for n, each in enumerate(texts)
    ]


def content(table: Any, **wanted: Any) -> dict[str, list[str]]:
    """The texts of each document."""
    found: dict[str, list[str]] = {}
    for row in table.read(**wanted).to_pylist():
        found.setdefault(row["doc"], []).append(row["text"])
    return {doc: sorted(texts) for doc, texts in sorted(found.items())}


def texts(doc: str, count: int = 2, rev: int = 1) -> list[str]:
    return [f"{doc} {n} of {rev}" for n in range(count)]


def interrupted(procedure: Procedure[Any], at: Any, meanwhile: Any) -> Procedure[Any]:
    """A procedure whose process is frozen before the first request that `at` picks, while `meanwhile` happens."""
    request, waits = next(procedure), True
    while True:
        if waits and at(request):
            waits = False
            meanwhile()
        try:
            try:
                reply = yield request
            except BaseException as error:
                request = procedure.throw(error)
            else:
                request = procedure.send(reply)
        except StopIteration as end:
            return end.value


def files(world: World, name: str = "t") -> list[str]:
    prefix = f"app/tables/{name}/"
    return [key.removeprefix(prefix) for key in world.everything() if key.startswith(f"{prefix}data/")]
