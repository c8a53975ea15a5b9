"""`for delivery in queue` and `async for`, and buckets as context managers."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from procedures.world import World, drain, eventually

import bucketmq
from bucketmq import aio, client
from bucketmq.bucket.memory import MemoryStore
from bucketmq.bucket.port import PLAIN, Attributes, Refused, Version, Written
from bucketmq.engines.asynchronous import Asynchronous
from bucketmq.engines.blocking import Blocking
from bucketmq.engines.perform import Hands


def test_for_gives_every_delivery_in_order(queue: Any) -> None:
    queue.send_many(range(250))
    seen = []
    for delivery in queue:
        seen.append(delivery.body)
        delivery.ack()
        if len(seen) == 250:
            break
    assert seen == list(range(250))


def test_for_waits_for_what_is_sent_later(queue: Any) -> None:
    queue.send("first")
    seen = []
    for delivery in queue:
        seen.append(delivery.body)
        delivery.ack()
        if delivery.body == "second":
            break
        queue.send("second")
    assert seen == ["first", "second"]


def test_leaving_the_loop_gives_back_what_was_not_looked_at(world: World, queue: Any) -> None:
    queue.send_many(range(50))
    for delivery in queue:
        delivery.ack()
        break
    queue.flush()
    other = world.connect().queue("jobs")
    batch = other.receive(100, wait_seconds=10)
    assert [delivery.body for delivery in batch] == list(range(1, 50))
    assert {delivery.attempt for delivery in batch} == {1}


def test_an_exception_in_the_loop_gives_back_too(world: World, queue: Any) -> None:
    queue.send_many(range(10))

    def work() -> None:
        for delivery in queue:
            if delivery.body == 3:
                raise KeyError("oops")
            delivery.ack()

    with pytest.raises(KeyError):
        work()
    other = world.connect().queue("jobs")
    got = [body for body in eventually(lambda: drain(other)) if body != 3]
    assert got == list(range(4, 10))


def test_the_lease_is_kept_while_a_delivery_is_worked_on(world: World) -> None:
    queue = world.connect().queue("jobs", lease_seconds=1)
    queue.send_many([*"ab"])
    other = world.connect().queue("jobs")
    for n, delivery in enumerate(queue):
        until = delivery.lease_until
        eventually(lambda: delivery.lease_until > until + 1)  # noqa: B023
        assert not other.receive(10)
        delivery.ack()
        if n == 1:
            break
    queue.flush()
    assert queue.stats().depth == 0


def test_with_closes_the_bucket_and_hands_in(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket"
    with bucketmq.connect(url) as bucket:
        queue = bucket.queue("jobs")
        queue.send("x")
        queue.receive(1)[0].ack()
    with bucketmq.connect(url) as bucket:
        assert bucket.queue("jobs").stats().depth == 0


def test_a_closed_bucket_says_so_and_can_be_closed_again(world: World) -> None:
    bucket = world.connect()
    queue = bucket.queue("jobs")
    queue.send("x")
    (delivery,) = queue.receive(1)
    bucket.close()
    for use in (lambda: queue.send("y"), lambda: queue.receive(1), queue.stats, lambda: delivery.ack(wait=True)):
        with pytest.raises(bucketmq.Invalid, match="was closed"):
            use()
    bucket.close()
    assert bucket.requests.create > 0


def test_async_with_closes_the_bucket_and_hands_in(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket"

    async def use() -> int:
        async with bucketmq.aio.connect(url) as bucket:
            queue = bucket.queue("jobs")
            await queue.send_many([*"abc"])
            async for delivery in queue:
                await delivery.ack()
                if delivery.body == "c":
                    break
        async with bucketmq.aio.connect(url) as bucket:
            return (await bucket.queue("jobs").stats()).depth

    assert asyncio.run(use()) == 0


def test_both_facades_read_what_the_other_wrote(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket"

    async def send() -> None:
        async with bucketmq.aio.connect(url) as bucket:
            await bucket.queue("jobs").send_many([1, "two", b"three"])

    asyncio.run(send())
    with bucketmq.connect(url) as bucket:
        assert drain(bucket.queue("jobs")) == [1, "two", b"three"]


def test_the_blocking_facade_works_inside_a_running_event_loop(tmp_path: Path) -> None:
    async def use() -> list[Any]:
        with bucketmq.connect(f"file://{tmp_path}/bucket") as bucket:
            bucket.queue("jobs").send("x")
            return drain(bucket.queue("jobs"))

    assert asyncio.run(use()) == ["x"]


def test_a_delivery_left_unsettled_by_a_loop_that_raised_is_handed_out_again(world: World) -> None:
    queue = world.connect().queue("jobs", lease_seconds=2)
    queue.send_many([*"ab"])
    kept: list[Any] = []

    def work() -> None:
        for delivery in queue:
            kept.append(delivery)
            raise KeyError("oops")

    with pytest.raises(KeyError):
        work()
    other = world.connect().queue("jobs")
    seen: dict[str, int] = {}

    def all_seen() -> bool:
        for each in other.receive(10):
            seen[each.body] = each.attempt
            each.ack()
        return len(seen) == 2

    eventually(all_seen)
    assert seen == {"a": 2, "b": 1}


def test_a_loop_that_ends_keeps_no_lease_alive(world: World) -> None:
    queue = world.connect().queue("jobs", lease_seconds=1)
    queue.send("x")
    for _ in queue:
        break
    assert eventually(lambda: world.connect().queue("jobs").receive(1))[0].attempt == 2


def test_closing_the_bucket_gives_back_what_an_unfinished_loop_had_not_shown(world: World) -> None:
    bucket = world.connect()
    bucket.queue("jobs").send_many(range(5))
    with contextlib.closing(iter(bucket.queue("jobs"))) as loop:
        next(loop).ack()
        bucket.close()
        batch = world.connect().queue("jobs").receive(10)
    assert [(each.body, each.attempt) for each in batch] == [(n, 1) for n in range(1, 5)]


class Gate(MemoryStore):
    """Holds up writes of heads while it is shut."""

    def __init__(self) -> None:
        super().__init__()
        self.open = threading.Event()
        self.open.set()
        self.reached = threading.Event()

    def create(self, key: str, body: bytes, attributes: Attributes = PLAIN) -> Written | Refused:
        if "/heads/" in key:
            self.reached.set()
            self.open.wait(20)
        return super().create(key, body, attributes)


Leave = Callable[[aio.Queue], Coroutine[Any, Any, Any]]


async def iterate(queue: aio.Queue) -> None:
    async for _ in queue:
        raise AssertionError("nobody waits for this any more")


async def receive(queue: aio.Queue) -> None:
    await queue.receive(10, wait_seconds=20)
    raise AssertionError("nobody waits for this any more")


@pytest.mark.parametrize("use", [iterate, receive])
@pytest.mark.parametrize("when", ["before there is anything", "while it is being claimed"])
def test_a_cancelled_caller_strands_nothing(use: Leave, when: str) -> None:
    store = Gate()

    async def main() -> list[tuple[str, int]]:
        engine = Asynchronous(Hands(store))
        first = aio.Bucket(engine, "app", probe=False)
        second = aio.Bucket(Asynchronous(Hands(store)), "app", probe=False)
        queue, other = first.queue("jobs", lease_seconds=600), second.queue("jobs")
        await queue.settings()
        if when == "while it is being claimed":
            await other.send_many([*"abc"])
            store.open.clear()
        caller = asyncio.create_task(use(queue))
        if when == "while it is being claimed":
            await asyncio.to_thread(store.reached.wait, 20)
        else:
            await asyncio.sleep(0.05)  # it has looked, and waits
        caller.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await caller
        store.open.set()
        if when == "before there is anything":
            async with asyncio.timeout(5):
                while len(engine._tasks) > 1:  # but for the keeper: it waits no longer either
                    await asyncio.sleep(0)
            await other.send_many([*"abc"])
        seen: list[tuple[str, int]] = []
        deadline = asyncio.get_running_loop().time() + 10
        while len(seen) < 3 and asyncio.get_running_loop().time() < deadline:
            async with aio.Bucket(Asynchronous(Hands(store)), "app", probe=False) as fresh:
                seen += [(each.body, each.attempt) for each in await fresh.queue("jobs").receive(10)]
        await first.close()
        await second.close()
        return seen

    assert asyncio.run(main()) == [("a", 1), ("b", 1), ("c", 1)]


def test_a_loop_goes_on_after_a_wait_that_was_cut_short() -> None:
    async def main() -> list[str]:
        async with aio.Bucket(Asynchronous(Hands(MemoryStore())), "app", probe=False) as bucket:
            queue = bucket.queue("jobs")
            deliveries = aiter(queue)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(deliveries), 0.05)
            await queue.send_many([*"ab"])
            return [(await asyncio.wait_for(anext(deliveries), 10)).body for _ in range(2)]

    assert asyncio.run(main()) == ["a", "b"]


def test_an_async_loop_that_raises_gives_back_before_its_bucket_is_closed() -> None:
    store = MemoryStore()

    async def main() -> None:
        async with aio.Bucket(Asynchronous(Hands(store)), "app", probe=False) as bucket:
            await bucket.queue("jobs").send_many(range(5))
            async for delivery in bucket.queue("jobs"):
                await delivery.ack()
                raise KeyError("oops")

    with pytest.raises(KeyError):
        asyncio.run(main())
    with client.Bucket(Blocking(Hands(store)), "app", probe=False) as bucket:
        assert [each.body for each in bucket.queue("jobs").receive(10)] == [1, 2, 3, 4]


class Locked(MemoryStore):
    """Refuses to write the heads of some queues."""

    denied: tuple[str, ...] = ()

    def replace(self, key: str, body: bytes, version: Version, attributes: Attributes = PLAIN) -> Written | Refused:
        if any(f"/{name}/heads/" in key for name in self.denied):
            raise bucketmq.Denied(f"{key}: no")
        return super().replace(key, body, version, attributes)


@pytest.mark.parametrize("facade", ["blocking", "asyncio"])
def test_closing_tries_every_queue_ends_everything_and_then_says_what_went_wrong(facade: str) -> None:
    store, threads = Locked(), set(threading.enumerate())
    world = World(facade, store)
    bucket = world.connect()
    for name in "abcd":
        bucket.queue(name).send("x")
        bucket.queue(name).receive(1)[0].ack()
    store.denied = "a", "c"
    with pytest.raises(bucketmq.Denied, match="/a/heads/") as raised:
        bucket.close()
    assert [note for note in raised.value.__notes__ if "/c/heads/" in note]
    copy = pickle.loads(pickle.dumps(raised.value))
    assert (str(copy), copy.__notes__) == (str(raised.value), raised.value.__notes__)
    with pytest.raises(bucketmq.Invalid, match="was closed"):
        bucket.queue("b").stats()
    bucket.close()
    world.close()
    assert set(threading.enumerate()) <= threads
    with client.Bucket(Blocking(Hands(store)), "app", probe=False) as other:
        assert [other.queue(name).stats().depth for name in "abcd"] == [1, 0, 1, 0]
