"""The verb watch: runs the handlers that a module registered on its bucket, and reports each change."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer

from bucketmq import aio, outcomes
from bucketmq.api.watching import Watcher
from bucketmq.changes import ChangeData
from bucketmq.cli.options import Json
from bucketmq.cli.output import emit, emit_text, flush, plural, say
from bucketmq.cli.worker import Ended, import_here, log_to_stderr, within
from bucketmq.client import Bucket
from bucketmq.errors import Invalid
from bucketmq.procedures.rules.fan_in import Complete
from bucketmq.procedures.rules.notifier import Notifier


def watch(
    where: Annotated[
        str, typer.Argument(metavar="MODULE:BUCKET", help="The bucket in a module; MODULE alone if it has one.")
    ],
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="These handlers; all if left out.")
    ] = None,
    *,
    once: Annotated[bool, typer.Option("--once", help="End when nothing is left to do now.")] = False,
    as_json: Json = False,
) -> None:
    """Run the Python handlers of a bucket: those registered with its watch and when_all.

    Prints a line for each change that was handled. SIGTERM and Ctrl-C finish what is in hand and give the rest back.
    Any number of processes may run the same handlers.
    """
    log_to_stderr()
    bucket = find_bucket(where)
    chosen = bucket.watchers.chosen(names or None)
    if not chosen:
        raise Invalid(f"{where} has no handlers; register one with @bucket.watch(FILTER)")
    lines = Lines(as_json=as_json)
    for name, watcher in chosen.items():
        bucket.watchers.by_name[name] = msgspec.structs.replace(watcher, handler=lines.telling(watcher))
    for watcher in chosen.values():
        say(f"{watcher.name}: {watcher.filter or 'every change'}")

    def started(_: Notifier) -> None:
        say(f"watching with {plural(len(chosen), 'handler')}{'' if once else '; stop it with Ctrl-C'}")

    if isinstance(bucket, aio.Bucket):
        asyncio.run(_run_async(bucket, list(chosen), once, started))
    else:
        with bucket:
            bucket.run_watchers(*chosen, stop_when_empty=once, started=started)
    say(f"{plural(lines.handled, 'change')} handled, {lines.failed:,} failed")


async def _run_async(bucket: aio.Bucket, names: list[str], once: bool, started: Callable[[Notifier], None]) -> None:
    async with bucket:
        await bucket.run_watchers(*names, stop_when_empty=once, started=started)


def find_bucket(where: str) -> Bucket | aio.Bucket:
    """The bucket that `module:name` names, or the only one of a module."""
    module_name, colon, name = where.partition(":")
    if not module_name or (colon and not name):
        raise Invalid(f"{where!r} is not module:bucket, like agents:bucket")
    found = vars(import_here(module_name))
    buckets = {each: value for each, value in found.items() if isinstance(value, Bucket | aio.Bucket)}
    if name:
        if name not in buckets:
            what = f"is {type(found[name]).__name__}, no bucket" if name in found else "does not exist"
            raise Invalid(f"{where} {what}; buckets in it: {', '.join(buckets) or 'none'}")
        return buckets[name]
    different = {id(value): value for value in buckets.values()}
    if len(different) != 1:
        raise Invalid(f"module {module_name!r} has {len(different)} buckets; name one: {module_name}:NAME")
    return next(iter(different.values()))


class Lines:
    """A line for each change that a handler was given."""

    def __init__(self, *, as_json: bool) -> None:
        self.handled = 0
        self.failed = 0
        self._as_json = as_json
        self._lock = threading.Lock()

    def telling(self, watcher: Watcher) -> Callable[[Any], Any]:
        """The same handler, with a line for each call."""
        return within(watcher.handler, lambda given: self._one(watcher.name, given))

    @contextmanager
    def _one(self, name: str, given: Any) -> Iterator[Ended]:
        ended, began, why = Ended(), time.monotonic(), ""
        try:
            yield ended
        except (Exception, SystemExit) as error:
            why = f"{type(error).__name__}: {error}"
            raise
        finally:
            seconds = time.monotonic() - began
            for each, outcome in _each(given, ended.outcome):
                what = outcome_name(outcome) if not why else "over" if getattr(each, "is_over", False) else "failed"
                self._tell(name, each, what, why or getattr(outcome, "reason", ""), seconds)

    def _tell(self, name: str, given: Any, what: str, why: str, seconds: float) -> None:
        row = {"rule": name, **_given_row(given), "outcome": what, "seconds": round(seconds, 3)}
        if isinstance(why, str) and why:
            row["reason"] = why
        with self._lock:
            self.handled += what == "done"
            self.failed += what == "failed"
            if self._as_json:
                emit(row)
            else:
                about = f"{row['kind']} {row['key']}" if "key" in row else f"{', '.join(row['keys'])}"
                reason = f": {why.splitlines()[0]}" if row.get("reason") else ""
                emit_text(f"{datetime.now():%H:%M:%S} {name} {about} {what} in {seconds * 1000:,.0f} ms{reason}")
            flush()


def _each(given: Any, outcome: Any) -> list[tuple[Any, Any]]:
    """What a handler was given, one by one, with what it returned for it."""
    if not isinstance(given, list):
        return [(given, outcome)]
    fits = isinstance(outcome, list | tuple) and len(outcome) == len(given)
    return list(zip(given, outcome if fits else [None] * len(given), strict=True))


def outcome_name(outcome: Any) -> str:
    kind = outcome if inspect.isclass(outcome) else type(outcome)
    return kind.__name__.lower() if issubclass(kind, outcomes.Outcome) else "done"


def _given_row(given: Any) -> dict[str, Any]:
    if isinstance(given, ChangeData):
        return {"event": given.id, "kind": given.kind, "key": given.key, "attempt": given.attempt}
    assert isinstance(given, Complete), "handlers are given changes or complete sets"
    return {"keys": given.keys, "missing": given.missing, "values": given.values}
