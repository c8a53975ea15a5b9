"""`bucketmq stats --watch`: the stats again and again, with what goes in and out between two looks.

On a terminal the picture is drawn over, elsewhere each look is a table, or with --json a line for each queue. A bucket
that cannot be reached is said, and asked again; it ends with Ctrl-C.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime
from time import monotonic, sleep

from rich.console import Group
from rich.live import Live
from rich.text import Text

from bucketmq.cli.exits import tell
from bucketmq.cli.output import emit_all, emit_text, flush, printable, screen
from bucketmq.cli.stats_show import Rate, bill, stats_row, stats_tables
from bucketmq.client import Bucket
from bucketmq.engines.meter import Requests
from bucketmq.errors import Corrupt, Unavailable
from bucketmq.procedures.upkeep.stats import QueueStats

NOTHING = "there are no queues yet; make one: bucketmq send jobs '{\"n\": 1}'"


class Rates:
    """What went in and out since the last look."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[float, QueueStats]] = {}

    def of(self, found: list[QueueStats], now: float) -> dict[str, Rate]:
        """By queue, per second; nothing of a queue that is seen for the first time."""
        rates = {
            each.queue: _rate(was, each, now - at)
            for each in found
            if (known := self._before.get(each.queue)) is not None and now > (at := known[0]) and (was := known[1])
        }
        self._before = {each.queue: (now, each) for each in found}
        return rates


def _rate(before: QueueStats, after: QueueStats, seconds: float) -> Rate:
    had = {each.name: each.settled for each in before.subscriptions}
    out = {
        each.name: max(0.0, (each.settled - had[each.name]) / seconds)
        for each in after.subscriptions
        if each.name in had
    }
    return Rate(max(0.0, (after.sent - before.sent) / seconds), out)


def watch(
    bucket: Bucket, look: Callable[[], list[QueueStats]], *, one: bool, every: float, provider: str, as_json: bool
) -> None:
    """Look until interrupted."""
    rates, began = Rates(), bucket.requests
    live = Live(console=screen(), auto_refresh=False) if sys.stdout.isatty() and not as_json else None
    show = live or Plain()
    with show:
        while True:
            before = bucket.requests
            try:
                found = look()
            except Unavailable as error:
                _away(show, error, as_json=as_json)
            else:
                requests = bucket.requests - before
                between = rates.of(found, monotonic())
                if as_json:
                    _emit(found, between, requests, provider)
                else:
                    lines = [*_notes(found), bill(bucket.requests - began, provider, "since this began")]
                    tables = stats_tables(found, between, one=one) if found else [Text(NOTHING)]
                    clock = Text(f"{datetime.now():%H:%M:%S}  {bucket.api.where}, every {every:g} s; Ctrl-C ends it")
                    show.update(Group(clock, *tables, *(Text(printable(line)) for line in lines)), refresh=True)
            flush()
            sleep(every)


class Plain:
    """Each picture below the last, for a pipe or a file."""

    def __enter__(self) -> Plain:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, picture: Group, *, refresh: bool) -> None:
        emit_text("")
        screen().print(picture)


def _away(show: Live | Plain, error: Unavailable, *, as_json: bool) -> None:
    if as_json:
        tell(error.kind, str(error), as_json=True)
    else:
        text = f"{datetime.now():%H:%M:%S}  the bucket cannot be reached, trying again: {error}"
        show.update(Group(Text(printable(text))), refresh=True)


def _notes(found: list[QueueStats]) -> list[str]:
    advice = [f"{each.queue}: {line}" for each in found for line in each.advice]
    return [*advice, *(f"{Corrupt.kind}: {damage}" for each in found for damage in each.damaged)]


def _emit(found: list[QueueStats], rates: dict[str, Rate], requests: Requests, provider: str) -> None:
    emit_all({**stats_row(each, requests, provider), "per_second": rates.get(each.queue)} for each in found)
