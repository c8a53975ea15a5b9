"""Bodies as models: `receive(body=Model)` in both facades, and what does not fit."""

from __future__ import annotations

import asyncio
import gc
import pickle
import weakref
from dataclasses import dataclass
from typing import Any, assert_type

import msgspec
import pytest

import bucketmq
from bucketmq import aio


class Item(msgspec.Struct):
    price: int


class Order(msgspec.Struct):
    id: str
    items: list[Item] = []


@dataclass
class OrderData:
    id: str
    items: list[Item]


@dataclass
class Referring:
    n: int
    delivery: Any = None


GOOD = {"id": "a", "items": [{"price": 3}]}
BAD = {"id": "b", "items": [{"price": 3}, {"price": "dear"}]}


def test_a_body_is_the_model_that_was_asked_for() -> None:
    with bucketmq.connect("memory://") as bucket:
        queue = bucket.queue("orders")
        queue.send_many([GOOD, GOOD])
        (first,) = queue.receive(1, body=Order)
        assert_type(first, bucketmq.DeliveryOf[Order])
        assert_type(first.body, Order)
        assert first.body == Order("a", [Item(3)])
        assert first.body is first.body
        (second,) = queue.receive(1, body=OrderData)
        assert second.body.items[0].price == 3
        assert (second.plain_body, second.to_dict()["body"]) == (GOOD, GOOD)


def test_a_body_that_does_not_fit_is_delivered_all_the_same_and_can_be_buried() -> None:
    with bucketmq.connect("memory://") as bucket:
        queue = bucket.queue("orders")
        queue.send_many([BAD, GOOD, b"bytes"])
        bad, good, raw = queue.receive(3, body=Order)
        assert good.body.id == "a"
        for each in (bad, raw):
            with pytest.raises(bucketmq.Unfit, match=f"the body of message {each.id} does not fit Order at ") as caught:
                each.body  # noqa: B018
            each.bury(str(caught.value))
        good.ack()
        queue.flush()
        assert "Order at $.items[1].price: Expected `int`, got `str`; bury it" in queue.dead_letters.peek()[0].reason


def test_an_error_of_a_body_tells_the_path_also_after_a_journey() -> None:
    error = pickle.loads(pickle.dumps(bucketmq.Unfit("it does not fit", "$.id")))
    assert (str(error), error.path, error.kind) == ("it does not fit", "$.id", "unfit")


def test_something_else_than_a_model_is_refused_before_anything_is_claimed() -> None:
    wrong: Any = int
    with bucketmq.connect("memory://") as bucket:
        bucket.queue("orders").send(GOOD)
        with pytest.raises(bucketmq.Invalid, match=r"body must be a msgspec.Struct, a dataclass or a pydantic model"):
            bucket.queue("orders").receive(1, body=wrong)
        assert len(bucket.queue("orders").receive(1)) == 1


def test_pydantic_models_are_models_too() -> None:
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Made", id=(str, ...), items=(list[dict[str, int]], ...))
    with bucketmq.connect("memory://") as bucket:
        queue = bucket.queue("orders")
        queue.send_many([GOOD, BAD])
        good, bad = queue.receive(2, body=model)
        assert good.body.items == [{"price": 3}]
        with pytest.raises(bucketmq.Unfit) as caught:
            bad.body  # noqa: B018
        assert caught.value.path == "$.items[1].price"


def test_the_asyncio_facade_gives_models_too() -> None:
    async def receive() -> None:
        async with aio.connect("memory://") as bucket:
            queue = bucket.queue("orders")
            await queue.send(GOOD)
            (delivery,) = await queue.receive(1, body=Order)
            assert_type(delivery.body, Order)
            assert delivery.body.items == [Item(3)]
            await delivery.ack()

    asyncio.run(receive())


def test_each_delivery_of_a_batch_of_several_spans_has_its_own_body_and_attempt() -> None:
    with bucketmq.connect("memory://", probe=False) as bucket:
        queue = bucket.queue("numbers")
        queue.send_many(range(6))
        for delivery in queue.receive(4):
            if delivery.body % 2:
                delivery.ack()
            else:
                delivery.retry(delay_seconds=0.0)
        again = queue.receive(6)
        assert [(each.offset, each.body, each.attempt) for each in again] == [
            (0, 0, 2),
            (2, 2, 2),
            (4, 4, 1),
            (5, 5, 1),
        ]


def test_a_model_that_refers_to_its_delivery_is_forgotten_with_it() -> None:
    with bucketmq.connect("memory://", probe=False) as bucket:
        queue = bucket.queue("orders")
        queue.send({"n": 1})
        (delivery,) = queue.receive(1, body=Referring)
        delivery.body.delivery = delivery
        delivery.ack(wait=True)
        forgotten = weakref.ref(delivery.body)
        del delivery
        gc.collect()
        assert forgotten() is None


def test_deliveries_are_freed_by_reference_counting_alone() -> None:
    def lot_of_a_batch(queue: bucketmq.Queue, limit: int) -> weakref.ref[Any]:
        batch = queue.receive(limit)
        for delivery in batch:
            delivery.retry(delay_seconds=60) if delivery.body == 1 else delivery.ack()
        return weakref.ref(batch[0].lot)

    with bucketmq.connect("memory://") as bucket:
        queue = bucket.queue("orders")
        queue.send_many(range(4))
        gc.collect()
        gc.disable()
        try:
            lots = [lot_of_a_batch(queue, 2), lot_of_a_batch(queue, 2)]
            queue.flush()
            assert [lot() for lot in lots] == [None, None]
        finally:
            gc.enable()


def test_deliveries_are_freed_by_reference_counting_alone_under_asyncio() -> None:
    async def main() -> list[Any]:
        async def lot_of_a_batch(queue: aio.Queue) -> weakref.ref[Any]:
            batch = await queue.receive(2)
            for delivery in batch:
                await delivery.ack()
            return weakref.ref(batch[0].lot)

        async with aio.connect("memory://") as bucket:
            queue = bucket.queue("orders")
            await queue.send_many(range(4))
            lots = [await lot_of_a_batch(queue), await lot_of_a_batch(queue)]
            await queue.flush()
            return [lot() for lot in lots]

    gc.collect()
    gc.disable()
    try:
        assert asyncio.run(main()) == [None, None]
    finally:
        gc.enable()
