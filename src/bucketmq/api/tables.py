"""What a user can ask of a table: rows in Parquet files, replaced and deleted by group, read by anybody."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from bucketmq.api.objects import several
from bucketmq.api.opening import Opening
from bucketmq.errors import Invalid
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.tables.commit import commit
from bucketmq.procedures.tables.drop import drop
from bucketmq.procedures.tables.opened import Committed, OpenTable, open_table
from bucketmq.procedures.tables.read import Snapshot, Wanted, read, read_files, snapshot
from bucketmq.queue.settings import check_name
from bucketmq.tables.changes import Change, Delete, Replace, Rows, Upsert
from bucketmq.tables.head import GroupValue, Mark, Shape

if TYPE_CHECKING:
    import pyarrow as pa


Item = TypeVar("Item")


class TableApi:
    """One table by name."""

    def __init__(self, bucket: Opening, name: str, key: str | None, group: str | None, newer_by: str | None) -> None:
        self.bucket = bucket
        self.name = check_name(name, "table name")
        if key is None and (group is not None or newer_by is not None):
            raise Invalid("group and newer_by go with key, the column that tells the rows of a group apart")
        if group is not None and group == key:
            raise Invalid("key tells the rows of a group apart, so it is another column than group; leave group out")
        self.shape = None if key is None else Shape(key=key, group=group, newer_by=newer_by)

    def open(self) -> Procedure[OpenTable]:
        """The table as this process knows it."""
        return open_table((yield from self.bucket.open()), self.name, self.shape)

    def commit(self, *changes: Change, id: str | None = None) -> Procedure[Committed]:
        """Apply changes (`Upsert`, `Replace`, `Delete` of `bucketmq.tables`): all of them, or none, in one step.

        Readers see the table before or after it, never in between. A commit whose `id` is among the last of the table
        (about two hundred) changes nothing. Two GETs and two PUTs if it touches one shard, a GET and a PUT more for
        each other shard.
        """
        table = yield from self.open()
        return (yield from commit(table, changes, mark=None if id is None else Mark(id)))

    def upsert(self, rows: Rows) -> Procedure[Committed]:
        """Put rows: each takes the place of the row of its group with the same key, if there is one."""
        return (yield from self.commit(Upsert(rows)))

    def replace(self, group: GroupValue, rows: Rows, *, newer: int | datetime | None = None) -> Procedure[Committed]:
        """Put rows in place of everything that a group has, unless what it has is newer."""
        return (yield from self.commit(Replace(rows, group, newer)))

    def delete(
        self, *groups: GroupValue, newer: int | datetime | None = None, keys: Iterable[GroupValue] | None = None
    ) -> Procedure[Committed]:
        """Delete everything that these groups have (or these rows, where the table has no groups), unless it is newer;
        with `keys`, only these rows of one group."""
        chosen = _listed(keys, "keys")
        return (yield from self.commit(Delete(groups, newer, chosen)))

    def snapshot(self) -> Procedure[Snapshot]:
        """The table as it is now: its version, and its files for other tools. One GET."""
        return (yield from snapshot((yield from self.open())))

    def read(
        self,
        *,
        columns: Iterable[str] | None = None,
        groups: Iterable[GroupValue] | None = None,
        keys: Iterable[GroupValue] | None = None,
        at: Snapshot | None = None,
    ) -> Procedure[pa.Table]:
        """The rows as an Arrow table, all of one moment: that of the snapshot `at`, or now.

        One GET for the head and one for each file. For `groups` (or `keys`, where the table has no groups) only those
        files are read that can have them.
        """
        wanted = Wanted(
            columns=_listed(columns, "columns"),
            groups=_listed(groups, "groups"),
            keys=_listed(keys, "keys"),
        )
        return (yield from read((yield from self.open()), wanted, at))

    def drop(self) -> Procedure[bool]:
        """Drop the table with all its rows; False if there is none. A later commit creates it again.

        One GET, one LIST, and a DELETE for the head and for each file.
        """
        return (yield from drop((yield from self.open())))

    def read_files(
        self, at: Snapshot, files: Iterable[str], *, columns: Iterable[str] | None = None
    ) -> Procedure[dict[str, pa.Table]]:
        """The rows of some files of a snapshot, by file: for a reader that keeps what it has read, and needs only the
        files that a commit has changed. One GET for each; `NotFound` if the snapshot is too old."""
        wanted = frozenset(several(files, "files"))
        return (yield from read_files((yield from self.open()), at, wanted, _listed(columns, "columns")))


def _listed(values: Iterable[Item] | None, what: str) -> tuple[Item, ...] | None:
    return None if values is None else tuple(several(values, what))
