"""Files that no head names: the former files of shards, and what committers that died have left.

A reader that has a head must find its files for a while, and a committer has files that are in no head yet. So a file
is removed in two looks, each the turn of one commit in `SWEEP_SECONDS`:

1. The look lists the files, and notes those that its head does not name in `unused.json`.
2. The next look removes those that were noted at least `KEEP_SECONDS` ago, unless its own head names them.

No head names a removed file later: a commit after the second look has read a head that is newer than that look, and its
own files, being younger than `FRESH_SECONDS` at that moment, were not there at the first one. Nothing depends on the
looks for safety, and a look that dies is made up for by the next.
"""

from __future__ import annotations

import msgspec

from bucketmq.procedures.requests import Now, Procedure
from bucketmq.procedures.tables.opened import OpenTable
from bucketmq.procedures.verbs import delete, get_state, list_all, put_over
from bucketmq.queue.settings import FORMAT
from bucketmq.tables.head import Head

KEEP_SECONDS = 3600.0
"""A file stays at least this long after the last head that names it was replaced."""

SWEEP_SECONDS = KEEP_SECONDS + 600.0
"""How often it is looked for unused files, at most. More than the above, so that each look finishes the one before."""

FRESH_SECONDS = KEEP_SECONDS / 2
"""A committer writes older files again. Much less than the above."""


class Unused(msgspec.Struct, frozen=True):
    """`tables/<name>/unused.json`: the files that no head named at a time."""

    version: int = 0
    at: float = 0.0
    files: tuple[str, ...] = ()
    format: int = FORMAT


def remove_unused(table: OpenTable, head: Head) -> Procedure[int]:
    """One look, on behalf of the commit that made `head`; returns how many files it removed. One LIST for every
    thousand files, a GET, a PUT, and a DELETE for each file."""
    keys = table.keys
    before, version = yield from get_state(keys.unused, Unused())
    now = yield from Now()
    if now - before.at < KEEP_SECONDS:
        return 0
    old = sorted(set(before.files) - head.files)
    for file in old:
        yield from delete(keys.at(file))
    entries, _ = yield from list_all(keys.data)
    there = {entry.key.removeprefix(f"{keys.root}/") for entry in entries}
    after = Unused(before.version + 1, now, tuple(sorted(there - head.files - set(old))))
    yield from put_over(keys.unused, after, version)  # whoever is refused or hears nothing leaves it to the next look
    return len(old)
