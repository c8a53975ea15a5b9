"""Dropping a table: its head first, then its files."""

from __future__ import annotations

from bucketmq.procedures.objects.remove import remove_state
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.tables.opened import OpenTable, read_head
from bucketmq.procedures.verbs import Patience, delete, list_all


def drop(table: OpenTable) -> Procedure[bool]:
    """Drop the table as it is now; False if there is none. A later commit creates it again.

    The files are listed before the head goes: a committer whose head is gone begins a new table, with new files, so
    none of those that were there before gets into a head again.
    """
    patience = Patience(f"dropping table {table.name!r}")
    while True:
        found = yield from read_head(table)
        entries, _ = yield from list_all(table.keys.data)
        if found is None:
            return False
        end = yield from remove_state(table.keys.head, found[1].version)
        if end in ("removed", "elsewhere"):
            break
        yield from patience.again(end)
    for entry in entries:
        yield from delete(entry.key)
    yield from delete(table.keys.unused)
    return end == "removed"
