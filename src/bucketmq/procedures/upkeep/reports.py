"""Writing and reading reports: what programs have done (`log.reports`). Nothing depends on them but the dashboard.

A report is replaced with a condition, so any number of processes of a program may write theirs. One that is damaged is
started over by its next writer, and skipped by readers.
"""

from __future__ import annotations

from bucketmq.errors import Corrupt
from bucketmq.log import documents
from bucketmq.log.reports import REPORTS_MAX, Process, Report, folder, key_of, noted
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Delete, Procedure
from bucketmq.procedures.verbs import get_there, list_page, update_document

Known = dict[str, tuple[float, int, Report]]
"""Reports that were read before, by key: when they were stored, their size, and what they say."""


def note(bucket: OpenBucket, empty: Report, process_id: str, process: Process, *, listed: bool) -> Procedure[bool]:
    """Write how a process gets on into its program's report, which begins as `empty`. One GET and one PUT.

    With `listed` it must be in the report already: False, and nothing is written, if it is there no longer, because it
    was quiet for long while others came.
    """
    key = key_of(bucket.prefix, empty.kind, empty.name)
    gone = False

    def change(before: Report) -> Report:
        nonlocal gone
        gone = listed and process_id not in before.processes
        return before if gone else noted(before, process_id, process)

    try:
        yield from update_document(Report, key, empty, change)
    except Corrupt:
        yield from Delete(key)
        yield from update_document(Report, key, empty, change)
    return not gone


def read_all(bucket: OpenBucket, known: Known) -> Procedure[Known]:
    """Every report, those that have not changed as they are known. One LIST, and one GET for each that has."""
    page = yield from list_page(folder(bucket.prefix))
    entries = {entry.key: entry for entry in page.entries[:REPORTS_MAX] if entry.key.endswith(".json")}
    found = {
        key: was
        for key, entry in entries.items()
        if (was := known.get(key)) is not None and was[:2] == (entry.stored_at, entry.size_bytes)
    }
    changed = yield from get_there(key for key in entries if key not in found)
    for key, each in changed.items():
        try:
            report = documents.decode(Report, each.body, key)
        except Corrupt:
            continue
        found[key] = each.stored_at, len(each.body), report
    return found
