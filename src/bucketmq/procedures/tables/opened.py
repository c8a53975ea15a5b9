"""A table as one process has it open: its name, what it was asked to be, and the lane in which its commits ride."""

from __future__ import annotations

import msgspec

from bucketmq.bucket.port import Missing, Object
from bucketmq.errors import Corrupt, Invalid, NotFound
from bucketmq.log import documents
from bucketmq.log.layout import TableKeys
from bucketmq.procedures.lane import Item, Lane
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.tables.steps import Step
from bucketmq.procedures.verbs import get
from bucketmq.queue.settings import check_name
from bucketmq.tables.head import GroupValue, Head, Mark, Shape, check
from bucketmq.values import Value

CARRIED_MAX = 20
"""Commits of one process that ride together, at most."""


class Committed(Value, msgspec.Struct, frozen=True):
    """What came of a commit."""

    version: int
    """The version of the table that has it; of one that was applied before, a later one."""
    stale: tuple[GroupValue, ...] = ()
    """The groups that were left as they are, because what is there is newer."""
    already: bool = False
    """Whether it had been applied before."""


class Load(Item):
    """A commit on its way."""

    __slots__ = ("committed", "mark", "steps")

    def __init__(self, mark: Mark | None, steps: list[Step]) -> None:
        super().__init__()
        self.mark = mark
        """Given by a caller who may come back with it."""
        self.steps = steps
        self.committed: Committed | None = None


class OpenTable:
    """One table, open in one process. `shape` is what the caller says of it; None for whatever it is."""

    def __init__(self, bucket: OpenBucket, name: str, shape: Shape | None) -> None:
        self.bucket = bucket
        self.name = name
        self.keys = TableKeys(bucket.prefix, name)
        self.shape = shape
        self.lane: Lane[Load] = Lane(lambda loads: min(len(loads), CARRIED_MAX))


def open_table(bucket: OpenBucket, name: str, shape: Shape | None) -> OpenTable:
    """The table as all callers of this process share it."""
    found: OpenTable = bucket.tables.setdefault((name, shape), OpenTable(bucket, check_name(name, "table name"), shape))
    return found


def read_head(table: OpenTable) -> Procedure[tuple[Head, Object] | None]:
    """The head as it is now, or None where there is no table yet. One GET."""
    found = yield from get(table.keys.head)
    if isinstance(found, Missing):
        return None
    head = decode_head(found.body, table.keys.head)
    if table.shape is not None and table.shape != head.shape:
        raise Invalid(
            f"table {table.name!r} was made with {_told(head.shape)}, not with {_told(table.shape)}; open it as it is"
        )
    return head, found


def decode_head(body: bytes, key: str) -> Head:
    head = documents.decode(Head, body, key)
    try:
        return check(head)
    except Corrupt as error:
        raise Corrupt(f"{key}: {error}; restore it from a copy") from None


def shape_of(table: OpenTable) -> Procedure[Shape]:
    """The shape that the caller gave, or that the table has. One GET in the second case, the first time."""
    if table.shape is None:
        found = yield from read_head(table)
        if found is None:
            raise NotFound(f"there is no table {table.name!r}; name its key column to make one: table(..., key=...)")
        table.shape = found[0].shape
    return table.shape


def _told(shape: Shape) -> str:
    return ", ".join(f"{name}={getattr(shape, name)!r}" for name in shape.__struct_fields__)
