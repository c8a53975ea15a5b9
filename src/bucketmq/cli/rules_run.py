"""Verbs that deliver: rules run, replay, dead, redrive."""

from __future__ import annotations

import re
import time
from typing import Annotated

import msgspec
import typer

from bucketmq.api.times import start_of
from bucketmq.cli.dead import show_failures, show_redriven
from bucketmq.cli.exits import Code, agree, nothing
from bucketmq.cli.options import Json, Url, Yes, open_bucket
from bucketmq.cli.output import answer, emit, emit_all, emit_text, plural, say
from bucketmq.cli.progress import Progress
from bucketmq.cli.rules_look import Books, RuleName, event_letter_row, existing_rule, show_letters
from bucketmq.cli.worker import log_to_stderr
from bucketmq.client import Bucket
from bucketmq.deliveries import DeadLetter
from bucketmq.errors import Invalid
from bucketmq.events.rule import ToWatcher
from bucketmq.procedures.queues import EVENTS
from bucketmq.procedures.rules.notifier import Notifier

_AGO = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d)\Z")
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def run(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="These rules; all if left out.")
    ] = None,
    *,
    once: Annotated[bool, typer.Option("--once", help="End when nothing is left to do now.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Deliver what the rules to webhooks and queues have to deliver.

    Any number of processes may run the same rules. SIGTERM and Ctrl-C finish what is in hand and give the rest back.
    Rules that are added, changed or paused meanwhile are noticed within seconds.
    """
    log_to_stderr()
    notifiers: list[Notifier] = []
    with open_bucket(url) as bucket:
        chosen = _runnable(bucket, names or [])
        say(f"delivering {', '.join(chosen) or 'nothing yet'}{'' if once else '; stop it with Ctrl-C'}")
        bucket.notify(only=names or None, stop_when_empty=once, started=notifiers.append)
        counts = {each.rule.name: vars(each.counts) for notifier in notifiers for each in notifier.runs()}
    if as_json:
        emit({"rules": counts})
        return
    for name, each in counts.items():
        tried = f"{each['failed']:,} failed attempts, {each['buried']:,} dead, {each['dropped']:,} dropped"
        say(f"{name}: {each['done']:,} delivered, {tried}")


def _runnable(bucket: Bucket, names: list[str]) -> list[str]:
    if not names:
        return [rule.name for rule in bucket.rules.list() if not isinstance(rule.to, ToWatcher)]
    for name in names:
        if isinstance(existing_rule(bucket, name).to, ToWatcher):
            raise Invalid(
                f"rule {name!r} belongs to a Python handler; run it with: bucketmq watch MODULE:BUCKET {name}"
            )
    return names


def moment(text: str | None) -> float | None:
    """A time as people say it: 2030-01-31T12:00:00Z, or 2h for two hours ago."""
    if text is None:
        return None
    ago = _AGO.match(text)
    if ago:
        return time.time() - float(ago[1]) * _UNIT_SECONDS[ago[2]]
    try:
        found = start_of(text)
    except Invalid:
        found = text
    if not isinstance(found, float):
        raise Invalid(f"{text!r} is not a time; write 2030-01-31T12:00:00Z, or 30m, 2h, 7d for so long ago")
    return found


def replay(
    name: RuleName,
    *,
    key: Annotated[str | None, typer.Option("--key", metavar="KEY", help="One object, as it is now.")] = None,
    prefix: Annotated[
        str | None, typer.Option(metavar="PREFIX", help="Each object that has this key prefix now; '' is all of them.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="What the log has since then, of these keys or all; or 2h, 7d."),
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="And until then.")] = None,
    rate: Annotated[float, typer.Option(metavar="N", help="Events a second, at most.")] = 1_000.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Give one rule events again, under the same ids. Other rules see nothing of it.

    With --key or --prefix, one event for each object that is there now. With --since, what happened then.
    """
    with open_bucket(url) as bucket, Progress(f"replaying to {name}") as progress:
        existing_rule(bucket, name)
        found = bucket.rules.replay(
            name,
            rate_per_second=rate,
            dry_run=dry_run,
            progress=lambda count: progress.show(f"{plural(count, 'event')} so far"),
            key=key,
            prefix=prefix,
            since=moment(since),
            until=moment(until),
        )
    verb = "would be given" if dry_run else "was given"
    text = f"{name} {verb} {plural(found.events, 'event')} again, of {found.looked_at:,} looked at"
    answer({"rule": name, "dry_run": dry_run, **msgspec.to_builtins(found)}, text, as_json=as_json)
    if not found.events:
        raise typer.Exit(Code.EMPTY)


def dead(
    name: RuleName,
    *,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="At most this many.")] = 20,
    full: Annotated[bool, typer.Option("--full", help="Every failed attempt, with what was answered.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List a rule's dead letters, oldest first, with what went wrong."""
    with open_bucket(url, probe=False) as bucket:
        found = Books(bucket).letters_of(existing_rule(bucket, name))
    if not found:
        nothing(f"{name} has no dead letters")
    if as_json:
        emit_all(map(event_letter_row, found[:limit]))
    elif full:
        for letter in found[:limit]:
            _show_full(letter)
    else:
        show_letters(found[:limit])
        say(f"{plural(len(found), 'dead letter')}; send them again: bucketmq rules redrive {name}")


def _show_full(letter: DeadLetter) -> None:
    row = event_letter_row(letter)
    emit_text(f"id        {letter.id}  attempts {row['attempts']}")
    emit_text(f"died      {row['died_at']}")
    emit_text(f"event     {msgspec.json.encode(row['event']).decode()}")
    show_failures(letter)


def redrive(
    name: RuleName,
    *,
    ids: Annotated[list[str] | None, typer.Option("--id", metavar="ID", help="Only this one; may be repeated.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many match.")] = False,
    yes: Yes = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Send a rule's dead letters again, after asking. Those of other rules stay where they are."""
    with open_bucket(url) as bucket:
        rule = existing_rule(bucket, name)
        chosen = [each for each in Books(bucket).letters_of(rule) if ids is None or each.id in ids]
        count = len(chosen) if limit is None else min(len(chosen), limit)
        redriven = 0
        if count and not dry_run:
            agree(f"Send {plural(count, 'dead letter')} of rule {name} again?", yes=yes)
            mine = rule.subscription
            letters = bucket.existing_queue(EVENTS).dead_letters
            # By the subscription, not the name: letters of an earlier rule of this name have nobody left to go to.
            done = letters.redrive(where=lambda letter: letter.subscription == mine, ids=ids, limit=limit)
            redriven = done.redriven
    show_redriven({"rule": name}, name, count, redriven, dry_run=dry_run, as_json=as_json)
