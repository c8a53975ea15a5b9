"""Inspecting a table: does its head name files that are there, whole, and hold what it says? Changes nothing.

A table has one head, and every commit writes its files before it: what is damaged was damaged by somebody else, and
only a copy brings it back.
"""

from __future__ import annotations

import msgspec

from bucketmq.bucket.port import Missing
from bucketmq.errors import BucketMQError, Corrupt
from bucketmq.procedures.requests import Call, Procedure
from bucketmq.procedures.tables.files import decode, read_schema
from bucketmq.procedures.tables.opened import OpenTable, decode_head
from bucketmq.procedures.upkeep.inspect import Finding
from bucketmq.procedures.verbs import get
from bucketmq.tables.head import Head, Shard, slot_of

RESTORE = "restore it from a copy of the bucket; if the table was dropped, delete what lies below its folder"
MAKE_AGAIN = "restore it from a copy, or delete the table and fill it again from its source"


class TableInspection(msgspec.Struct, frozen=True):
    """What was looked at, and what is damaged."""

    table: str
    files: int
    rows: int
    findings: tuple[Finding, ...]


def inspect_table(table: OpenTable) -> Procedure[TableInspection]:
    """Read the head and every file that it names. One GET each."""
    found = yield from get(table.keys.head)
    if isinstance(found, Missing):
        what = "there are files, but no head that names them"
        return TableInspection(table.name, 0, 0, (_finding(table, "no head", table.keys.head, what, RESTORE),))
    try:
        head = decode_head(found.body, table.keys.head)
        read_schema(head.schema, table.keys.head)
    except BucketMQError as error:
        finding = _finding(table, "unreadable head", table.keys.head, str(error), RESTORE)
        return TableInspection(table.name, 0, 0, (finding,))
    findings: list[Finding] = []
    rows = 0
    for place, shard in enumerate(head.shards):
        key = table.keys.at(shard.file)
        held = yield from get(key)
        if isinstance(held, Missing):
            now = yield from get(table.keys.head)
            if not isinstance(now, Missing) and now.version != found.version:
                return (yield from inspect_table(table))  # replaced while we looked
            findings.append(_finding(table, "missing file", key, "it is missing though the head names it", MAKE_AGAIN))
            continue
        try:
            rows += yield from Call(_check, (held.body, key, head, place))
        except Corrupt as error:
            findings.append(_finding(table, "damaged file", key, str(error), MAKE_AGAIN))
    return TableInspection(table.name, len(head.shards), rows, tuple(findings))


def _check(job: tuple[bytes, str, Head, int]) -> int:
    """The rows of a file, or `Corrupt`."""
    body, key, head, place = job
    shard: Shard = head.shards[place]
    rows = decode(body, key, sha256=shard.sha256).rows
    count: int = rows.num_rows
    if count != shard.rows:
        raise Corrupt(f"{key} has {count} rows where the head says {shard.rows}")
    stop = head.stop_of(place)
    groups = rows.column(head.shape.by).unique().to_pylist()
    odd = next((group for group in groups if not shard.start <= slot_of(group) < stop), None)
    if odd is not None:
        raise Corrupt(f"{key} has rows of {odd!r}, which belongs into another file")
    return count


def _finding(table: OpenTable, kind: str, key: str, what: str, cure: str) -> Finding:
    return Finding(kind, table.name, key, what, cure)
