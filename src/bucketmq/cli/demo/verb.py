"""The verb itself: a fresh folder, a crew, a timetable, an account."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from bucketmq.cli.demo import plan
from bucketmq.cli.demo.account import Account, add_up, lines
from bucketmq.cli.demo.crew import Workers
from bucketmq.cli.demo.records import HANDLED
from bucketmq.cli.demo.view import View
from bucketmq.cli.exits import Code
from bucketmq.cli.options import Json
from bucketmq.cli.output import emit, emit_text, screen
from bucketmq.cli.screen import Screen
from bucketmq.client import Queue, connect

LOOK_SECONDS = 0.2


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Keep the folder, to look around afterwards.")] = False,
    seconds: Annotated[float, typer.Option(min=4, max=600, help="How long the producers send.")] = plan.SEND_SECONDS,
    as_json: Json = False,
) -> None:
    """See it work: producers and workers on a local folder, one killed, one frozen, nothing lost.

    Needs no account and no server. Ends by itself in about half a minute; exits with 1 if a message is lost.
    """
    folder = Path(tempfile.mkdtemp(prefix="bucketmq-demo-"))
    url = f"file://{folder}/bucket"
    try:
        with _sigterm_as_exit():
            account = perform(url, folder / "records", seconds)
        if as_json:
            emit(msgspec.to_builtins(account) | {"good": account.good, "url": url if keep else None})
        else:
            _show(account, url, keep=keep)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    if not account.good:
        raise typer.Exit(Code.ERROR)


@contextmanager
def _sigterm_as_exit() -> Iterator[None]:
    """Let SIGTERM unwind the stack, so that every process of the crew is ended."""

    def leave(*_: Any) -> None:
        sys.exit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def perform(url: str, records: Path, seconds: float) -> Account:
    """Run the whole demo in `records` and the bucket at `url`."""
    records.mkdir(parents=True)
    with connect(url) as bucket:
        queue = bucket.queue(plan.QUEUE, **plan.SETTINGS)
        queue.settings()
        with Workers(url, records, seconds) as crew, Screen() as shown:
            shown.tell(f"{plan.PRODUCERS} producers and {plan.WORKERS} workers are starting on {url}")
            view = View(shown, crew)
            took = _run(queue, crew, shown, view, seconds)
            crew.stop_workers()
            view.show(queue.stats())
            return add_up(queue, crew, took)


def _run(queue: Queue, crew: Workers, shown: Screen, view: View, seconds: float) -> float:
    """Keep to the timetable until everything is settled or dead; returns how long that took."""
    began = time.monotonic()
    while not crew.total(HANDLED) and time.monotonic() - began < plan.GIVE_UP_SECONDS:
        _look(queue, crew, view)
    began = time.monotonic()
    timetable = _timetable(crew, shown, seconds)
    due, step = next(timetable)
    last_send = began
    while True:
        now = time.monotonic()
        if now - began >= due:
            step()
            due, step = next(timetable)
        depth = _look(queue, crew, view)
        if crew.sending:
            last_send = now
        elif (depth == 0 and due == float("inf")) or now - last_send > plan.GIVE_UP_SECONDS:
            return now - began


def _look(queue: Queue, crew: Workers, view: View) -> int:
    time.sleep(LOOK_SECONDS)
    crew.look()
    stats = queue.stats()
    view.show(stats)
    return stats.depth


def _timetable(crew: Workers, shown: Screen, seconds: float) -> Iterator[tuple[float, Any]]:
    """What happens when, in seconds after the first message was handled."""
    frozen, killed = crew.members[plan.FROZEN], crew.members[plan.KILLED]

    def freeze() -> None:
        frozen.freeze()
        shown.tell(
            f"{frozen.name} is frozen (SIGSTOP) for {plan.FREEZE_SECONDS:.0f} s; leases last {plan.LEASE_SECONDS:.0f} s"
        )

    def kill() -> None:
        killed.kill()
        shown.tell(f"{killed.name} is killed (SIGKILL) with messages in its hands")

    def wake() -> None:
        frozen.wake()
        shown.tell(f"{frozen.name} wakes up (SIGCONT); what it held is with others by now")

    freeze_at = plan.FREEZE_AT * seconds
    yield freeze_at, freeze
    yield from sorted(
        [(plan.KILL_AT * seconds, kill), (freeze_at + plan.FREEZE_SECONDS, wake)], key=lambda each: each[0]
    )
    while True:
        yield float("inf"), None


def _show(account: Account, url: str, *, keep: bool) -> None:
    console = screen()
    console.print()
    for line in lines(account):
        emit_text(line)
    emit_text("")
    verdict = "nothing was lost: sent = settled + dead" if account.good else "SOMETHING IS WRONG: please report this"
    console.print(f"[bold {'green' if account.good else 'red'}]{verdict}[/]")
    emit_text(f"{account.sent:,} = {account.settled:,} + {account.dead:,}")
    emit_text("")
    emit_text(
        "Look further:" if keep else "To look further, run `bucketmq demo --keep`, which leaves the folder, then:"
    )
    place = url if keep else "file:///..."
    for verb in (f"stats {plan.QUEUE}", f"dead {plan.QUEUE} --full", f"redrive {plan.QUEUE} --dry-run"):
        emit_text(f"  bucketmq --url {place} {verb}")
