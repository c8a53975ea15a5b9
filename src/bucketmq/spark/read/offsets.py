"""How far a query has read: an offset for each shard, as Spark writes it into the checkpoint. Pure.

An offset may lie inside a segment, because read limits are exact. Nothing in the bucket leads from such an offset to
the key of its segment but a listing, so a position names the base as well, where it is not the offset itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from bucketmq.errors import Invalid


class Position(msgspec.Struct, frozen=True):
    """A place in every shard of a queue. Shards that are not named are at their beginning."""

    queue: str
    shards: dict[int, int]
    bases: dict[int, int] = {}
    """For shards whose offset lies inside a segment: the base of that segment."""
    reader: str | None = None
    """Under which name the queue is told how far a query has come that has no name of its own."""

    def offset(self, shard: int) -> int:
        return self.shards.get(shard, 0)

    def base(self, shard: int) -> int:
        """The base of the segment that holds the offset."""
        return self.bases.get(shard, self.offset(shard))

    def to_json(self) -> dict[str, Any]:
        """Equal positions give equal texts: Spark compares them so."""
        found: dict[str, Any] = {"queue": self.queue, "shards": _texts(self.shards)}
        if self.bases:
            found["bases"] = _texts(self.bases)
        if self.reader is not None:
            found["reader"] = self.reader
        return found


def from_json(found: Any, queue: str) -> Position:
    """The position that Spark kept; `Invalid` if it is not one of this queue."""
    try:
        # Keys are numbers as text, which is what JSON has; `strict=False` reads them so.
        written = msgspec.convert(found, Position, strict=False)
    except msgspec.ValidationError as error:
        raise Invalid(f"the checkpoint's offset is not one of a queue ({error}); use another checkpoint") from None
    if written.queue != queue:
        raise Invalid(
            f"the checkpoint is of queue {written.queue!r}, this query reads {queue!r}; use another checkpoint"
        )
    return written


def _texts(numbers: Mapping[int, int]) -> dict[str, int]:
    return {str(shard): numbers[shard] for shard in sorted(numbers)}


def share_rows(available: Mapping[int, int], rows_max: int) -> dict[int, int]:
    """How many rows to take of each shard: all, or exactly `rows_max` in the proportion of what each has."""
    total = sum(available.values())
    if total <= rows_max:
        return dict(available)
    shares = {shard: rows_max * count // total for shard, count in available.items()}
    left = rows_max - sum(shares.values())
    # What rounding left over goes to the shards that lost most by it.
    for shard in sorted(available, key=lambda each: (-(rows_max * available[each] % total), each))[:left]:
        shares[shard] += 1
    return shares
