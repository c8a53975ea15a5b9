"""`doctor --deep`: the queues of a bucket inspected for damage, and mended on request. Thin: see `upkeep.inspect`."""

from __future__ import annotations

import typer

from bucketmq.api.tables import TableApi
from bucketmq.cli.exits import Code
from bucketmq.cli.options import open_bucket
from bucketmq.cli.output import ask, diagnose, emit, plural, printable, screen
from bucketmq.client import Bucket
from bucketmq.errors import NotFound
from bucketmq.log.layout import QueueKeys
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.tables.inspect import TableInspection, inspect_table
from bucketmq.procedures.upkeep.inspect import Finding, Inspection, inspect
from bucketmq.procedures.upkeep.mend import mend
from bucketmq.procedures.verbs import list_page
from bucketmq.queue.settings import DEAD_SUFFIX

LOSSES_MAX = 10
"""How many are shown, the last ones."""


def deep(url: str | None, queue: str | None, *, mending: bool, yes: bool, as_json: bool) -> None:
    """Inspect one queue or all, with their dead letters; mend what can be mended if that is asked for and agreed to."""
    with open_bucket(url, probe=mending) as bucket:
        found = [bucket.run(inspect(bucket.prefix, name)) for name in _names(bucket, queue)]
        for each in found:
            _show(each, as_json=as_json)
        tables = [_look_at_table(bucket, name) for name in (bucket.tables() if queue is None else ())]
        for table in tables:
            _show_table(table, as_json=as_json)
        mendable = [finding for each in found for finding in each.findings if finding.mendable]
        if mending and mendable:
            question = (
                f"Mend {plural(len(mendable), 'finding')}? Nothing is deleted; what is replaced is kept in damaged/."
            )
            if ask(question, yes=yes):
                found = [_mend(bucket, each, as_json=as_json) for each in found]
    if any(each.findings for each in found) or any(each.findings for each in tables):
        raise typer.Exit(Code.ERROR)


def _look_at_table(bucket: Bucket, name: str) -> TableInspection:
    def work() -> Procedure[TableInspection]:
        return (yield from inspect_table((yield from TableApi(bucket.api, name, None, None, None).open())))

    return bucket.run(work())


def _show_table(found: TableInspection, *, as_json: bool) -> None:
    if as_json:
        findings = [_row(each) for each in found.findings]
        emit({"table": found.table, "files": found.files, "rows": found.rows, "findings": findings})
        return
    for finding in found.findings:
        diagnose("FAIL", f"table {finding.queue}: {finding.key}: {finding.what}", finding.cure)
    if not found.findings:
        diagnose("ok", f"table {found.table}: {plural(found.files, 'file')}, {plural(found.rows, 'row')}: no damage")


def _names(bucket: Bucket, queue: str | None) -> list[str]:
    """Not by their settings, which may be what is lost."""
    names = [queue] if queue is not None else bucket.queues()
    there = [name for name in (*names, *(name + DEAD_SUFFIX for name in names)) if _is_there(bucket, name)]
    if queue is not None and queue not in there:
        raise NotFound(f"there is no queue {queue!r}; bucketmq stats lists those that there are")
    return there


def _is_there(bucket: Bucket, name: str) -> bool:
    return bool(bucket.run(list_page(QueueKeys(bucket.prefix, name).root + "/", limit=1)).entries)


def _mend(bucket: Bucket, before: Inspection, *, as_json: bool) -> Inspection:
    if not before.findings:
        return before
    for finding in bucket.run(mend(bucket.prefix, before.queue)).mended:
        if as_json:
            emit({"mended": finding.key, "kind": finding.kind, "what": finding.cure})
        else:
            screen().print(printable(f"mended {finding.key}: {finding.cure}"), markup=False, soft_wrap=True)
    after = bucket.run(inspect(bucket.prefix, before.queue))
    _show(after, as_json=as_json)
    return after


def _show(found: Inspection, *, as_json: bool) -> None:
    if as_json:
        emit(
            {
                "queue": found.queue,
                "segments": found.segments,
                "messages": found.messages,
                "heads": found.heads,
                "lost": found.lost,
                "losses": found.losses,
                "findings": [_row(each) for each in found.findings],
            }
        )
        return
    for finding in found.findings:
        text = f"{finding.queue}: {finding.key}: {finding.what}{_place(finding)}"
        diagnose("FAIL", text, f"{'--mend: ' if finding.mendable else ''}{finding.cure}")
    if found.lost:
        places = [f"shard {each.shard}, offsets {each.start} to {each.stop - 1}" for each in found.losses[-LOSSES_MAX:]]
        more = "" if len(found.losses) <= LOSSES_MAX else "; --json shows all"
        what = f"{plural(found.lost, 'message')} recorded as lost: {'; '.join(places)}{more}"
        diagnose("lost", f"{found.queue}: {what}")
    if not found.findings:
        counts = plural(found.segments, "segment"), plural(found.messages, "message"), plural(found.heads, "head")
        diagnose("ok", f"{found.queue}: {', '.join(counts)}: no damage")


def _place(finding: Finding) -> str:
    named = [f"{name} {at}" for name, at in (("shard", finding.shard), ("offset", finding.offset)) if at is not None]
    return f" ({', '.join(named)})" if named else ""


def _row(finding: Finding) -> dict[str, object]:
    row = {"kind": finding.kind, "key": finding.key, "shard": finding.shard, "offset": finding.offset}
    return {**row, "what": finding.what, "cure": finding.cure, "mendable": finding.mendable}
