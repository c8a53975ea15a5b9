"""From a range of offsets to partitions of about equal size. Pure.

Dense offsets tell how many rows a range has, listings tell how large its segments are. Whoever executes a partition
gets the bases of its segments, so that it can fetch several at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

import msgspec

PARTITION_BYTES_MIN = 1 << 20
"""A partition costs tens of milliseconds, so a smaller one is not worth it."""

PARTITION_BYTES_MAX = 1 << 30
"""What a task has done is done again if it fails, so there is an end to it."""


class Piece(msgspec.Struct, frozen=True, gc=False):
    """The offsets `start` up to `end`, not included, of the segment at `base`. A segment of parts may be several."""

    shard: int
    base: int
    start: int
    end: int
    size_bytes: int

    @property
    def count(self) -> int:
        return self.end - self.start

    def cut(self, start: int, end: int) -> Piece:
        """What of it lies between two offsets."""
        first, last = max(self.start, start), min(self.end, end)
        size = self.size_bytes * max(0, last - first) // self.count
        return Piece(self.shard, self.base, first, last, size)


class Gap(msgspec.Struct, frozen=True):
    """Offsets that no segment holds."""

    shard: int
    start: int
    end: int


class Sized(Protocol):
    """What has a size."""

    @property
    def size_bytes(self) -> int: ...


Some = TypeVar("Some", bound=Sized)


def grouped(items: Iterable[Some], size_bytes: int) -> Iterator[list[Some]]:
    """Groups of neighbours, each of about this size. The same items are always cut alike."""
    group: list[Some] = []
    size = 0
    for item in items:
        group.append(item)
        size += item.size_bytes
        if size >= size_bytes:
            yield group
            group, size = [], 0
    if group:
        yield group


def between(pieces: Iterable[Piece], start: int, end: int) -> list[Piece]:
    """The pieces of one shard, cut to a range."""
    return [piece.cut(start, end) for piece in pieces if piece.start < end and piece.end > start]


def gaps(shard: int, pieces: Sequence[Piece], start: int, end: int) -> list[Gap]:
    """What of a range is in none of the pieces, which are in order."""
    found = []
    for piece in between(pieces, start, end):
        if piece.start > start:
            found.append(Gap(shard, start, piece.start))
        start = max(start, piece.end)
    if start < end:
        found.append(Gap(shard, start, end))
    return found


def end_by_bytes(pieces: Sequence[Piece], budget_bytes: int) -> int | None:
    """Where to stop so that about `budget_bytes` are read: a row at least. None if there is nothing to read."""
    if not pieces:
        return None
    for piece in pieces:
        if piece.size_bytes > budget_bytes:
            rows = piece.count * budget_bytes // piece.size_bytes
            return max(piece.start + rows, pieces[0].start + 1)
        budget_bytes -= piece.size_bytes
    return pieces[-1].end


def partition_count(
    pieces: Sequence[Piece], cores: int, *, wanted: int | None = None, worth_rows: int | None = None
) -> int:
    """About two partitions for each core, fewer of a small range, more of a huge one, never fewer than wanted.

    A range is small if it has few bytes, and if it has not many times `worth_rows` either.
    """
    size_bytes = sum(piece.size_bytes for piece in pieces)
    worth_it = -(-size_bytes // PARTITION_BYTES_MIN)
    if worth_rows is not None:
        worth_it = max(worth_it, sum(piece.count for piece in pieces) // worth_rows)
    needed = -(-size_bytes // PARTITION_BYTES_MAX)
    return max(1, needed, min(worth_it, 2 * cores), wanted or 0)


def pack(pieces: Sequence[Piece], partitions: int) -> list[tuple[Piece, ...]]:
    """The pieces, in order, in so many groups of about the same size; fewer only if there are fewer rows. Large pieces
    are cut."""
    if not pieces:
        return []
    rows, weight = sum(piece.count for piece in pieces), sum(map(_weight, pieces))
    others = min(partitions, rows) - 1  # groups still to come, each of a row at least
    room = -(-weight // (others + 1))
    packed: list[list[Piece]] = [[]]
    for whole in pieces:
        left: Piece | None = whole
        while left is not None:
            if others and (room <= 0 or rows <= others):
                packed.append([])
                room = -(-weight // others)
                others -= 1
            fits = left.cut(left.start, left.start + min(_rows_in(left, room), rows - others)) if others else left
            packed[-1].append(fits)
            rows, weight, room = rows - fits.count, weight - _weight(fits), room - _weight(fits)
            left = left.cut(fits.end, left.end) if fits.end < left.end else None
    return [tuple(group) for group in packed]


def _weight(piece: Piece) -> int:
    """Bytes, and something for every row, so that a range of unknown size is divided too."""
    return piece.size_bytes + piece.count


def _rows_in(piece: Piece, room: int) -> int:
    """How many rows of a piece there is room for; at least one."""
    return max(1, min(piece.count, piece.count * room // _weight(piece)))
