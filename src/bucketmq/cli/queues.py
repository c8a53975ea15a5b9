"""Verbs that make and look after queues: init, shards, stats, purge."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import typer

from bucketmq.cli.exits import Code, tell
from bucketmq.cli.options import (
    Json,
    QueueName,
    SubscriptionName,
    Url,
    Yes,
    existing_queue,
    existing_subscription,
    open_bucket,
    wants_json,
)
from bucketmq.cli.output import age, ask, clear, emit, flush, plural, say, table
from bucketmq.client import Queue
from bucketmq.engines.meter import Requests
from bucketmq.errors import Corrupt, NotFound
from bucketmq.pricing import cost, dollars, prices_of
from bucketmq.procedures.upkeep.stats import QueueStats, ReaderStats, SubscriptionStats
from bucketmq.queue.settings import MAIN

Provider = Annotated[
    str, typer.Option("--provider", help="Whose prices: s3, s3-express, gcs, azure, r2 or tigris.", metavar="NAME")
]


def init(
    context: typer.Context,
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
    with open_bucket(context, url) as bucket:
        chosen = {name: value for name, value in given.items() if value is not None}
        settings = msgspec.to_builtins(bucket.queue(queue, **chosen).settings())
    if wants_json(context, as_json):
        emit({"queue": queue, **settings})
        return
    table(("setting", "value"), settings.items())
    say(f"queue {queue} is ready; next: bucketmq send {queue} '{{\"n\": 1}}'")


def shards(
    context: typer.Context,
    queue: QueueName,
    count: Annotated[int, typer.Argument(metavar="N", help="The new number of shards.")],
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Raise a queue's shard count, while it is in use.

    More shards let more processes write at once. The count cannot be lowered. Other processes notice within 30 seconds.
    """
    with open_bucket(context, url) as bucket:
        found = existing_queue(bucket, queue)
        before = found.settings().shards
        after = found.raise_shards(count).shards
    if wants_json(context, as_json):
        emit({"queue": queue, "shards": after, "shards_before": before})
    else:
        say(f"queue {queue} has {plural(after, 'shard')}; it had {before}")


def stats(
    context: typer.Context,
    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="One queue; all of them if left out.")] = None,
    *,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show them again and again, until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="How often, with --watch.")] = 2.0,
    provider: Provider = "s3",
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show how queues are doing: how many messages are ready, in flight, delayed and dead.

    Ready may be handed out now; in flight is in some receiver's hands; delayed may be handed out later: a retry that
    backs off, or a send with a delay. A message counts once for each subscription that has not settled it.

    Costs a handful of requests however deep the queue is. Those of this very call are shown with their price. Exits
    with 1 if a queue is damaged.
    """
    prices_of(provider)
    show_json = wants_json(context, as_json)
    with open_bucket(context, url, probe=False) as bucket:
        while True:
            before = bucket.requests
            names = [queue] if queue is not None else bucket.queues()
            found = [existing_queue(bucket, name).stats() for name in names]
            requests = bucket.requests - before
            damaged = ". ".join(str(damage) for each in found for damage in each.damaged)
            if watch and not show_json:
                clear()
            if show_json:
                for each in found:
                    emit(stats_row(each, requests, provider))
            elif found:
                show_stats(found, one=queue is not None)
                say(bill(requests, provider, "this call"))
            if not watch:
                break
            if damaged:
                tell(Corrupt.kind, damaged, as_json=show_json)
            flush()
            time.sleep(every)
    if not found:
        say("there are no queues yet; make one: bucketmq send jobs '{\"n\": 1}'")
        raise typer.Exit(Code.EMPTY)
    if damaged:
        raise Corrupt(damaged)


def stats_row(stats: QueueStats, requests: Requests, provider: str) -> dict[str, Any]:
    """The stats of a queue as JSON: when they were taken, the requests that took, and their price."""
    row: dict[str, Any] = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), **msgspec.to_builtins(stats)}
    row["requests"] = msgspec.to_builtins(requests)
    row["price"] = {"provider": provider, "usd": cost(requests, provider)}
    return row


def show_stats(found: list[QueueStats], *, one: bool) -> None:
    table(
        ("queue", "#ready", "#in flight", "#delayed", "#dead", "oldest ready", "#sent", "#shards"),
        [
            (
                each.queue,
                f"{each.ready:,}",
                f"{each.in_flight:,}",
                f"{'≥ ' if each.delayed_is_at_least else ''}{each.delayed:,}",
                f"{each.dead:,}",
                age(each.oldest_ready_seconds),
                f"{each.sent:,}",
                each.shards,
            )
            for each in found
        ],
    )
    if one:
        _show_shards(found[0].subscriptions)
        _show_readers(found[0].readers)
    for each in found:
        for line in each.advice:
            say(f"{each.queue}: {line}")


def _show_shards(subscriptions: tuple[SubscriptionStats, ...]) -> None:
    if subscriptions:
        table(
            (
                "subscription",
                "#shard",
                "#ready",
                "#in flight",
                "#delayed",
                "oldest ready",
                "#end of log",
                "#processes",
                "#conflicts",
            ),
            [
                (
                    sub.name if place == 0 else "",
                    shard.shard,
                    f"{shard.ready:,}",
                    f"{shard.in_flight:,}",
                    f"{shard.delayed:,}",
                    age(shard.oldest_ready_seconds),
                    f"{shard.tail:,}",
                    sub.holders if place == 0 else "",
                    f"{sub.conflict_rate:.0%}" if place == 0 else "",
                )
                for sub in subscriptions
                for place, shard in enumerate(sub.shards)
            ],
        )


def _show_readers(readers: tuple[ReaderStats, ...]) -> None:
    """Readers that keep their own progress, such as Spark queries. Most queues have none, and show nothing."""
    if readers:
        table(
            ("reader", "#lag", "last progress", "holds back trimming"),
            [(each.name, f"{each.lag:,}", age(each.idle_seconds), "yes" if each.holds else "no") for each in readers],
        )


def bill(requests: Requests, provider: str, what: str) -> str:
    """Requests and their price, in a line."""
    kinds = ("get", "create", "replace", "list", "delete")
    made = ", ".join(f"{count:,} {kind}" for kind in kinds if (count := getattr(requests, kind)))
    return f"{what}: {made or 'no requests'} = {dollars(cost(requests, provider))} on {prices_of(provider).name}"


def purge(
    context: typer.Context,
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
    with open_bucket(context, url) as bucket:
        found = existing_queue(bucket, queue)
        reader = None if dead else existing_subscription(found, subscription)
        count, what = _purgeable(found, subscription, dead)
        purged = 0
        if count and not dry_run:
            if not ask(f"Purge {plural(count, what)} of {queue}?", yes=yes):
                say("nothing was changed")
                raise typer.Exit(Code.ERROR)
            purged = found.dead_letters.purge() if reader is None else reader.purge()
    if wants_json(context, as_json):
        emit({"queue": queue, "matched": count, "purged": purged})
    else:
        say(f"{plural(count, what)} would be purged" if dry_run else f"purged {plural(purged, what)}")
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
