"""Stats of queues for people and as JSON, and requests with their price. Looking at queues belongs to the verbs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from rich.table import Table

from bucketmq.cli.output import age, made_table, say, screen
from bucketmq.engines.meter import Requests
from bucketmq.events.rule import spoken
from bucketmq.pricing import cost, dollars, prices_of
from bucketmq.procedures.upkeep.stats import QueueStats, ReaderStats


class Rate(msgspec.Struct, frozen=True):
    """What went into a queue and out of it, per second."""

    sent: float
    settled: dict[str, float]
    """By subscription."""


def stats_row(stats: QueueStats, requests: Requests, provider: str) -> dict[str, Any]:
    """The stats of a queue as JSON: when they were taken, the requests that took, and their price."""
    row: dict[str, Any] = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), **msgspec.to_builtins(stats)}
    row["requests"] = msgspec.to_builtins(requests)
    row["price"] = {"provider": provider, "usd": cost(requests, provider)}
    return row


def show_stats(found: list[QueueStats], *, one: bool) -> None:
    """On standard output, with what to do about it on standard error."""
    for each in stats_tables(found, None, one=one):
        screen().print(each)
    for queue in found:
        for line in queue.advice:
            say(f"{queue.queue}: {line}")


def stats_tables(found: list[QueueStats], rates: dict[str, Rate] | None, *, one: bool) -> list[Table]:
    """A row for each queue; of one queue its subscriptions, shards and readers too. `rates`: what goes in and out."""
    between = ("#in/s", "#out/s") if rates is not None else ()
    queues = made_table(
        ("queue", "#ready", "#in flight", "#delayed", "#dead", "oldest ready", *between, "#sent", "#shards"),
        [
            (
                each.queue,
                f"{each.ready:,}",
                f"{each.in_flight:,}",
                f"{'≥ ' if each.delayed_is_at_least else ''}{each.delayed:,}",
                f"{each.dead:,}",
                age(each.oldest_ready_seconds),
                *_between(rates, each.queue),
                f"{each.sent:,}",
                each.shards,
            )
            for each in found
        ],
    )
    if not one:
        return [queues]
    rate = None if rates is None else rates.get(found[0].queue, Rate(0.0, {}))
    more = (_shards_table(found[0], rate), _readers_table(found[0].readers))
    return [queues, *(each for each in more if each is not None)]


def _between(rates: dict[str, Rate] | None, queue: str) -> tuple[str, ...]:
    if rates is None:
        return ()
    rate = rates.get(queue)
    return ("", "") if rate is None else (per_second(rate.sent), per_second(sum(rate.settled.values())))


def per_second(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 or rate == 0 else f"{rate:.2g}"


def _shards_table(stats: QueueStats, rate: Rate | None) -> Table | None:
    if not stats.subscriptions:
        return None
    out = ("#out/s",) if rate is not None else ()
    return made_table(
        (
            "subscription",
            "#shard",
            "#ready",
            "#in flight",
            "#delayed",
            "oldest ready",
            *out,
            "#end of log",
            "#processes",
            "#conflicts",
        ),
        [
            (
                spoken(stats.queue, sub.name) if place == 0 else "",
                shard.shard,
                f"{shard.ready:,}",
                f"{shard.in_flight:,}",
                f"{shard.delayed:,}",
                age(shard.oldest_ready_seconds),
                *_out(rate, sub.name, first=place == 0),
                f"{shard.tail:,}",
                sub.holders if place == 0 else "",
                f"{sub.conflict_rate:.0%}" if place == 0 else "",
            )
            for sub in stats.subscriptions
            for place, shard in enumerate(sub.shards)
        ],
    )


def _out(rate: Rate | None, subscription: str, *, first: bool) -> tuple[str, ...]:
    if rate is None:
        return ()
    return (per_second(rate.settled[subscription]) if first and subscription in rate.settled else "",)


def _readers_table(readers: tuple[ReaderStats, ...]) -> Table | None:
    """Readers that keep their own progress, such as Spark queries. Most queues have none, and show nothing."""
    if not readers:
        return None
    return made_table(
        ("reader", "#lag", "last progress", "holds back trimming"),
        [(each.name, f"{each.lag:,}", age(each.idle_seconds), "yes" if each.holds else "no") for each in readers],
    )


def bill(requests: Requests, provider: str, what: str) -> str:
    """Requests and their price, in a line."""
    kinds = ("get", "create", "replace", "list", "delete")
    made = ", ".join(f"{count:,} {kind}" for kind in kinds if (count := getattr(requests, kind)))
    return f"{what}: {made or 'no requests'} = {dollars(cost(requests, provider))} on {prices_of(provider).name}"
