"""The verb sweep: finds unreported changes, once or again and again."""

from __future__ import annotations

import threading
import time
from typing import Annotated, Any, Literal

import msgspec
import typer

from bucketmq.cli.options import Json, Url, open_bucket
from bucketmq.cli.output import emit, flush, plural, say
from bucketmq.cli.progress import Progress, rate
from bucketmq.client import Bucket
from bucketmq.engines.signals import StopOnSignal
from bucketmq.errors import Unavailable
from bucketmq.procedures.objects.sweep import Swept


class Stop(threading.Event):
    """An event that a signal sets."""

    stop = threading.Event.set


def sweep(
    *,
    prefix: Annotated[str, typer.Option(metavar="PREFIX", help="Only keys below it; it ends with '/'.")] = "",
    first: Annotated[
        Literal["existing", "baseline"],
        typer.Option(help="The first sweep: events for what exists, or only a baseline."),
    ] = "existing",
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="The inventory to compare with; named after the prefix.")
    ] = None,
    every: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0.1, help="Sweep again and again, until Ctrl-C or SIGTERM.")
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List the bucket, compare with last time, report what is new, changed or gone.

    It goes on where a sweep that was interrupted stopped. Several may run at once.
    """
    stop = Stop()
    with open_bucket(url) as bucket, StopOnSignal(active=every is not None) as signals:
        signals.watch(stop)
        while True:
            try:
                _sweep_once(bucket, {"prefix": prefix, "baseline": first == "baseline", "name": name}, as_json)
            except Unavailable as error:
                if every is None:
                    raise
                say(f"not swept: {error}")
            flush()
            if every is None or stop.wait(every):
                return


def _sweep_once(bucket: Bucket, options: dict[str, Any], as_json: bool) -> None:
    began = time.monotonic()
    with Progress("sweeping") as progress:
        swept = bucket.sweep(progress=lambda done: progress.show(_text(done, began)), **options)
    if as_json:
        seconds = time.monotonic() - began
        emit({**msgspec.to_builtins(swept), "seconds": round(seconds, 3)})
    else:
        say(f"{'went on with an interrupted sweep: ' if swept.resumed else ''}{_text(swept, began)}")


def _text(swept: Swept, began: float) -> str:
    noted = f", {swept.noted:,} noted as the baseline" if swept.noted else ""
    return (
        f"{plural(swept.keys, 'key')} at {rate(swept.keys, began):,.0f} a second: {swept.created:,} new, "
        f"{swept.changed:,} changed, {swept.deleted:,} gone{noted}"
    )
