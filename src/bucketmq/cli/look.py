"""Verbs that look without touching: peek, tail."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from bucketmq.cli.exits import Code
from bucketmq.cli.options import (
    Json,
    QueueName,
    SubscriptionName,
    Url,
    existing_subscription,
    open_bucket,
    wants_json,
)
from bucketmq.cli.output import body_text, emit, emit_text, flush, message_row, say, table
from bucketmq.client import Queue
from bucketmq.deliveries import PeekedMessage
from bucketmq.errors import Invalid
from bucketmq.procedures.append import trim_mark
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.subscription import position_of_offset
from bucketmq.queue.settings import MAIN

POLL_SECONDS = 1.0
POLL_SECONDS_LOCAL = 0.2
BODY_CHARACTERS = 100


def peek(
    context: typer.Context,
    queue: QueueName,
    *,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="At most so many messages.")] = 10,
    subscription: SubscriptionName = MAIN,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Look at unsettled messages, oldest first, without claiming them.

    The state is fresh (never handed out), held (by a receiver), waiting (for a retry) or moving (to the dead letters).
    """
    with open_bucket(context, url, probe=False) as bucket:
        found = existing_subscription(bucket, queue, subscription).peek(limit)
    if wants_json(context, as_json):
        for each in found:
            emit({"state": each.state, "attempts": each.attempts, **message_row(each)})
    elif found:
        table(
            ("id", "state", "#attempts", "#shard", "#offset", "key", "body"),
            [
                (m.id, m.state, m.attempts, m.shard, m.offset, m.key, body_text(message_row(m), BODY_CHARACTERS))
                for m in found
            ],
        )
    if not found:
        say(f"nothing unsettled in {queue}")
        raise typer.Exit(Code.EMPTY)


def tail(
    context: typer.Context,
    queue: QueueName,
    *,
    limit: Annotated[int, typer.Option("-n", "--limit", min=0, help="Begin with the last so many messages.")] = 10,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on printing what is sent, until Ctrl-C.")] = False,
    begin: Annotated[
        str | None, typer.Option("--from", metavar="WHERE", help="earliest: everything kept; latest: only what is new.")
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Print the end of a queue's log, settled messages included.

    Nothing is claimed or changed. With several shards, the order between shards is that of reading.
    """
    with open_bucket(context, url, probe=False) as bucket:
        found = bucket.existing_queue(queue)
        positions, last = _begin(found, begin, limit)
        show = wants_json(context, as_json)
        count = 0
        for message in _last(read_to_end(found, positions), last):
            _print(message, show)
            count += 1
        flush()
        if follow:
            _follow(found, positions, show, local=found._engine.hands.store.local)
    if not count:
        say(f"nothing to show of {queue}")
        raise typer.Exit(Code.EMPTY)


def _begin(queue: Queue, begin: str | None, limit: int) -> tuple[dict[int, int], int | None]:
    """Where to read from, and how many of what is read to show (None: all)."""
    match begin:
        case None:
            return back(queue, limit), limit
        case "earliest":
            return back(queue, None), None
        case "latest":
            return queue.tails(), None
        case _:
            raise Invalid(f"--from is earliest or latest, not {begin!r}")


def back(queue: Queue, count: int | None) -> dict[int, int]:
    """For each shard the base of the segment `count` messages before its end, or of the oldest one that is kept."""
    return queue._engine.run(_positions(queue, count))


def _positions(queue: Queue, count: int | None) -> Procedure[dict[int, int]]:
    opened = yield from queue._api.open()
    tails = yield from queue._api.tails()
    positions = {}
    for shard, end in tails.items():
        log = opened.log(shard)
        low = yield from trim_mark(log)
        if count is None or end - count <= low:
            positions[shard] = low
        else:
            positions[shard] = (yield from position_of_offset(opened, log, end - count))[1]
    return positions


def read_to_end(queue: Queue, positions: dict[int, int]) -> Iterator[PeekedMessage]:
    """Everything from `positions` to the end."""
    while True:
        before = dict(positions)
        yield from queue.tail(positions)
        if positions == before:
            return


def _last(messages: Iterator[PeekedMessage], count: int | None) -> Iterable[PeekedMessage]:
    if count is None:
        return messages
    return sorted(messages, key=lambda each: each.message.at)[-count:] if count else list(messages)[:0]


def _follow(queue: Queue, positions: dict[int, int], as_json: bool, *, local: bool) -> None:
    while True:
        for message in read_to_end(queue, positions):
            _print(message, as_json)
        flush()
        time.sleep(POLL_SECONDS_LOCAL if local else POLL_SECONDS)


def _print(message: PeekedMessage, as_json: bool) -> None:
    row = message_row(message)
    if as_json:
        emit(row)
        return
    key = f" [{message.key}]" if message.key is not None else ""
    emit_text(f"{message.sent_at:%Y-%m-%d %H:%M:%S} {message.shard}/{message.offset}{key} {body_text(row)}")
