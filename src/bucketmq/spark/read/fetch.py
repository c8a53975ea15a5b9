"""Fetching on an executor: the lines of pieces, in order, with the next objects on their way meanwhile.

Lines come as bytes; making columns of them is `bucketmq.spark.read.rows`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec
import numpy as np
from xxhash import xxh3_64_hexdigest

from bucketmq.bucket.port import Missing
from bucketmq.errors import Corrupt, NotFound
from bucketmq.log.layout import join
from bucketmq.log.segment import Part, Segment
from bucketmq.pipeline.ahead import Asked, Got, ahead
from bucketmq.pipeline.texts import Numbers
from bucketmq.procedures.verbs import get
from bucketmq.spark.opened import Opened
from bucketmq.spark.read.plan import Piece

logger = logging.getLogger("bucketmq.spark")

AHEAD = 8
"""So many objects are on their way at a time."""

CHUNK_BYTES = 2 << 20
"""So much is made rows of at a time: what a processor's cache holds."""


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """Lines of one object, not many bytes of them: the messages from offset `first` on."""

    shard: int
    first: int
    lines: memoryview
    ends: Numbers
    """Where each line ends, behind its line feed."""
    key: str
    vouched: bool = False
    """Whether these are the bytes that their writer vouched for (`bucketmq.log.segment.Part`)."""

    @property
    def count(self) -> int:
        return len(self.ends)


class Fetcher:
    """The objects of one queue, for one task."""

    def __init__(self, opened: Opened, *, strict: bool) -> None:
        self._opened = opened
        self._keys = opened.queue.keys
        self._strict = strict
        self._pool = ThreadPoolExecutor(AHEAD, thread_name_prefix="bucketmq-fetch")

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def chunks(self, pieces: Iterable[Piece]) -> Iterator[Chunk]:
        """The lines of the pieces, in order."""
        for piece, body in self.ahead(self._segment, pieces):
            if body is None:
                self._lost(f"offsets {piece.start} to {piece.end - 1} of shard {piece.shard}")
                continue
            segment = Segment(piece.base, body)
            key = self._keys.segment(piece.shard, piece.base)
            if segment.end < piece.end:
                if self._strict:
                    raise Corrupt(f"{key} has {segment.count} messages, not offset {piece.end - 1}; restore it")
                self._lost(f"offsets {segment.end} to {piece.end - 1} of shard {piece.shard}")
                if segment.end <= piece.start:
                    continue
                piece = piece.cut(piece.start, segment.end)  # noqa: PLW2901  # what is left of it
            if not segment.parts:
                yield from cut(piece, piece.base, body, ends_of(body), key)
            else:
                yield from self._of_parts(segment, piece)

    def _of_parts(self, segment: Segment, piece: Piece) -> Iterator[Chunk]:
        wanted: list[tuple[Part, int]] = []
        first = segment.base
        for part in segment.parts:
            if first < piece.end and first + part.count > piece.start:
                wanted.append((part, first))
            first += part.count
        for (part, first), body in self.ahead(lambda each: self._get(join(self._keys.root, each[0].key)), wanted):
            key = join(self._keys.root, part.key)
            if body is None:
                # Trimming deletes the parts of a segment before the segment.
                self._lost(f"{key}, a part of shard {piece.shard}")
                continue
            ends = ends_of(body)
            if not body.endswith(b"\n") or len(ends) != part.count:
                raise Corrupt(f"{key} has not {part.count} lines, as its segment says; restore it")
            if part.xxh3 and xxh3_64_hexdigest(body) != part.xxh3:
                raise Corrupt(f"{key} is not what was written (its XXH3 is not {part.xxh3}); restore it from a copy")
            yield from cut(piece, first, body, ends, key, vouched=bool(part.xxh3))

    def body(self, name: str) -> bytes | None:
        """A large body, by its key below the queue; None if it is gone and that is not an error here."""
        key = join(self._keys.root, name)
        found = self._get(key)
        if found is None:
            self._lost(f"{key}, the body of a message")
        return found

    def ahead(self, ask: Callable[[Asked], Got], wanted: Iterable[Asked]) -> Iterator[tuple[Asked, Got]]:
        """Each of `wanted` with its answer, in order; the next few are asked for already. Where a request takes
        microseconds, none is."""
        if self._opened.local:
            return ((each, ask(each)) for each in wanted)
        return ahead(self._pool, ask, wanted, most=AHEAD + 1)

    def _segment(self, piece: Piece) -> bytes | None:
        return self._get(self._keys.segment(piece.shard, piece.base))

    def _get(self, key: str) -> bytes | None:
        found = self._opened.run(get(key))
        return None if isinstance(found, Missing) else found.body

    def _lost(self, what: str) -> None:
        if self._strict:
            raise NotFound(lost_text(what))
        logger.warning("%s was trimmed before it was read; going on without it", what)


def lost_text(what: str) -> str:
    return (
        f"{what} of this query's range is gone: trimmed before it was read. Keep messages longer (keep_seconds), or "
        "start over with another checkpoint, or set failOnDataLoss to false to go on without them"
    )


def ends_of(lines: bytes) -> Numbers:
    """Where each line ends, behind its line feed."""
    return np.flatnonzero(np.frombuffer(lines, np.uint8) == ord("\n")) + 1


def cut(piece: Piece, first: int, lines: bytes, ends: Numbers, key: str, *, vouched: bool = False) -> Iterator[Chunk]:
    """What of the lines of an object belongs to a piece, in chunks of about the same size."""
    whole = memoryview(lines)
    row, stop = max(piece.start - first, 0), min(piece.end - first, len(ends))
    begin = int(ends[row - 1]) if row else 0
    size = int(ends[stop - 1]) - begin
    step = -(-size // max(1, round(size / CHUNK_BYTES)))
    while row < stop:
        last = min(int(np.searchsorted(ends, begin + step)) + 1, stop)
        end = int(ends[last - 1])
        yield Chunk(piece.shard, first + row, whole[begin:end], ends[row:last] - begin, key, vouched)
        row, begin = last, end
