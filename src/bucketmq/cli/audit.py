"""The verb audit: does what a rule was given and delivered agree with what is in the bucket?"""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from bucketmq.cli.exits import Code
from bucketmq.cli.options import Json, Url, open_bucket
from bucketmq.cli.output import emit, emit_text, plural, say, table
from bucketmq.cli.rules_look import existing_rule
from bucketmq.procedures.rules.audit import LATE_SECONDS, Audited


def audit(
    *,
    rule: Annotated[str, typer.Option("--rule", metavar="NAME", help="The rule to audit.")],
    prefix: Annotated[str, typer.Option(metavar="PREFIX", help="List only keys that begin with it.")] = "",
    late: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="Reported later than this is late.")
    ] = LATE_SECONDS,
    repair: Annotated[bool, typer.Option("--repair", help="Report now what was missed.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Compare what a rule was given and delivered with a listing of the bucket.

    Exit code 6 if an object that matches was missed, and not reported by --repair. Reads all of the log that is kept.
    """
    with open_bucket(url, probe=repair) as bucket:
        existing_rule(bucket, rule)
        found = bucket.audit(rule, prefix=prefix, late_seconds=late, repair=repair)
    if as_json:
        emit({**msgspec.to_builtins(found), "complete": found.complete})
    else:
        _show(found, late)
    if not found.complete:
        say(f"{plural(found.missed, 'object')} missed; report them now: bucketmq audit --rule {rule} --repair")
        raise typer.Exit(Code.INCOMPLETE)


def _show(found: Audited, late_seconds: float) -> None:
    table(
        ("rule " + found.rule, "#count", ""),
        [
            ("before", f"{found.before:,}", "in the log from before the rule, and not its business"),
            ("events", f"{found.events:,}", "in the log, for this rule"),
            ("matched", f"{found.matched:,}", "of these, by their own fields"),
            ("delivered", f"{found.delivered:,}", "settled: delivered, or dropped by policy"),
            ("ready", f"{found.ready:,}", "to be delivered"),
            ("in flight", f"{found.in_flight:,}", "being delivered"),
            ("delayed", f"{found.delayed:,}", "failed, tried again later"),
            ("dead", f"{found.dead:,}", "dead letters"),
            ("duplicates", f"{found.duplicates:,}", "reported again, passed over"),
            ("late", f"{found.late:,}", f"reported more than {late_seconds:g} s after the change"),
            ("repaired", f"{found.repaired:,}", "reported by a sweep alone"),
            ("attempts", f"{found.attempts:,}", f"in the journal; {found.failed_attempts:,} failed"),
            ("redelivered", f"{found.redelivered:,}", "delivered more than once"),
            ("objects", f"{found.objects:,}", "in the bucket that match"),
            ("missed", f"{found.missed:,}", "of these, in a state that no event reports"),
            ("reported", f"{found.reported:,}", "of the missed, reported by this audit"),
        ],
    )
    for key in found.missed_keys:
        emit_text(f"missed  {key}")
    if found.missed > len(found.missed_keys):
        say(f"and {found.missed - len(found.missed_keys):,} more")
