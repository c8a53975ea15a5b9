"""Verbs that look and change nothing: peek, tail."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from bucketmq.cli.exits import nothing
from bucketmq.cli.options import (
    Json,
    QueueName,
    SubscriptionName,
    Url,
    existing_queue,
    existing_subscription,
    open_bucket,
)
from bucketmq.cli.output import body_text, emit, emit_all, emit_text, flush, table
from bucketmq.client import Queue
from bucketmq.deliveries import PeekedMessage, message_dict
from bucketmq.errors import Invalid
from bucketmq.queue.settings import MAIN

POLL_SECONDS = 1.0
POLL_SECONDS_LOCAL = 0.2
BODY_CHARACTERS = 100


def peek(
    queue: QueueName,
    *,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="At most this many messages.")] = 10,
    subscription: SubscriptionName = MAIN,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Look at unsettled messages, oldest first, without claiming them.

    The state is ready (may be handed out now), in flight (in some receiver's hands), delayed (to be tried again later)
    or dead (on its way to the dead letters).
    """
    with open_bucket(url, probe=False) as bucket:
        found = existing_subscription(existing_queue(bucket, queue), subscription).peek(limit)
    if not found:
        nothing(f"nothing unsettled in {queue}")
    if as_json:
        emit_all(each.to_dict() for each in found)
        return
    rows = (
        (m.id, m.state.replace("_", " "), m.attempts, m.shard, m.offset, m.key, body_text(m.to_dict(), BODY_CHARACTERS))
        for m in found
    )
    table(("id", "state", "#attempts", "#shard", "#offset", "key", "body"), rows)


def tail(
    queue: QueueName,
    *,
    limit: Annotated[int, typer.Option("-n", "--limit", min=0, help="Begin with this many of the last messages.")] = 10,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing what is sent, until Ctrl-C.")] = False,
    begin: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="WHERE", help="earliest: everything kept; latest: only what is sent from now on."
        ),
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Print the end of a queue's log, settled messages included.

    Nothing is claimed or changed. With several shards, the order between shards is that of reading.
    """
    with open_bucket(url, probe=False) as bucket:
        found = existing_queue(bucket, queue)
        positions, last = _begin(found, begin, limit)
        count = 0
        for message in _last(read_to_end(found, positions), last):
            _print(message, as_json)
            count += 1
        flush()
        if follow:
            _follow(found, positions, as_json, local=bucket.store.local)
    if not count:
        nothing(f"nothing to show of {queue}")


def _begin(queue: Queue, begin: str | None, limit: int) -> tuple[dict[int, int], int | None]:
    """Where to read from, and how many of what is read to show (None: all)."""
    match begin:
        case None:
            return queue.back(limit), limit
        case "earliest":
            return queue.back(None), None
        case "latest":
            return queue.tails(), None
        case _:
            raise Invalid(f"--from is earliest or latest, not {begin!r}")


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
    row = message_dict(message)
    if as_json:
        emit(row)
        return
    key = f" [{message.key}]" if message.key is not None else ""
    emit_text(f"{message.sent_at:%Y-%m-%d %H:%M:%S} {message.shard}/{message.offset}{key} {body_text(row)}")
