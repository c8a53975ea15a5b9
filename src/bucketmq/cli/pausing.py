"""The verbs queue pause and queue resume: hand out nothing for a while."""

from __future__ import annotations

from typing import Annotated

import typer

from bucketmq.cli.options import Json, QueueName, Url, existing_queue, open_bucket
from bucketmq.cli.output import emit, say
from bucketmq.queue.settings import EVERYBODY, Settings

OneSubscription = Annotated[
    str | None, typer.Option("--subscription", "-s", metavar="NAME", help="Only this one; all if left out.")
]


def pause(
    queue: QueueName,
    *,
    subscription: OneSubscription = None,
    why: Annotated[str, typer.Option(metavar="TEXT", help="The reason, shown in stats and on the dashboard.")] = "",
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Hand out nothing more, to one subscription or to all.

    Sends go on, and so does what is in flight. Workers notice within 30 seconds. Spark queries go on reading.
    """
    with open_bucket(url) as bucket:
        settings = existing_queue(bucket, queue).pause(why, subscription=subscription)
    _tell(queue, subscription, settings, as_json=as_json)


def resume(queue: QueueName, *, subscription: OneSubscription = None, url: Url = None, as_json: Json = False) -> None:
    """End a pause: that of the queue, or that of one subscription. Workers notice within 30 seconds."""
    with open_bucket(url) as bucket:
        settings = existing_queue(bucket, queue).resume(subscription=subscription)
    _tell(queue, subscription, settings, as_json=as_json)


def _tell(queue: str, subscription: str | None, settings: Settings, *, as_json: bool) -> None:
    paused = settings.paused or {}
    if as_json:
        emit({"queue": queue, "paused": paused})
        return
    what = f"queue {queue}" if subscription is None else f"subscription {subscription} of queue {queue}"
    why = paused.get(subscription or EVERYBODY)
    if why is not None:
        one = f" --subscription {subscription}" if subscription else ""
        say(f"{what} is paused: {why}; to go on: bucketmq queue resume {queue}{one}")
        return
    others = ", ".join("all of it" if name == EVERYBODY else name for name in paused)
    say(f"{what} is not paused any more" + (f"; still paused: {others}" if others else ""))
