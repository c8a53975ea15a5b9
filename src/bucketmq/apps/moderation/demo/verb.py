"""The verb `moderation demo`: the whole pipeline on this machine, with what happens shown as it happens."""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from bucketmq.cli.exits import end
from bucketmq.cli.options import Json
from bucketmq.cli.output import emit, emit_text, screen
from bucketmq.cli.screen import Screen
from bucketmq.crew import Scene

if TYPE_CHECKING:
    from bucketmq.apps.moderation.demo.account import Account
    from bucketmq.apps.moderation.demo.show import Look, Show

BAR = 40


def demo(
    count: Annotated[int, typer.Option(min=20, max=5000, help="How many made-up posts are submitted.")] = 300,
    classifier: Annotated[str, typer.Option(help="The classifier: embedded, claude or cascade.")] = "embedded",
    keep: Annotated[bool, typer.Option("--keep", help="Leave everything running until Ctrl-C.")] = False,
    as_json: Json = False,
) -> None:
    """See moderation work: ingest, Spark, router and review desk on a local folder; the router is killed on the way.

    Needs no account and no server. Ends by itself in about two minutes; exits with 1 if a post is lost. Its folder goes
    with it, unless something failed: then the logs in it are kept.
    """
    from bucketmq.apps.moderation.classify.choose import choice_of
    from bucketmq.apps.moderation.demo.show import Plan, Show

    choice_of(classifier)  # refused before anything is started
    with Scene("moderation") as scene:
        plan = Plan(url=scene.url, folder=scene.folder, count=count, classifier=classifier)
        with Screen() as shown, Show(plan, functools.partial(_show, shown)) as show:
            account = show.run()
            shown.close()
            if as_json:
                told = msgspec.to_builtins(account) | {"good": account.good}
                emit(told | ({"bucket": plan.url, "desk": show.desk.link} if keep else {}))
            else:
                _tell(account)
                if keep:
                    emit_text(f"dashboard   {show.desk.link}")
                    emit_text(f"bucket      {plan.url}")
                    emit_text("Everything goes on running. Ctrl-C ends it.")
                else:
                    emit_text(f"The dashboard was at {show.desk.url}; --keep (make demo KEEP=1) leaves it running.")
            if keep:
                _until_interrupted(show)
        scene.good = account.good
    end(scene)


def _until_interrupted(show: Show) -> None:
    sys.stdout.flush()
    with contextlib.suppress(KeyboardInterrupt):
        show.stay()


def _show(shown: Screen, look: Look) -> None:
    shown.tell(look.note)
    shown.show(lambda: _picture(look), lambda: "  ".join(f"{name} {number}" for name, number in _steps(look)))


def _steps(look: Look) -> list[tuple[str, int]]:
    objects = look.objects
    return [
        ("accepted", look.accepted),
        *(
            (prefix.rstrip("/"), objects.get(prefix, 0))
            for prefix in ("pending/", "approved/", "needs-review/", "flagged/")
        ),
        ("notices", look.notices),
    ]


STYLES = {"pending": "yellow", "approved": "green", "needs-review": "cyan", "flagged": "red", "notices": "magenta"}


def _picture(look: Look) -> Group:
    table = Table(box=SIMPLE_HEAD, show_header=False)
    most = max(1, look.accepted)
    for name, number in _steps(look):
        bar = Text("█" * round(BAR * number / most), style=STYLES.get(name, "white"))
        table.add_row(name, f"{number:,}", bar)
    states = "   ".join(f"{name}: {state}" for name, state in look.states.items())
    return Group(Text(f"{look.seconds:5.1f} s  {look.note}", style="bold"), table, Text(states, style="dim"))


def _tell(account: Account) -> None:
    rows = (
        ("accepted", account.accepted, "answered 201: durable in the queue submissions"),
        ("  repeated", account.repeated, "submitted twice, judged once"),
        ("  revised", account.revised, "another text under the same id: a new revision"),
        ("refused", account.refused, "not JSON, or no text: answered 400"),
        *((f"in {prefix}", number, "") for prefix, number in account.outcomes.items()),
        ("lost", account.lost, " ".join(account.examples)),
        ("in two places", account.twice, ""),
        ("flagged", account.flagged, f"{account.noticed} of them told to the reviewers"),
        ("notices refused", account.notices_refused, "by a webhook having a bad day, and sent again"),
    )
    emit_text("")
    for name, number, text in rows:
        emit_text(f"{name:<18}{number:>6,}  {text}".rstrip())
    emit_text("")
    emit_text(f"{'step':<24}{'median':>9}{'90 %':>9}")
    for step in account.steps:
        emit_text(f"{step.step:<24}{step.median:>7.2f} s{step.most:>7.2f} s")
    for problem in account.failed[:5]:
        emit_text(f"unexpected: {problem}")
    emit_text("")
    good = "nothing was lost: every accepted post is in exactly one place, every flagged one was told"
    text = good if account.good else "SOMETHING IS WRONG: please report this"
    screen().print(f"[bold {'green' if account.good else 'red'}]{text}[/]")
