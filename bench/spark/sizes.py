"""How much of everything: `tiny` for the smoke test, `quick` for a first impression, `full` for the real numbers."""

from __future__ import annotations

import msgspec


class Sizes(msgspec.Struct, frozen=True):
    """One set of amounts."""

    name: str
    rounds: int
    warm_up: bool
    """Whether each thing runs once before it counts."""
    rows: tuple[int, ...]
    """How many rows are read, and written."""
    batches: int
    """Micro-batches of one row each."""
    segments: int
    """Tiny segments; a thousandth of them hold the same rows when they are large."""
    per_segment: int
    """Rows of a tiny one."""


TINY = Sizes(name="tiny", rounds=1, warm_up=False, rows=(2_000,), batches=1, segments=1_000, per_segment=2)
QUICK = Sizes(name="quick", rounds=2, warm_up=True, rows=(300_000,), batches=10, segments=10_000, per_segment=10)
FULL = Sizes(
    name="full", rounds=3, warm_up=True, rows=(1_000_000, 5_000_000), batches=20, segments=10_000, per_segment=10
)

ALL = {sizes.name: sizes for sizes in (TINY, QUICK, FULL)}
