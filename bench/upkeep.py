"""What must not grow: requests to find the tail of a million segments, a worker's memory, and polling while idle."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from bench.backlog import fill, write_hint, write_segments
from bench.children import alone
from bench.latency import NONE, LatentStore
from bench.machine import resident_bytes
from bench.payload import body
from bench.places import folder, over
from bench.results import Measurement, Target, measured
from bench.sizes import BATCH, Sizes
from bucketmq.bucket.folder import FolderStore
from bucketmq.bucket.memory import MemoryStore
from bucketmq.procedures.segments.hint import HINT_EVERY, HINT_EVERY_WALKED

COLD_REQUESTS = Target(at_most=50)
MEMORY_GROWTH = Target(at_most=10.0)
WARM_BATCHES = 20
MEBI = 1 << 20

Go = Callable[[], object]


def cold_tail(sizes: Sizes) -> Iterator[Measurement]:
    """A producer's first send and a first `stats` on a queue of so many one-message segments.

    The hint is as far behind as producers ever leave it. Time is noted but says little: a folder that is asked to list
    like S3 passes over the whole directory.
    """
    tail = sizes.segments
    with folder() as path:
        write_segments(path, "jobs", tail)
        for name, lists, every in (("walks", False, HINT_EVERY_WALKED), ("lists", True, HINT_EVERY)):
            for what in ("first send", "stats"):
                write_hint(path, "jobs", max(0, tail - every + 1))
                requests, seconds, found = alone(_cold, str(path), lists, what)
                tail += what == "first send"
                if found != tail:
                    raise AssertionError(f"{what} found the tail at {found}, it is at {tail}")
                yield measured(
                    "tail",
                    f"{what}, {sizes.segments:,} segments",
                    [requests],
                    "requests",
                    store=f"folder, as a store that {name}",
                    depth=sizes.segments,
                    target=COLD_REQUESTS,
                    note=f"{seconds * 1000:.0f} ms on a folder as a store that {name}; the hint is {every - 1} behind",
                )


def _cold(go: Go, path: str, lists: bool, what: str) -> tuple[int, float, int]:
    """Requests, seconds, and where the tail was found to be."""
    store = LatentStore(FolderStore(path), NONE, local=True, lists_in_order=lists)
    with over(store) as bucket:
        queue = bucket.queue("jobs")
        go()
        began = time.perf_counter()
        if what == "first send":
            offset = queue.send(body(0)).offset
            assert offset is not None
            tail = offset + 1
        else:
            tail = queue.stats().sent
        return store.counts.requests, time.perf_counter() - began, tail


def memory(sizes: Sizes) -> Iterator[Measurement]:
    """A worker's memory after some batches, by how deep the queue is."""
    found = {}
    for depth in sizes.memory_depths:
        with folder() as path:
            with over(FolderStore(path)) as bucket:
                fill(bucket.queue("jobs"), depth, per_segment=BATCH)
            first, last, batches = found[depth] = alone(_work, str(path), sizes.memory_batches)
            yield measured(
                "memory",
                f"worker after {batches} batches",
                [last / MEBI],
                "MiB",
                store="folder",
                depth=depth,
                note=f"{first / MEBI:.1f} MiB when warm",
            )
    growth = 100 * (found[sizes.memory_depths[-1]][1] / found[sizes.memory_depths[0]][1] - 1)
    yield measured(
        "memory",
        "growth with depth",
        [growth],
        "%",
        store="folder",
        depth=sizes.memory_depths[-1],
        target=MEMORY_GROWTH,
    )


def _work(go: Go, path: str, batches: int) -> tuple[int, int, int]:
    """Memory when warm, memory at the end, and how many batches there were. A shallow queue is kept filled."""
    with over(FolderStore(path)) as bucket:
        queue = bucket.queue("jobs")
        go()
        first = 0
        for turn in range(batches):
            deliveries = queue.receive(BATCH)
            if not deliveries:
                fill(queue, BATCH)
                deliveries = queue.receive(BATCH, wait_seconds=5.0)
            for delivery in deliveries:
                delivery.body  # noqa: B018  # looking at it is part of the work
                delivery.ack()
            if turn <= min(WARM_BATCHES, batches // 2):
                first = resident_bytes()
        queue.flush()
        return first, resident_bytes(), batches


def idle(sizes: Sizes) -> Iterator[Measurement]:
    """Requests of a worker that waits on an empty queue of one shard, once it has waited for a while."""
    stores = {"remote": LatentStore(MemoryStore()), "local": LatentStore(MemoryStore(), NONE, local=True)}
    half = sizes.idle_seconds / 2
    with ThreadPoolExecutor(len(stores)) as pool:  # both at once: waiting takes nothing but time
        found = list(pool.map(lambda store: _idle(store, sizes.idle_seconds), stores.values()))
    for name, (early, late) in zip(stores, found, strict=True):
        yield measured(
            "idle",
            f"requests while waiting {half:g} to {2 * half:g} s",
            [late / half],
            "requests/s",
            store=name,
            note=f"{early} requests before that ({name})",
        )


def _idle(store: LatentStore, seconds: float) -> tuple[int, int]:
    with over(store) as bucket:
        queue = bucket.queue("jobs")
        queue.receive(1)
        before = store.counts.requests
        waiter = threading.Thread(target=lambda: queue.receive(1, wait_seconds=seconds))
        waiter.start()
        time.sleep(seconds / 2)
        middle = store.counts.requests
        waiter.join()
        return middle - before, store.counts.requests - middle
