"""The chore `archive`: settled messages to Parquet, by day, in the bucket itself.

In rounds. Each enters an intent in the register, has the executors create its files, and moves the watermark. Dead
letters have an archive of their own, which is held before anything else: they tell what became of messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from bucketmq.errors import Invalid, NotFound
from bucketmq.procedures.upkeep.archive import Archive, Spans, begin, finish
from bucketmq.procedures.upkeep.archive import release as let_go
from bucketmq.queue.settings import DEAD_SUFFIX
from bucketmq.spark.opened import Opened, opened
from bucketmq.spark.options import Place, place_of
from bucketmq.spark.running.tasks import on_executors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bucketmq.spark.history.archive import Deaths, Made
    from bucketmq.spark.read.plan import Piece

FILE_BYTES = 32 << 20
ROUND_BYTES = 4 << 30
FILE_BYTES_MIN = 1 << 10


class Archived(msgspec.Struct, frozen=True):
    """What a run archived of one queue, and how far it is archived now."""

    queue: str
    rounds: int
    files: int
    rows: int
    size_bytes: int
    watermark: dict[int, int]
    skipped: int
    """Messages that were gone before they could be archived, ever: trimmed before the archive held, or lost."""
    lost: int
    """Of these, those that were lost."""
    dead_letters: Archived | None = None


def run(
    spark: SparkSession,
    bucket_url: str,
    *,
    queue: str,
    options: Mapping[str, str] | None = None,
    file_bytes: int = FILE_BYTES,
    round_bytes: int = ROUND_BYTES,
    skip_lost: bool = False,
    release: bool = False,
) -> Archived:
    """Archive what is settled of a queue and of its dead letters, and hold trimming back to it from now on.

    May be run again, and by several at once: each message is archived once. `release` ends that: nothing is archived,
    and trimming goes on without. For each round a few LISTs and GETs and two PUTs; for each file its segments' GETs and
    one PUT.
    """
    if file_bytes < FILE_BYTES_MIN or round_bytes < file_bytes:
        raise Invalid(f"file_bytes must be {FILE_BYTES_MIN} or more, and round_bytes no less than that")
    place = place_of(bucket_url, queue, options or {})
    chore = _Chore(spark, file_bytes, round_bytes, skip_lost=skip_lost)
    if release:
        dead = _dead_letters(place)
        return _released(place, None if dead is None else _released(dead, None))
    done = chore.archive(place)
    dead = _dead_letters(place)
    return msgspec.structs.replace(done, dead_letters=None if dead is None else chore.archive(dead))


def _dead_letters(place: Place) -> Place | None:
    """Where the dead letters of a queue are; None if it never had any."""
    if place.queue.endswith(DEAD_SUFFIX):
        return None
    dead = msgspec.structs.replace(place, queue=place.queue + DEAD_SUFFIX)
    try:
        opened(dead)
    except NotFound:
        return None
    return dead


def _released(place: Place, dead: Archived | None) -> Archived:
    here = opened(place)
    archive = here.run(let_go(here.queue))
    return msgspec.structs.replace(_archived(place, archive), dead_letters=dead)


def _archived(place: Place, archive: Archive, *, rounds: int = 0, made: Sequence[Made] = ()) -> Archived:
    return Archived(
        queue=place.queue,
        rounds=rounds,
        files=sum(each.files for each in made),
        rows=sum(each.rows for each in made),
        size_bytes=sum(each.size_bytes for each in made),
        watermark=archive.watermark,
        skipped=_count(archive.skipped),
        lost=_count(archive.lost),
    )


def _count(spans: Mapping[int, Spans]) -> int:
    return sum(end - start for its in spans.values() for start, end in its)


class _Chore:
    """One run."""

    def __init__(self, spark: SparkSession, file_bytes: int, round_bytes: int, *, skip_lost: bool) -> None:
        self._spark = spark
        self._file_bytes = file_bytes
        self._round_bytes = round_bytes
        self._skip_lost = skip_lost

    def archive(self, place: Place) -> Archived:
        from bucketmq.spark.history.archive import lost_of, make_files, pieces_of, prepare, works

        here = opened(place)
        rounds = 0
        made: list[Made] = []
        while True:
            archive = here.run(prepare(here.queue, file_bytes=self._file_bytes, round_bytes=self._round_bytes))
            if archive.intent is None:
                return _archived(place, archive, rounds=rounds, made=made)
            pieces = here.run(pieces_of(here.queue, archive))
            real = self._measured(place, pieces) if self._skip_lost else {}
            tasks, gone = works(place, archive, pieces, self._deaths(here, place, archive), real)
            lost = here.run(lost_of(here.queue, gone, skip=self._skip_lost))
            made += on_executors(self._spark, make_files, tasks)
            here.run(finish(here.queue, archive.intent, gone, lost))
            rounds += 1

    def _measured(self, place: Place, pieces: dict[int, list[Piece]]) -> dict[Piece, Piece | None]:
        from bucketmq.spark.history.archive import measured

        asked = [piece for its in pieces.values() for piece in its]
        found = on_executors(self._spark, measured, [(place, piece) for piece in asked])
        return dict(zip(asked, found, strict=True))

    def _deaths(self, here: Opened, place: Place, archive: Archive) -> Deaths:
        """The dead letters of the messages that are being archived. Those are settled, so these are there by now."""
        from bucketmq.spark.history.archive import dig, graves, ranges_of, stored_since

        dead = _dead_letters(place)
        if dead is None:
            return {}
        there = opened(dead)
        there.run(begin(there.queue))  # held from now on: trimming takes none while they are looked at
        ranges = ranges_of(archive)
        since = here.run(stored_since(here.queue, ranges))
        found: Deaths = {}
        for deaths in on_executors(self._spark, dig, there.run(graves(there.queue, dead, ranges, since))):
            for where, death in deaths:
                found.setdefault(where, []).append(death)
        return found
