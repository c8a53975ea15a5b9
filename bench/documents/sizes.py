"""How much of everything: `tiny` for the smoke test, `quick` for a first impression, `full` for the real numbers."""

from __future__ import annotations

import msgspec


class Sizes(msgspec.Struct, frozen=True):
    """One set of amounts."""

    name: str
    chunks: int
    """That are searched."""
    files: int
    """That they lie in."""
    queries: int
    documents: int
    """That are indexed, of a few chunks each."""
    pages: int
    """Of a PDF."""


TINY = Sizes("tiny", chunks=400, files=2, queries=3, documents=2, pages=20)
QUICK = Sizes("quick", chunks=20_000, files=4, queries=20, documents=10, pages=300)
FULL = Sizes("full", chunks=100_000, files=20, queries=50, documents=40, pages=2_000)

ALL = {sizes.name: sizes for sizes in (TINY, QUICK, FULL)}
