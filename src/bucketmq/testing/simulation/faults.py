"""What can go wrong in a run, and how likely. Drawn once for each seed (swarm testing: most seeds lack some faults)."""

from __future__ import annotations

import random
from collections.abc import Iterable

import msgspec

RATES = (0.0, 0.0, 0.02, 0.10, 0.30)
"""A request fault's probability is one of these."""

PROCESS_RATES = (0.0, 0.0, 0.002, 0.006, 0.015)
"""A process meets its fate at one request in so many; it makes hundreds."""


class Faults(msgspec.Struct, frozen=True):
    """Probabilities for each request, and for each process whether its clock is wrong."""

    lost_request: float = 0.0
    """It never arrives; the client gives up waiting."""
    lost_reply: float = 0.0
    """It lands; the client gives up waiting."""
    late_landing: float = 0.0
    """The client gives up waiting and goes on; then it lands."""
    conflict_409: float = 0.0
    """A write is refused though its condition holds."""
    error_503: float = 0.0
    """Answered with an error before anything is done."""
    slow: float = 0.0
    """The answer takes seconds."""
    crash: float = 0.0
    """The process dies at this request, before it leaves or after it landed."""
    freeze: float = 0.0
    """The process stops for longer than a lease; what is in flight lands, answers wait."""
    skew: float = 0.0
    """The process' clock is seconds off until it learns the store's, and a little off after."""


KINDS: tuple[str, ...] = Faults.__struct_fields__
_PROCESS_KINDS = frozenset({"crash", "freeze"})
NONE = Faults()


def swarm(chance: random.Random) -> Faults:
    """A random mixture."""
    return Faults(**{kind: chance.choice(PROCESS_RATES if kind in _PROCESS_KINDS else RATES) for kind in KINDS})


def only(kinds: Iterable[str]) -> Faults:
    """Just these, and often."""
    return Faults(**{kind: PROCESS_RATES[-1] if kind in _PROCESS_KINDS else RATES[-1] for kind in kinds})
