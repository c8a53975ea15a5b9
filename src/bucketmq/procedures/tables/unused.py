"""Files that no head names: the former files of shards, and what committers that died have left.

A reader that has a head must find its files for a while, and a committer has files that are in no head yet. So a file
is removed in two looks, each the turn of one commit in `SWEEP_SECONDS`:

1. The look lists the files, and notes in `unused.json` those that its head does not name and that were `KEEP_SECONDS`
   old when it was made. Younger ones may be those of a rival, whose head is newer than this look's or still to come.
2. The next look removes those that were noted at least `KEEP_SECONDS` ago, unless its own head names them.

No head names a noted file later: a commit that lands after the look's has read the look's head or a newer one, and
names only files of that head and its own, which are younger than `FRESH_SECONDS`. Nothing depends on the looks for
safety, and a look that dies is made up for by the next.
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
    aged = {
        entry.key.removeprefix(f"{keys.root}/") for entry in entries if entry.stored_at <= head.swept_at - KEEP_SECONDS
    }
    after = Unused(before.version + 1, now, tuple(sorted(aged - head.files - set(old))))
    yield from put_over(keys.unused, after, version)  # whoever is refused or hears nothing leaves it to the next look
    return len(old)
