"""Many at once, at S3's latency: a hundred senders in one process, and more worker processes than shards.

The objects lie in a folder that the processes share; each process sees it through a store that takes S3's time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec

from bench.children import alone, together
from bench.latency import Counts, LatentStore
from bench.payload import batch, body
from bench.places import folder, over, over_async
from bench.results import OURS, PEER, Measurement, Target, measured
from bench.single_json import SingleJsonQueue
from bench.sizes import Sizes
from bucketmq.bucket.folder import FolderStore
from bucketmq.bucket.memory import MemoryStore

STORE = "S3-like latency"
WORKER_BATCH = 100
FILL_PER_SECOND = 8_000
"""More than the workers can take, so that they are never idle."""

PEER_SENDS_SHARE = 20
"""Of our sends, the peer is asked for one in so many: it would take minutes."""

CONCURRENT_SENDS = Target(at_least=1_000)
REFUSED = Target(at_most=20.0)
LEAST_SHARE = Target(at_least=0.01)

Go = Callable[[], object]


def concurrent_sends(sizes: Sizes) -> Iterator[Measurement]:
    """So many callers in one process, each sending one message after the other."""
    sends = sizes.senders * sizes.sends_each
    for shards in (1, sizes.shards):
        for way, function in (("threads", _send_from_threads), ("asyncio", _send_from_tasks)):
            runs, counts = [], Counts()
            for _ in range(sizes.repeats):
                seconds, counts = alone(function, sizes.senders, sizes.sends_each, shards)
                runs.append(sends / seconds)
            yield measured(
                "sends",
                f"{sizes.senders} senders, {way}, {shards} {'shard' if shards == 1 else 'shards'}",
                runs,
                "messages/s",
                store=STORE,
                target=CONCURRENT_SENDS if sizes.senders >= 100 else None,
                note=f"{counts.writes} writes for {sends} messages, {counts.refused} refused",
            )
    sends = max(1, sends // PEER_SENDS_SHARE)
    seconds, counts = alone(_peer_sends, sizes.senders, sends)
    yield measured(
        "sends",
        f"{sizes.senders} senders, threads, 1 shard",
        [sends / seconds],
        "messages/s",
        subject=PEER,
        store=STORE,
        note=f"{counts.writes} writes for {sends} messages, {counts.refused} refused",
    )


def _send_from_threads(go: Go, senders: int, each: int, shards: int) -> tuple[float, Counts]:
    store = LatentStore(MemoryStore(), seed=1)
    with over(store) as bucket, ThreadPoolExecutor(senders) as pool:
        queue = bucket.queue("jobs", shards=shards)
        for _ in range(shards):
            queue.send(body(0))
        before = store.counts.copy()
        go()
        began = time.perf_counter()
        done = [pool.submit(lambda: [queue.send(body(number)) for number in range(each)]) for _ in range(senders)]
        for future in done:
            future.result()
        return time.perf_counter() - began, store.counts.since(before)


def _send_from_tasks(go: Go, senders: int, each: int, shards: int) -> tuple[float, Counts]:
    store = LatentStore(MemoryStore(), seed=1)

    async def run() -> tuple[float, Counts]:
        async with over_async(store) as bucket:
            queue = bucket.queue("jobs", shards=shards)
            for _ in range(shards):
                await queue.send(body(0))

            async def sender() -> None:
                for number in range(each):
                    await queue.send(body(number))

            before = store.counts.copy()
            go()
            began = time.perf_counter()
            await asyncio.gather(*(sender() for _ in range(senders)))
            return time.perf_counter() - began, store.counts.since(before)

    return asyncio.run(run())


def _peer_sends(go: Go, senders: int, sends: int) -> tuple[float, Counts]:
    """As many callers as there are messages to send, at most `senders`, one message each."""
    store = LatentStore(MemoryStore(), seed=1)
    peer = SingleJsonQueue(store)
    peer.send([body(0)])
    before = store.counts.copy()
    with ThreadPoolExecutor(min(senders, sends)) as pool:
        go()
        began = time.perf_counter()
        for future in [pool.submit(peer.send, [body(number)]) for number in range(sends)]:
            future.result()
        return time.perf_counter() - began, store.counts.since(before)


class Worked(msgspec.Struct, frozen=True):
    """What one worker process did."""

    messages: int
    counts: Counts
    seconds: float


def workers(sizes: Sizes) -> Iterator[Measurement]:
    """So many worker processes on so few shards, always with something to do."""
    for subject in (OURS, PEER):
        runs = []
        for turn in range(sizes.repeats if subject == OURS else 1):
            with folder() as path:
                runs.append(_work(subject, path, sizes, turn))
        yield from _judge(subject, runs, sizes)


def _work(subject: str, path: Path, sizes: Sizes, turn: int) -> list[Worked]:
    backlog = int(sizes.contention_seconds * FILL_PER_SECOND) if subject == OURS else 1_000
    _fill(subject, str(path), backlog, sizes.shards)
    seeds = range(turn * 100, turn * 100 + sizes.workers)
    found: list[Worked] = together([(_worker, (subject, str(path), sizes.contention_seconds, seed)) for seed in seeds])
    return found


def _judge(subject: str, runs: list[list[Worked]], sizes: Sizes) -> Iterator[Measurement]:
    def each(value: Callable[[list[Worked]], float]) -> list[float]:
        return [value(run) for run in runs]

    def refused(run: list[Worked]) -> float:
        return 100 * sum(one.counts.refused for one in run) / max(1, sum(one.counts.writes for one in run))

    def least(run: list[Worked]) -> float:
        return min(one.messages for one in run) / max(1, sum(one.messages for one in run))

    def rate(run: list[Worked]) -> float:
        return sum(one.messages / one.seconds for one in run)

    what = f"{sizes.workers} workers, {sizes.shards if subject == OURS else 1} shards"
    shares = [sorted(round(one.messages / max(1, sum(w.messages for w in run)), 3) for one in run) for run in runs]
    ours = subject == OURS
    found = partial(measured, "workers", subject=subject, store=STORE)
    yield found(what, each(rate), "messages/s")
    yield found(f"{what}: refused writes", each(refused), "%", target=REFUSED if ours else None)
    yield found(
        f"{what}: least share",
        each(least),
        "share",
        target=LEAST_SHARE if ours else None,
        note=f"fair would be {1 / sizes.workers:.3f}; shares of the last run: {shares[-1]}",
        details={"shares": shares},
    )


def _fill(subject: str, path: str, backlog: int, shards: int) -> None:
    """One segment for each batch a worker takes, as producers that send so many at a time would leave them."""
    store = FolderStore(path)
    if subject == PEER:
        SingleJsonQueue(store).send(batch(0, backlog))
        return
    with over(store) as bucket:
        queue = bucket.queue("jobs", shards=shards)
        for start in range(0, backlog, WORKER_BATCH):
            queue.send_many(batch(start, WORKER_BATCH))


def _worker(go: Go, subject: str, path: str, seconds: float, seed: int) -> Worked:
    store = LatentStore(FolderStore(path), seed=seed)
    done = 0
    if subject == PEER:
        peer, acked = SingleJsonQueue(store), list[int]()
        go()
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            received = peer.receive(1, acked=acked)
            acked = [received.lease] if received.items else []
            done += len(received.items)
        return Worked(done, store.counts, time.monotonic() - began)
    with over(store) as bucket:
        queue = bucket.existing_queue("jobs")
        queue.settings()
        before = store.counts.copy()
        go()
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            deliveries = queue.receive(WORKER_BATCH, wait_seconds=1.0)
            for delivery in deliveries:
                delivery.ack()
            done += len(deliveries)
        passed = time.monotonic() - began
        queue.flush()
    return Worked(done, store.counts.since(before), passed)
