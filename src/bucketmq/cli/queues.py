"""Verbs that make and look after queues: init, shards, stats, purge."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from bucketmq.cli.exits import Code, agree, nothing
from bucketmq.cli.options import (
    Json,
    QueueName,
    SubscriptionName,
    Url,
    Yes,
    existing_queue,
    existing_subscription,
    open_bucket,
)
from bucketmq.cli.output import answer, emit, emit_all, plural, say, table
from bucketmq.cli.stats_show import bill, show_stats, stats_row
from bucketmq.cli.stats_watch import NOTHING
from bucketmq.cli.stats_watch import watch as again
from bucketmq.client import Queue
from bucketmq.errors import Corrupt, NotFound
from bucketmq.pricing import FOLDER, PRICES, prices_of
from bucketmq.procedures.upkeep.stats import QueueStats
from bucketmq.queue.settings import MAIN
from bucketmq.server.place import folder_of

Provider = Annotated[
    str, typer.Option("--provider", help="Whose prices: s3, s3-express, gcs, azure, r2 or tigris.", metavar="NAME")
]


def init(
    queue: QueueName,
    *,
    shards: Annotated[int | None, typer.Option(help="Number of shards; more let more processes write at once.")] = None,
    shards_max: Annotated[int | None, typer.Option(help="Workers may add shards by themselves, up to this.")] = None,
    ordered: Annotated[bool, typer.Option("--ordered", help="Per key: one in flight, in the order sent.")] = False,
    lease: Annotated[float | None, typer.Option(help="Seconds a receiver has before others get the message.")] = None,
    attempts: Annotated[int | None, typer.Option(help="Deliveries before a message becomes a dead letter.")] = None,
    keep: Annotated[float | None, typer.Option(help="Seconds that settled messages stay readable.")] = None,
    expire: Annotated[
        float | None, typer.Option(help="Seconds until unsettled messages are dropped; 0: never.")
    ] = None,
    dedup: Annotated[float | None, typer.Option(help="Seconds a deduplication key is remembered.")] = None,
    in_flight_max: Annotated[int | None, typer.Option(help="Most messages in flight or delayed, per shard.")] = None,
    main: Annotated[
        bool | None,
        typer.Option("--main/--no-main", help="Whether messages are kept until the subscription main settled them."),
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Make a queue, or change its settings.

    Sending makes a queue too; use this to choose settings first. Settings that are not given stay as they are.
    """
    given: dict[str, Any] = {
        "shards": shards,
        "shards_max": shards_max,
        "ordered": ordered or None,
        "lease_seconds": lease,
        "attempts_max": attempts,
        "keep_seconds": keep,
        "expire_seconds": expire,
        "dedup_seconds": dedup,
        "in_flight_max": in_flight_max,
        "main": main,
    }
    with open_bucket(url) as bucket:
        chosen = {name: value for name, value in given.items() if value is not None}
        settings = msgspec.to_builtins(bucket.queue(queue, **chosen).settings())
    if as_json:
        emit({"queue": queue, **settings})
        return
    table(("setting", "value"), settings.items())
    say(f"queue {queue} is ready; next: bucketmq send {queue} '{{\"n\": 1}}'")


def shards(
    queue: QueueName,
    count: Annotated[int, typer.Argument(metavar="N", help="The new number of shards.")],
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Raise a queue's shard count, while it is in use.

    More shards let more processes write at once. The count cannot be lowered. Other processes notice within 30 seconds.
    """
    with open_bucket(url) as bucket:
        found = existing_queue(bucket, queue)
        before = found.settings().shards
        after = found.raise_shards(count).shards
    row = {"queue": queue, "shards": after, "shards_before": before}
    answer(row, f"queue {queue} has {plural(after, 'shard')}; it had {before}", as_json=as_json)


def stats(
    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="One queue; all of them if left out.")] = None,
    *,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show them again and again, until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="How often, with --watch.")] = 2.0,
    provider: Annotated[
        str | None,
        typer.Option(help=f"Whose prices: {', '.join(PRICES)}. Default: s3; a folder costs nothing.", metavar="NAME"),
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show how queues are doing: how many messages are ready, in flight, delayed and dead.

    Ready may be handed out now; in flight is in some receiver's hands; delayed may be handed out later: a retry that
    backs off, or a send with a delay. A message counts once for each subscription that has not settled it.

    Costs a handful of requests however deep the queue is. Those of this very call are shown with their price. Exits
    with 1 if a queue is damaged. With --watch also what goes in and out per second between two looks.
    """
    if provider is not None:
        prices_of(provider)
    with open_bucket(url, probe=False) as bucket:
        prices = provider or ("s3" if folder_of(bucket) is None else FOLDER.provider)

        def look() -> list[QueueStats]:
            names = [queue] if queue is not None else bucket.queues()
            return [existing_queue(bucket, name).stats() for name in names]

        if watch:
            again(bucket, look, one=queue is not None, every=every, provider=prices, as_json=as_json)
        before = bucket.requests
        found = look()
        requests = bucket.requests - before
    damaged = ". ".join(str(damage) for each in found for damage in each.damaged)
    if not found:
        nothing(NOTHING)
    if as_json:
        emit_all(stats_row(each, requests, prices) for each in found)
    else:
        show_stats(found, one=queue is not None)
        say(bill(requests, prices, "this call"))
    if damaged:
        raise Corrupt(damaged)


def purge(
    queue: QueueName,
    *,
    subscription: SubscriptionName = MAIN,
    dead: Annotated[bool, typer.Option("--dead", help="Purge the dead letters instead.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many there are.")] = False,
    yes: Yes = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Drop everything unsettled, after asking. There is no way back."""
    with open_bucket(url) as bucket:
        found = existing_queue(bucket, queue)
        reader = None if dead else existing_subscription(found, subscription)
        count, what = _purgeable(found, subscription, dead)
        purged = 0
        if count and not dry_run:
            agree(f"Purge {plural(count, what)} of {queue}?", yes=yes)
            purged = found.dead_letters.purge() if reader is None else reader.purge()
    text = f"{plural(count, what)} would be purged" if dry_run else f"purged {plural(purged, what)}"
    answer({"queue": queue, "matched": count, "purged": purged}, text, as_json=as_json)
    if not count:
        raise typer.Exit(Code.EMPTY)


def _purgeable(queue: Queue, subscription: str, dead: bool) -> tuple[int, str]:
    stats = queue.stats()
    if dead:
        return stats.dead, "dead letter"
    found = [each for each in stats.subscriptions if each.name == subscription]
    if not found:
        names = ", ".join(each.name for each in stats.subscriptions)
        raise NotFound(f"nobody reads {subscription} of {queue.name}; name another with --subscription: {names}")
    return found[0].depth, "message"
