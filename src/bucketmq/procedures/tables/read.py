"""Reading: the files that one head names, all of the same moment."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import msgspec

from bucketmq.bucket.port import Missing
from bucketmq.errors import Corrupt, Invalid, NotFound
from bucketmq.procedures.requests import Call, Procedure
from bucketmq.procedures.tables.files import conform, decode, read_schema, values_of
from bucketmq.procedures.tables.opened import OpenTable, read_head
from bucketmq.procedures.tables.steps import check_group
from bucketmq.procedures.verbs import get_many
from bucketmq.tables.head import GroupValue, Head, Shape, Shard, slot_of
from bucketmq.values import Value

if TYPE_CHECKING:
    import pyarrow as pa

AT_ONCE = 16
"""Files that are fetched at a time."""


class Snapshot(Value, msgspec.Struct, frozen=True):
    """A table as it was at one moment. Its files stay for at least an hour after the commit that replaced them."""

    table: str
    version: int
    rows: int
    size_bytes: int
    files: tuple[str, ...]
    """The keys of its Parquet files in the store, for other tools. Together they have the rows, each once."""
    head: Head


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows and columns; None for all of them."""

    columns: tuple[str, ...] | None = None
    groups: tuple[GroupValue, ...] | None = None
    keys: tuple[GroupValue, ...] | None = None


def snapshot(table: OpenTable) -> Procedure[Snapshot]:
    """The table as it is now. One GET."""
    found = yield from read_head(table)
    if found is None:
        raise NotFound(f"there is no table {table.name!r}; its first commit makes it")
    head = found[0]
    files = tuple(table.keys.at(shard.file) for shard in head.shards)
    return Snapshot(table.name, head.version, head.rows, head.size_bytes, files, head)


def read(table: OpenTable, wanted: Wanted, at: Snapshot | None = None) -> Procedure[pa.Table]:
    """The rows that are wanted, as an Arrow table: those of a snapshot, or of the table as it is now.

    One GET for the head, and one for each shard that can have such rows.
    """
    if at is not None and at.table != table.name:
        raise Invalid(f"this is a snapshot of table {at.table!r}, not of {table.name!r}; read it there")
    here = at or (yield from snapshot(table))
    while True:
        found = yield from _read(table, here.head, wanted)
        if not isinstance(found, Shard):
            return found
        now = yield from snapshot(table)
        if any(shard.file == found.file for shard in now.head.shards):
            key = table.keys.at(found.file)
            raise Corrupt(f"{key} is missing though the head of table {table.name!r} names it; restore it from a copy")
        if at is not None:
            raise NotFound(
                f"version {at.version} of table {table.name!r} is too old to be read, it has {now.version} now; "
                "take another snapshot"
            )
        here = now


def _read(table: OpenTable, head: Head, wanted: Wanted) -> Procedure[pa.Table | Shard]:
    """The rows; or a shard whose file is not there any more."""
    import pyarrow as pa

    schema = read_schema(head.schema, table.keys.head)
    shards = chosen(head, wanted)
    needed = _needed(schema, head.shape, wanted)
    parts: list[pa.Table] = [schema.empty_table() if needed is None else schema.empty_table().select(needed)]
    for start in range(0, len(shards), AT_ONCE):
        some = shards[start : start + AT_ONCE]
        replies = yield from get_many([table.keys.at(shard.file) for shard in some])
        for shard, reply in zip(some, replies, strict=True):
            if isinstance(reply, Missing):
                return shard
            job = (reply.body, table.keys.at(shard.file), shard, head.shape, parts[0].schema, wanted)
            parts.append((yield from Call(_rows, job)))
    rows = pa.concat_tables(parts)
    return rows if wanted.columns is None else rows.select(list(wanted.columns))


def read_files(
    table: OpenTable, at: Snapshot, files: Collection[str], columns: tuple[str, ...] | None
) -> Procedure[dict[str, pa.Table]]:
    """The rows of these files of a snapshot, by file. One GET for each; `NotFound` if the snapshot is too old."""
    shards = [shard for shard in at.head.shards if table.keys.at(shard.file) in files]
    if len(shards) != len(set(files)):
        raise Invalid(f"version {at.version} of table {table.name!r} does not have all of these files")
    found: dict[str, pa.Table] = {}
    for shard in shards:
        alone = msgspec.structs.replace(at.head, shards=(msgspec.structs.replace(shard, start=0),))
        part = msgspec.structs.replace(at, head=alone)
        found[table.keys.at(shard.file)] = yield from read(table, Wanted(columns=columns), part)
    return found


def chosen(head: Head, wanted: Wanted) -> list[Shard]:
    """The shards that can have such rows."""
    groups = wanted.groups if head.shape.group is not None else wanted.keys
    if head.shape.group is None and wanted.groups is not None:
        raise Invalid("this table has no groups; ask for rows by their keys")
    for each in (*(wanted.groups or ()), *(wanted.keys or ())):
        check_group(each)
    if groups is None:
        return list(head.shards)
    return [head.shards[place] for place in sorted({head.place_of(slot_of(each)) for each in groups})]


def _needed(schema: pa.Schema, shape: Shape, wanted: Wanted) -> list[str] | None:
    """The columns that have to be read: those wanted, and those that rows are chosen by."""
    if wanted.columns is None:
        return None
    unknown = [name for name in wanted.columns if name not in schema.names]
    if unknown:
        raise Invalid(f"the table has no column {unknown[0]!r}; there are {', '.join(schema.names)}")
    by = [shape.group if wanted.groups is not None else None, shape.key if wanted.keys is not None else None]
    return list(dict.fromkeys(name for name in (*wanted.columns, *by) if name is not None))


def _rows(job: tuple[bytes, str, Shard, Shape, Any, Wanted]) -> pa.Table:
    import pyarrow.compute as pc

    body, key, shard, shape, schema, wanted = job
    rows = conform(decode(body, key, sha256=shard.sha256).rows, schema)
    for name, values in ((shape.group, wanted.groups), (shape.key, wanted.keys)):
        if name is not None and values is not None:
            rows = rows.filter(pc.is_in(rows.column(name), value_set=values_of(values, rows.schema.field(name).type)))
    return rows
