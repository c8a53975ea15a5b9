"""Receipts: text that settles a delivery from another process."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

import bucketmq
from procedures.world import World


def test_a_receipt_settles_from_another_process(world: World) -> None:
    first, second = world.connect().queue("jobs"), world.connect().queue("jobs")
    first.send_many([*"ab"])
    receipts = [delivery.receipt for delivery in first.receive(2)]
    for receipt in receipts:
        second.delivery(receipt).ack(wait=True)
    assert second.stats().depth == 0


def test_a_receipt_settles_even_where_the_head_was_last_seen_before_the_claim(world: World) -> None:
    first, second = world.connect().queue("jobs"), world.connect().queue("jobs")
    first.send("x")
    second.receive(1)[0].release(wait=True)  # now the second one remembers a head
    (delivery,) = first.receive(1)
    second.delivery(delivery.receipt).ack(wait=True)
    assert second.stats().depth == 0


def test_a_receipt_extends_from_another_process_even_where_the_head_is_remembered(world: World) -> None:
    first, second = world.connect().queue("jobs", lease_seconds=30), world.connect().queue("jobs")
    first.send("x")
    second.receive(1)[0].release(wait=True)
    (delivery,) = first.receive(1)
    world.advance(20)
    second.delivery(delivery.receipt).extend(100)
    world.advance(50)
    assert not second.receive(1)
    delivery.ack(wait=True)


@pytest.mark.parametrize("how", ["retry", "bury", "release"])
def test_every_end_can_be_told_by_receipt(world: World, how: str) -> None:
    first, second = world.connect().queue("jobs"), world.connect().queue("jobs")
    first.send("x")
    receipt = first.receive(1)[0].receipt
    getattr(second.delivery(receipt), how)(wait=True)
    stats = second.stats()
    assert (stats.ready, stats.in_flight, stats.delayed, stats.dead) == {
        "retry": (0, 0, 1, 0),
        "bury": (0, 0, 0, 1),
        "release": (1, 0, 0, 0),
    }[how]


def test_a_receipt_is_good_once(world: World) -> None:
    first, second = world.connect().queue("jobs"), world.connect().queue("jobs")
    first.send("x")
    (delivery,) = first.receive(1)
    second.delivery(delivery.receipt).ack(wait=True)
    with pytest.raises(bucketmq.LeaseLost):
        second.delivery(delivery.receipt).ack(wait=True)
    with pytest.raises(bucketmq.LeaseLost):
        delivery.ack(wait=True)


def test_a_stale_receipt_settles_nothing(world: World) -> None:
    first, second = world.connect().queue("jobs", lease_seconds=30), world.connect().queue("jobs")
    first.send("x")
    stale = first.receive(1)[0].receipt
    world.advance(31)
    (taken,) = second.receive(1)
    with pytest.raises(bucketmq.LeaseLost):
        world.connect().queue("jobs").delivery(stale).bury("late", wait=True)
    taken.ack(wait=True)
    assert second.stats().dead == 0


def test_the_receipt_knows_the_attempt(world: World) -> None:
    queue = world.connect().queue("jobs")
    queue.send("x")
    queue.receive(1)[0].retry(delay_seconds=0, wait=True)
    receipt = queue.receive(1, wait_seconds=5)[0].receipt
    restored = world.connect().queue("jobs").delivery(receipt)
    assert restored.attempt == 2
    assert restored.receipt == receipt


def test_a_receipt_of_another_queue_or_subscription_is_invalid(world: World) -> None:
    bucket = world.connect()
    queue = bucket.queue("jobs")
    queue.send("x")
    receipt = queue.receive(1)[0].receipt
    with pytest.raises(bucketmq.Invalid, match="receipt is for jobs/main"):
        bucket.queue("other").delivery(receipt)
    with pytest.raises(bucketmq.Invalid, match="receipt is for jobs/main"):
        queue.subscription("audit").delivery(receipt)


def forged(*parts: Any) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(parts)).decode().rstrip("=")


@pytest.mark.parametrize(
    "receipt",
    [
        "",
        "nonsense",
        "ü",
        "AAAA",
        forged("jobs", "main", 0, 1),
        forged("jobs", "main", 0, 1, [0, 0, 5], 1),
        forged("jobs", "main", -1, 1, [0, 0, 1], 1),
        forged("jobs", "main", 5000, 1, [0, 0, 1], 1),
    ],
)
def test_what_is_no_receipt_is_invalid(queue: Any, receipt: str) -> None:
    with pytest.raises(bucketmq.Invalid, match="receipt"):
        queue.delivery(receipt)


def test_a_forged_receipt_for_what_was_never_sent_changes_nothing(world: World, queue: Any) -> None:
    queue.send("x")
    queue.receive(1)
    before = world.everything()
    with pytest.raises(bucketmq.LeaseLost):
        queue.delivery(forged("jobs", "main", 0, 77, [0, 0, 1], 1)).ack(wait=True)
    assert world.everything() == before
