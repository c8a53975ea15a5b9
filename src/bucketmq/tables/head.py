"""The head of a table: which files hold its rows now, and what becomes of that when a commit is applied.

1. Rows belong to groups: those with the same value in the column `group`, or each row to its own, named by its key,
   where a table has no such column. Inside a group the key says which row is which.
2. A group has a slot, 0 to 65535: the first 16 bits of the SHA-256 of its value as text.
3. A shard is a range of slots and has exactly one file. Together the shards cover all slots.
4. A commit writes new files for the shards it touches and replaces the head, with a condition. Whoever has read a head
   has the table as it was then, until files are removed that no head names any more.
5. A file that gets large is divided, so a commit costs the same however large the table is.

Rows and Parquet do not belong here (`procedures.tables`), nor does when files are removed.
"""

from __future__ import annotations

import hashlib
import itertools
from bisect import bisect_right
from collections.abc import Mapping, Sequence

import msgspec

from bucketmq.errors import Corrupt
from bucketmq.queue.settings import FORMAT

SLOTS = 1 << 16

COMMITS_MAX = 200
"""So many ids of the last commits are remembered."""

WRITERS_MAX = 100
"""So many numbered writers are remembered: those that committed last."""

GroupValue = str | int


class Shard(msgspec.Struct, frozen=True):
    """The slots from `start` up to the next shard's, and the file that holds their rows."""

    start: int
    file: str
    """Its key below the table's root."""
    rows: int
    size_bytes: int
    sha256: str


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What a table is made with, and keeps: the names of the columns that mean something."""

    key: str
    """Tells the rows of a group apart."""
    group: str | None = None
    """Rows with the same value are replaced together; without it each row is a group of its own."""
    newer_by: str | None = None
    """Which state of a group is newer, a whole number or a time: an older one that comes late changes nothing."""

    @property
    def by(self) -> str:
        """The column whose values name the groups."""
        return self.group or self.key


class Mark(msgspec.Struct, frozen=True):
    """Which commit this is, so that it is applied once: an id of its own, or the `number`th of the writer `id`."""

    id: str
    number: int | None = None


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """`tables/<name>/head.json`. `version` grows by one with every commit."""

    version: int
    shape: Shape
    schema: str
    """The columns: an Arrow schema as an IPC message, in Base64."""
    shards: tuple[Shard, ...]
    commits: tuple[str, ...] = ()
    """The ids of the last writes of the head, and those that callers gave their commits, the latest last."""
    writers: dict[str, int] = {}
    """The last number that each numbered writer committed; the latest writer last."""
    swept_at: float = 0.0
    """When it was last looked for files that no head names."""
    format: int = FORMAT

    def __repr__(self) -> str:
        return f"<Head of version {self.version}, {len(self.shards)} shards>"

    @property
    def rows(self) -> int:
        return sum(shard.rows for shard in self.shards)

    @property
    def size_bytes(self) -> int:
        return sum(shard.size_bytes for shard in self.shards)

    @property
    def files(self) -> frozenset[str]:
        return frozenset(shard.file for shard in self.shards)

    def has(self, mark: Mark) -> bool:
        """Whether this commit was applied, as far as the head remembers."""
        if mark.number is not None:
            return self.writers.get(mark.id, -1) >= mark.number
        return mark.id in self.commits

    def place_of(self, slot: int) -> int:
        """Which of the shards has a slot."""
        return bisect_right(self.shards, slot, key=lambda shard: shard.start) - 1

    def stop_of(self, place: int) -> int:
        """Where the slots of a shard end, not included."""
        return self.shards[place + 1].start if place + 1 < len(self.shards) else SLOTS


def slot_of(group: GroupValue) -> int:
    """The slot of a group."""
    return int.from_bytes(hashlib.sha256(str(group).encode("utf-8", "surrogatepass")).digest()[:2], "big")


def after_commit(
    head: Head, marks: Sequence[Mark], made: Mapping[str, Sequence[Shard]], *, schema: str, swept_at: float
) -> Head:
    """The head after commits: for the file of each shard they touched, `made` has the shards that take its place."""
    shards: list[Shard] = []
    for place, shard in enumerate(head.shards):
        instead = made.get(shard.file)
        if instead is None:
            shards.append(shard)
            continue
        stop = head.stop_of(place)
        assert instead and instead[0].start == shard.start and all(shard.start <= each.start < stop for each in instead)
        shards += instead
    commits = [*head.commits, *(mark.id for mark in marks if mark.number is None)]
    writers = dict(head.writers)
    for mark in marks:
        if mark.number is not None:
            writers[mark.id] = max(mark.number, writers.pop(mark.id, -1))
    return check(
        msgspec.structs.replace(
            head,
            version=head.version + 1,
            schema=schema,
            shards=tuple(shards),
            commits=tuple(commits[-COMMITS_MAX:]),
            writers=dict(list(writers.items())[-WRITERS_MAX:]),
            swept_at=swept_at,
        )
    )


def check(head: Head) -> Head:
    """The head, if it can be one; `Corrupt` otherwise."""
    starts = [shard.start for shard in head.shards]
    if (
        not starts
        or starts[0] != 0
        or starts[-1] >= SLOTS
        or any(low >= high for low, high in itertools.pairwise(starts))
    ):
        raise Corrupt(f"its shards begin at {starts[:20]}: they must ascend from 0 and stay below {SLOTS}")
    if len(head.files) != len(head.shards):
        raise Corrupt("two of its shards have the same file")
    odd = [shard.file for shard in head.shards if not shard.file.startswith("data/") or ".." in shard.file.split("/")]
    if odd:
        raise Corrupt(f"the file {odd[0]!r} does not lie below data/")
    if head.version < 1 or any(shard.rows < 0 or shard.size_bytes < 0 for shard in head.shards):
        raise Corrupt("it has a count below zero")
    return head
