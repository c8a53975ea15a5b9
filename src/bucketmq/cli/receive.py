"""Verbs that receive messages and settle them: receive, ack, retry."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated

import msgspec
import typer

from bucketmq.cli.exits import Code, nothing, tell
from bucketmq.cli.options import (
    Json,
    QueueName,
    SubscriptionName,
    Url,
    existing_queue,
    existing_subscription,
    open_bucket,
)
from bucketmq.cli.output import body_text, emit, emit_text, flush, plural, say
from bucketmq.client import Bucket, Delivery, Subscription
from bucketmq.deliveries import Batch
from bucketmq.errors import Contended, Invalid, LeaseLost
from bucketmq.procedures.claiming.receipts import read_receipt
from bucketmq.queue.settings import MAIN

Receipts = Annotated[
    list[str], typer.Argument(metavar="RECEIPT...", help="From receive; '-' reads them from standard input.")
]


def receive(
    queue: QueueName,
    *,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="At most this many messages.")] = 1,
    wait: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="Wait this long for the first one.")] = 0.0,
    lease: Annotated[float | None, typer.Option(metavar="SECONDS", help="How long they are yours.")] = None,
    ack: Annotated[bool, typer.Option("--ack", help="Settle them once they are printed.")] = False,
    subscription: SubscriptionName = MAIN,
    start: Annotated[
        str | None,
        typer.Option(metavar="WHERE", help="Make the subscription if there is none, to begin at: earliest or latest."),
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Receive messages. They are yours until their lease is over; settle each with its receipt.

    Neither the queue nor the subscription is made by a mistyped name. Exits with 3 if there is nothing to receive.
    """
    with open_bucket(url) as bucket:
        found = existing_queue(bucket, queue)
        if start is not None and subscription != MAIN:
            source = found.subscription(subscription, start=start)
        else:
            source = existing_subscription(found, subscription, cure=" To begin a new one: --start earliest or latest")
        got, last = _collect(source, limit, wait, lease)
        for delivery in got:
            _show(delivery, as_json)
        flush()
        if ack and got:
            for delivery in got:
                delivery.ack()
            source.flush()
        paused = None if got else found.settings().pause_of(subscription)
    if not got and last.contended:
        raise Contended(f"other workers are taking what is in {queue}; wait longer, or raise the shard count")
    if not got and last.full:
        raise _Full(f"so much of {queue} is in flight that nothing more is handed out; settle some, or wait")
    if not got:
        nothing(f"nothing to receive from {queue}" + (f", which is paused: {paused}" if paused is not None else ""))


class _Full(Contended):
    """Not empty: so many messages are in flight that no more are handed out."""

    kind = "full"


def _collect(
    source: Subscription, limit: int, wait: float, lease: float | None
) -> tuple[list[Delivery], Batch[Delivery]]:
    """Up to `limit` deliveries from as many shards as it takes. Only the first receive waits."""
    got: list[Delivery] = []
    while True:
        batch = source.receive(limit - len(got), wait_seconds=0.0 if got else wait, lease_seconds=lease)
        got += batch
        if not batch or len(got) >= limit:
            return got, batch


def _show(delivery: Delivery, as_json: bool) -> None:
    row = delivery.to_dict()
    if as_json:
        emit(row)
        return
    key = f"  key {delivery.key}" if delivery.key is not None else ""
    emit_text(f"id       {row['id']}  attempt {delivery.attempt}  shard {row['shard']}  offset {row['offset']}{key}")
    for name, value in delivery.headers.items():
        emit_text(f"header   {name}={value}")
    emit_text(f"body     {body_text(row)}")
    emit_text(f"receipt  {row['receipt']}")


def ack(receipts: Receipts, url: Url = None, as_json: Json = False) -> None:
    """Settle messages as done.

    Exits with 4 if a lease is over: the message may be in other hands by now, and nothing was changed.
    """
    _settle(receipts, "ack", lambda delivery: delivery.ack(), url=url, as_json=as_json)


def retry(
    receipts: Receipts,
    *,
    delay: Annotated[float | None, typer.Option(min=0, metavar="SECONDS", help="Instead of the back-off.")] = None,
    reason: Annotated[str, typer.Option(help="What went wrong; stays with the message.")] = "",
    bury: Annotated[bool, typer.Option("--bury", help="It can never succeed: make it a dead letter.")] = False,
    release: Annotated[bool, typer.Option("--release", help="Give it back without counting the attempt.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Give messages back: to be handed out again after the queue's back-off, or as the options say."""
    if bury and release:
        raise Invalid("give --bury or --release, not both")
    if (bury or release) and delay is not None:
        raise Invalid("--delay is for a plain retry; leave it out with --bury or --release")
    if release and reason:
        raise Invalid("a released message keeps no reason; leave --reason out")
    why = reason or "given back with bucketmq retry"

    def settle(delivery: Delivery) -> None:
        if bury:
            delivery.bury(why)
        elif release:
            delivery.release()
        else:
            delivery.retry(why, delay_seconds=delay)

    outcome = "bury" if bury else "release" if release else "retry"
    _settle(receipts, outcome, settle, url=url, as_json=as_json)


def _settle(
    receipts: list[str],
    outcome: str,
    settle: Callable[[Delivery], None],
    *,
    url: str | None,
    as_json: bool,
) -> None:
    """Settle the receipts, in one commit for each shard, and say which came too late."""
    texts = list(_all(receipts))
    proofs = [read_receipt(text) for text in texts]
    with open_bucket(url) as bucket:
        readers: dict[tuple[str, str], Subscription] = {}
        deliveries = []
        for text, proof in zip(texts, proofs, strict=True):
            place = proof.queue, proof.subscription
            if place not in readers:
                readers[place] = _reader(bucket, *place)
            delivery = readers[place].delivery(text)
            settle(delivery)
            deliveries.append(delivery)
        lost = _flush(readers.values())
    late = 0
    for text, delivery in zip(texts, deliveries, strict=True):
        late += delivery.lost
        if as_json:
            emit({"receipt": text, "outcome": "lease_lost" if delivery.lost else outcome})
    if not as_json and len(texts) > late:
        say(f"{PAST[outcome]} {plural(len(texts) - late, 'message')}")
    if lost is not None:
        tell(lost.kind, str(lost), as_json=as_json)
        raise typer.Exit(Code.CONTENDED)
    if not texts:
        raise typer.Exit(Code.EMPTY)


PAST = {"ack": "acked", "retry": "will retry", "bury": "buried", "release": "released"}


def _reader(bucket: Bucket, queue: str, subscription: str) -> Subscription:
    return existing_subscription(existing_queue(bucket, queue), subscription)


def _flush(readers: Iterable[Subscription]) -> LeaseLost | None:
    lost = None
    for each in readers:
        try:
            each.flush()
        except LeaseLost as error:
            lost = error
    return lost


def _all(receipts: list[str]) -> Iterator[str]:
    """The receipts given, with those of standard input: plain lines, or the output of `receive --json`."""
    for receipt in receipts:
        if receipt != "-":
            yield receipt
            continue
        for line in sys.stdin:
            if line.strip():
                yield _receipt_of(line.strip())


def _receipt_of(line: str) -> str:
    if not line.startswith("{"):
        return line
    try:
        return str(msgspec.json.decode(line)["receipt"])
    except (msgspec.DecodeError, KeyError, TypeError):
        raise Invalid(f"{line[:60]!r} has no receipt; pipe in what receive --json printed") from None
