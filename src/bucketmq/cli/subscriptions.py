"""The verbs subscriptions ls and rm: which readers a queue has, and removing one that is not used any more."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from bucketmq.cli.exits import agree, nothing
from bucketmq.cli.options import Json, QueueName, Url, Yes, existing_queue, open_bucket
from bucketmq.cli.output import age, answer, emit_all, plural, say, table


def ls(queue: QueueName, url: Url = None, as_json: Json = False) -> None:
    """List a queue's subscriptions: how far each has come, and when it was last read.

    Messages are kept until every subscription has settled them. Remove one that nobody reads any more.
    """
    with open_bucket(url, probe=False) as bucket:
        found = existing_queue(bucket, queue).subscriptions()
    if not found:
        nothing(f"{queue} has no subscriptions yet; make one: bucketmq receive {queue} -s NAME --start earliest")
    if as_json:
        emit_all({"queue": queue, **msgspec.to_builtins(each)} for each in found)
        return
    table(
        ("subscription", "#ready", "#in flight", "#delayed", "oldest ready", "last read"),
        [
            (
                each.name,
                f"{each.ready:,}",
                f"{each.in_flight:,}",
                f"{each.delayed:,}",
                age(each.oldest_ready_seconds),
                "never" if each.idle_seconds is None else f"{age(each.idle_seconds)} ago",
            )
            for each in found
        ],
    )
    for each in found:
        if each.advice:
            say(f"{each.name}: {each.advice}")


def rm(
    queue: QueueName,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The subscription's name.")],
    *,
    force: Annotated[bool, typer.Option("--force", help="Even if messages are in flight.")] = False,
    yes: Yes = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Remove a subscription with everything it has not settled, after asking. There is no way back.

    Stop its workers first: one that goes on reading makes the subscription again, from the oldest message that is kept.
    """
    with open_bucket(url) as bucket:
        found = existing_queue(bucket, queue)
        count = next((each.depth for each in found.subscriptions() if each.name == name), 0)
        unsettled = f" with {plural(count, 'message')} it has not settled" if count else ""
        agree(f"Remove subscription {name} of {queue}{unsettled}?", yes=yes)
        found.remove_subscription(name, force=force)
    row = {"queue": queue, "subscription": name, "unsettled": count}
    answer(row, f"removed subscription {name} of {queue}{unsettled}", as_json=as_json)
