"""Odd sequences: which events belong to one key (a request, a session, a block), learnt from normal sequences.

Concurrent work shuffles the order of events, so a sequence is judged by how often each event occurs. Events are of two
sorts. One that was seen in five or more different numbers is **loose**: it occurs as often as it likes, up to twice the
most that was seen. All others are **rigid**, and their numbers together must have been seen before. An event that was
never seen is odd by itself.

Pure, and a sum of what it saw: `merged` of two models is the model of all their sequences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

LOOSE_NUMBERS = 5
"""In so many different numbers an event was seen, none included, and it is loose."""
LOOSE_TIMES_MAX = 2
VECTORS_MAX = 4_096
"""More kinds of sequences than this are not told apart: then the key does not say what belongs together."""


class Sequences(msgspec.Struct, frozen=True):
    """What was seen: each combination of events and how many sequences had it."""

    seen: int = 0
    vectors: dict[str, int] = {}
    """`event:number event:number ...`, in order."""

    def numbers(self) -> dict[str, set[int]]:
        """In which numbers each event was seen."""
        found: dict[str, set[int]] = {}
        counted = [_counts(vector) for vector in self.vectors]
        for event in {event for counts in counted for event in counts}:
            found[event] = {counts.get(event, 0) for counts in counted}
        return found


class Judge:
    """What is odd, by a model as it is now."""

    def __init__(self, model: Sequences, *, loose_numbers: int = LOOSE_NUMBERS) -> None:
        numbers = model.numbers()
        self._most = {event: max(seen) for event, seen in numbers.items()}
        self._loose = {event for event, seen in numbers.items() if len(seen) >= loose_numbers}
        self._rigid = {self._rigid_part(_counts(vector)) for vector in model.vectors}

    def oddity(self, events: Sequence[str]) -> str:
        """Why a sequence is odd; empty if it is not."""
        counts = Counter(events)
        unknown = sorted(event for event in counts if event not in self._most)
        if unknown:
            return f"an event that never belonged to such a sequence: {unknown[0]}"
        many = sorted(event for event in counts if counts[event] > LOOSE_TIMES_MAX * self._most[event])
        if many:
            return f"{counts[many[0]]} times {many[0]}, at most {self._most[many[0]]} before"
        if self._rigid_part(counts) not in self._rigid:
            return "events that never came in these numbers together"
        return ""

    def _rigid_part(self, counts: dict[str, int]) -> tuple[tuple[str, int], ...]:
        return tuple(sorted((event, number) for event, number in counts.items() if event not in self._loose))


def learnt(model: Sequences, sequences: Iterable[Sequence[str]]) -> Sequences:
    """The model with more sequences in it."""
    vectors = dict(model.vectors)
    seen = model.seen
    for events in sequences:
        vector = vector_of(events)
        seen += 1
        if vector in vectors or len(vectors) < VECTORS_MAX:
            vectors[vector] = vectors.get(vector, 0) + 1
    return Sequences(seen, vectors)


def merged(one: Sequences, other: Sequences) -> Sequences:
    vectors = Counter(one.vectors)
    vectors.update(other.vectors)
    return Sequences(one.seen + other.seen, dict(vectors))


def vector_of(events: Sequence[str]) -> str:
    return " ".join(f"{event}:{number}" for event, number in sorted(Counter(events).items()))


def _counts(vector: str) -> dict[str, int]:
    pairs = (each.rpartition(":") for each in vector.split())
    return {event: int(number) for event, _, number in pairs}
