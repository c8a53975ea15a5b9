"""Verbs that make and look after queues: init, shards, stats, purge."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from bucketmq.cli.exits import Code
from bucketmq.cli.options import (
    Json,
    QueueName,
    SubscriptionName,
    Url,
    Yes,
    existing_subscription,
    open_bucket,
    wants_json,
)
from bucketmq.cli.output import age, ask, emit, plural, say, table
from bucketmq.client import Bucket
from bucketmq.engines.meter import Requests
from bucketmq.pricing import cost, dollars, prices_of
from bucketmq.procedures.stats import QueueStats, ReaderStats, SubscriptionStats
from bucketmq.queue.settings import MAIN, SHARDS_MAX

READER_IDLE_SECONDS = 86400.0
"""A reader that holds back messages and has not moved for so long may have ended for good."""

Provider = Annotated[
    str, typer.Option("--provider", help="Whose prices: s3, s3-express, gcs, azure, r2 or tigris.", metavar="NAME")
]


def init(
    context: typer.Context,
    queue: QueueName,
    *,
    shards: Annotated[int | None, typer.Option(help="How many shards; more allow more writers at once.")] = None,
    shards_max: Annotated[int | None, typer.Option(help="Workers may add shards up to this by themselves.")] = None,
    ordered: Annotated[bool, typer.Option("--ordered", help="Per key: one in flight, in the order sent.")] = False,
    lease: Annotated[float | None, typer.Option(help="Seconds a receiver has before others get the message.")] = None,
    attempts: Annotated[int | None, typer.Option(help="Deliveries before a message becomes a dead letter.")] = None,
    keep: Annotated[float | None, typer.Option(help="Seconds that settled messages stay readable.")] = None,
    expire: Annotated[float | None, typer.Option(help="Seconds after which unsettled messages go; 0: never.")] = None,
    dedup: Annotated[float | None, typer.Option(help="Seconds a deduplication key is remembered.")] = None,
    in_flight_max: Annotated[int | None, typer.Option(help="Most messages handed out at once, per shard.")] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Make a queue, or change its settings.

    Sending makes a queue too; use this to choose settings first. What you leave out stays as it is.
    """
    given = {
        "shards": shards,
        "shards_max": shards_max,
        "ordered": ordered or None,
        "lease_seconds": lease,
        "attempts_max": attempts,
        "keep_seconds": keep,
        "expire_seconds": expire,
        "dedup_seconds": dedup,
        "in_flight_max": in_flight_max,
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

    More shards let more processes write at once. The count cannot be lowered. Others notice within half a minute.
    """
    with open_bucket(context, url) as bucket:
        found = bucket.existing_queue(queue)
        before = found.settings().shards
        after = found.raise_shards(count).shards
    if wants_json(context, as_json):
        emit({"queue": queue, "shards": after, "shards_before": before})
    else:
        say(f"queue {queue} has {plural(after, 'shard')}; it had {before}")


def stats(
    context: typer.Context,
    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="One queue; all of them if left out.")] = None,
    provider: Provider = "s3",
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show how queues are doing: depth, in flight, dead, oldest age.

    Costs a handful of requests however deep the queue is. Those of this very call are shown with their price.
    """
    prices_of(provider)
    with open_bucket(context, url, probe=False) as bucket:
        names = [queue] if queue is not None else bucket.queues()
        found = [bucket.existing_queue(name).stats() for name in names]
        requests = bucket.requests
    if not found:
        say("there are no queues yet; make one: bucketmq send jobs '{\"n\": 1}'")
        raise typer.Exit(Code.EMPTY)
    if wants_json(context, as_json):
        for each in found:
            emit(stats_row(each, requests, provider))
        return
    show_stats(found, one=queue is not None)
    say(bill(requests, provider, "this call"))


def stats_row(stats: QueueStats, requests: Requests, provider: str) -> dict[str, Any]:
    """The stats of a queue as JSON, with advice, the requests that asking took, and their price."""
    row: dict[str, Any] = msgspec.to_builtins(stats)
    row["advice"] = advice(stats)
    row["requests"] = msgspec.to_builtins(requests)
    row["price"] = {"provider": provider, "usd": cost(requests, provider)}
    return row


def show_stats(found: list[QueueStats], *, one: bool) -> None:
    table(
        ("queue", "#depth", "#in flight", "#waiting", "#delayed", "#dead", "oldest", "#sent", "#shards"),
        [
            (
                each.queue,
                f"{each.depth:,}",
                f"{each.in_flight:,}",
                f"{each.waiting:,}",
                f"{'≥ ' if each.delayed_is_at_least else ''}{each.delayed:,}",
                f"{each.dead:,}",
                age(each.oldest_age_seconds),
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
        for line in advice(each):
            say(f"{each.queue}: {line}")


def _show_shards(subscriptions: tuple[SubscriptionStats, ...]) -> None:
    table(
        (
            "subscription",
            "#shard",
            "#depth",
            "#in flight",
            "#waiting",
            "oldest",
            "#end of log",
            "#processes",
            "#conflicts",
        ),
        [
            (
                sub.name if place == 0 else "",
                shard.shard,
                f"{shard.depth:,}",
                f"{shard.in_flight:,}",
                f"{shard.waiting:,}",
                age(shard.oldest_age_seconds),
                f"{shard.tail:,}",
                sub.holders if place == 0 else "",
                f"{sub.conflict_rate:.0%}" if place == 0 else "",
            )
            for sub in subscriptions
            for place, shard in enumerate(sub.shards)
        ],
    )


def _show_readers(readers: tuple[ReaderStats, ...]) -> None:
    """Queries and whoever else reads by offsets. None is the usual case, and shows nothing."""
    if readers:
        table(
            ("reader", "#lag", "last progress", "holds back trimming"),
            [(each.name, f"{each.lag:,}", age(each.idle_seconds), "yes" if each.holds else "no") for each in readers],
        )


def advice(stats: QueueStats) -> list[str]:
    """What to do about what the numbers show."""
    lines = [
        f"{sub.name}: {sub.advice}; add shards: bucketmq shards {stats.queue} {_enough(sub, stats.shards)}"
        for sub in stats.subscriptions
        if sub.advice
    ]
    lines += [
        f"reader {each.name} has not moved for {age(each.idle_seconds)} and holds back {plural(each.lag, 'message')}; "
        f"if it ended: bucketmq spark forget {stats.queue} {each.name}"
        for each in stats.readers
        if each.holds and each.lag and each.idle_seconds > READER_IDLE_SECONDS
    ]
    if stats.dead:
        lines.append(f"{plural(stats.dead, 'dead letter')}; look at them: bucketmq dead {stats.queue}")
    return lines


def _enough(sub: SubscriptionStats, shards: int) -> int:
    return min(SHARDS_MAX, max(2 * shards, sub.holders))


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
    """Forget everything unsettled, after asking. There is no way back."""
    with open_bucket(context, url) as bucket:
        count, what = _purgeable(bucket, queue, subscription, dead)
        purged = 0
        if count and not dry_run:
            if not ask(f"Purge {plural(count, what)} of {queue}?", yes=yes):
                say("nothing was changed")
                raise typer.Exit(Code.ERROR)
            found = bucket.existing_queue(queue)
            purged = found.dead_letters.purge() if dead else existing_subscription(bucket, queue, subscription).purge()
    if wants_json(context, as_json):
        emit({"queue": queue, "matched": count, "purged": purged})
    else:
        say(f"{plural(count, what)} would be purged" if dry_run else f"purged {plural(purged, what)}")
    if not count:
        raise typer.Exit(Code.EMPTY)


def _purgeable(bucket: Bucket, queue: str, subscription: str, dead: bool) -> tuple[int, str]:
    found = bucket.existing_queue(queue).stats()
    if dead:
        return found.dead, "dead letter"
    existing_subscription(bucket, queue, subscription)
    return next(each.depth for each in found.subscriptions if each.name == subscription), "message"
