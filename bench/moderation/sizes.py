"""How much of everything: `tiny` for the smoke test, `quick` for a first impression, `full` for the real numbers."""

from __future__ import annotations

import msgspec


class Sizes(msgspec.Struct, frozen=True):
    """One set of amounts."""

    name: str
    rounds: int
    classifiers: tuple[str, ...]
    cores: tuple[int, ...]
    """On how many cores everything runs, clients included."""
    warm_up: int
    """Posts that go through everything before it counts."""
    flood: int
    """Posts that are submitted as fast as it goes."""
    steady: int
    """Posts that are submitted at a steady rate, for the latencies."""
    per_second: float
    """That rate."""
    texts: int
    """Texts for the classifier alone."""
    partitions: int | None = None
    """Into how many tasks Spark cuts a batch at least; None leaves it to the source, which cuts no small one."""


TINY = Sizes("tiny", 1, ("none",), (2,), warm_up=10, flood=20, steady=10, per_second=20, texts=40)
QUICK = Sizes("quick", 1, ("none", "embedded"), (1, 2), warm_up=100, flood=600, steady=150, per_second=10, texts=2_000)
FULL = Sizes("full", 3, ("none", "embedded"), (1, 2), warm_up=500, flood=3_000, steady=600, per_second=20, texts=10_000)

ALL = {sizes.name: sizes for sizes in (TINY, QUICK, FULL)}
