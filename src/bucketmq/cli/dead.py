"""Verbs for dead letters: dead, redrive."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated

import typer

from bucketmq.cli.exits import Code, agree, nothing
from bucketmq.cli.options import Json, QueueName, Url, Yes, existing_queue, open_bucket
from bucketmq.cli.output import age, answer, body_text, emit_all, emit_text, plural, say, table
from bucketmq.deliveries import DeadLetter, message_dict
from bucketmq.events.rule import spoken

BODY_CHARACTERS = 60
REASON_CHARACTERS = 80


def dead(
    queue: QueueName,
    *,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="At most this many.")] = 20,
    full: Annotated[bool, typer.Option("--full", help="Every failed attempt, with its traceback.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List dead letters, oldest first, with the reason of each."""
    with open_bucket(url, probe=False) as bucket:
        found = existing_queue(bucket, queue).dead_letters.peek(limit)
    if not found:
        nothing(f"{queue} has no dead letters")
    if as_json:
        emit_all(letter.to_dict() for letter in found)
    elif full:
        for letter in found:
            _show_full(queue, letter)
    else:
        _show_table(found)
        say(f"see every attempt: bucketmq dead {queue} --full; send them again: bucketmq redrive {queue}")


def _show_table(letters: list[DeadLetter]) -> None:
    rows = [
        (one.id, *when_and_after(one), one.reason[:REASON_CHARACTERS], body_text(message_dict(one), BODY_CHARACTERS))
        for one in letters
    ]
    table(("id", "died", "#attempts", "reason", "body"), rows)


def when_and_after(letter: DeadLetter) -> tuple[str, object]:
    """How long ago a letter died, and after how many attempts."""
    died = letter.message.died
    if died is None:
        return "", ""
    return age((datetime.now(UTC) - datetime.fromisoformat(died.at)).total_seconds()), died.attempts


def _show_full(queue: str, letter: DeadLetter) -> None:
    row = letter.to_dict()
    emit_text(f"id        {letter.id}  subscription {spoken(queue, letter.subscription)}  attempts {row['attempts']}")
    emit_text(f"sent      {row['sent_at']}")
    emit_text(f"died      {row['died_at']}")
    emit_text(f"body      {body_text(row)}")
    show_failures(letter)


def show_failures(letter: DeadLetter) -> None:
    """Every attempt, with all of its error, and an empty line."""
    for failure in letter.failures:
        emit_text(f"attempt {failure['attempt']}  {failure['at'] or ''}  {failure['holder'] or ''}".rstrip())
        for line in failure["error"].splitlines():
            emit_text(f"    {line}")
    emit_text("")


def redrive(
    queue: QueueName,
    *,
    ids: Annotated[list[str] | None, typer.Option("--id", metavar="ID", help="Only this one; may be repeated.")] = None,
    where: Annotated[str | None, typer.Option(metavar="TEXT", help="Only those with this text in an error.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many match.")] = False,
    yes: Yes = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Send dead letters again, all of them or those that match, after asking.

    They go back to the subscription in which they died, and have all their attempts again.
    """
    with open_bucket(url) as bucket:
        letters = existing_queue(bucket, queue).dead_letters
        # Counted without the limit, which would count letters looked at, not letters that match.
        matched = letters.redrive(ids=ids, where=_mentions(where), dry_run=True).matched
        count = matched if limit is None else min(matched, limit)
        redriven = 0
        if count and not dry_run:
            agree(f"Send {plural(count, 'dead letter')} of {queue} again?", yes=yes)
            redriven = letters.redrive(ids=ids, where=_mentions(where), limit=limit).redriven
    show_redriven({"queue": queue}, queue, count, redriven, dry_run=dry_run, as_json=as_json)


def show_redriven(row: dict[str, str], name: str, count: int, redriven: int, *, dry_run: bool, as_json: bool) -> None:
    """What became of dead letters that matched."""
    text = f"{plural(redriven, 'dead letter')} sent again" if count else f"no dead letter of {name} matches"
    if dry_run:
        text = f"{plural(count, 'dead letter')} would be sent again"
    answer({**row, "matched": count, "redriven": redriven}, text, as_json=as_json)
    if not count:
        raise typer.Exit(Code.EMPTY)


def _mentions(text: str | None) -> Callable[[DeadLetter], bool] | None:
    """Whether any failure of a letter has this text in its error."""
    if text is None:
        return None
    return lambda letter: any(text in failure["error"] for failure in letter.failures)
