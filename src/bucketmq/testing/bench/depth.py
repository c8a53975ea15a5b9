"""Ours and the single-JSON queue at growing depth, on the same folder: speed, requests and bytes for each operation.

Each cell has a time it may take at most. An operation is one message sent, or one message received and acked; the ack
travels with the next receive in both queues. End to end is one sending and one receiving process with batches of 100.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec

from bucketmq.bucket.folder import FolderStore
from bucketmq.testing.bench.backlog import fill
from bucketmq.testing.bench.children import alone, together
from bucketmq.testing.bench.latency import LatentStore, counted
from bucketmq.testing.bench.payload import batch, body
from bucketmq.testing.bench.places import folder, over, settle_disk
from bucketmq.testing.bench.results import OURS, PEER, PEER_REMEMBERS, Measurement, measured
from bucketmq.testing.bench.single_json import SingleJsonQueue
from bucketmq.testing.bench.sizes import Sizes

SCENARIO = "depth"
STORE = "folder"
E2E_BATCH = 100

Go = Callable[[], object]


class Cell(msgspec.Struct, frozen=True):
    """One operation at one depth."""

    per_second: float
    requests: float
    bytes: float


def at_depths(sizes: Sizes) -> Iterator[Measurement]:
    for depth in (*sizes.depths, *sizes.depths_ours):
        subjects = (OURS, PEER, PEER_REMEMBERS) if depth in sizes.depths else (OURS,)
        for subject in subjects:
            with folder() as path:
                yield from _at_depth(subject, path, depth, sizes)


def _at_depth(subject: str, path: Path, depth: int, sizes: Sizes) -> Iterator[Measurement]:
    _fill(subject, str(path), depth)
    settle_disk()
    send, receive = alone(_operate, subject, str(path), sizes.cell_seconds, sizes.cell_operations)
    for what, cell in (("send", send), ("receive and ack", receive)):
        found = partial(measured, SCENARIO, what, subject=subject, store=STORE, depth=depth)
        yield found([cell.per_second], "messages/s")
        yield found([cell.requests], "requests")
        yield found([cell.bytes], "bytes")
    if subject != PEER_REMEMBERS:
        rate = _end_to_end(subject, path, sizes.cell_seconds)
        yield measured(SCENARIO, "end to end", [rate], "messages/s", subject=subject, store=STORE, depth=depth)


def _store(path: str) -> LatentStore:
    return counted(FolderStore(path))


def _peer(subject: str, store: LatentStore) -> SingleJsonQueue:
    return SingleJsonQueue(store, remember=subject == PEER_REMEMBERS)


def _fill(subject: str, path: str, depth: int) -> None:
    if subject == OURS:
        with over(_store(path)) as bucket:
            fill(bucket.queue("jobs"), depth)
    elif depth:
        _peer(subject, _store(path)).fill(batch(0, depth))


def _operate(go: Go, subject: str, path: str, seconds: float, operations: int) -> tuple[Cell, Cell]:
    """Send singly, then receive and ack singly what lies deepest, each for a while."""
    store = _store(path)
    go()
    if subject == OURS:
        with over(store) as bucket:
            queue = bucket.queue("jobs")
            queue.send(body(0))
            send = _cell(store, lambda: queue.send(body(1)), seconds, operations)

            def step() -> None:
                (delivery,) = queue.receive(1, wait_seconds=1.0)
                delivery.ack()

            step()
            return send, _cell(store, step, seconds, operations)
    peer = _peer(subject, store)
    peer.send([body(0)])
    send = _cell(store, lambda: peer.send([body(1)]), seconds, operations)
    acked: list[int] = []

    def peer_step() -> None:
        received = peer.receive(1, acked=acked)
        received.bodies()
        acked[:] = [received.lease]

    peer_step()
    return send, _cell(store, peer_step, seconds, operations)


def _cell(store: LatentStore, operation: Callable[[], object], seconds: float, operations: int) -> Cell:
    before = store.counts.copy()
    began = time.perf_counter()
    done, passed = 0, 0.0
    while done < operations and passed < seconds:
        operation()
        done += 1
        passed = time.perf_counter() - began
    used = store.counts.since(before)
    return Cell(done / passed, used.requests / done, used.bytes / done)


def _end_to_end(subject: str, path: Path, seconds: float) -> float:
    """Messages a second through the queue, while its depth stays about the same."""
    sent, received = together(
        [(_send_for, (subject, str(path), seconds)), (_receive_for, (subject, str(path), seconds))]
    )
    return float(min(sent, received))


def _send_for(go: Go, subject: str, path: str, seconds: float) -> float:
    store = _store(path)
    if subject == OURS:
        with over(store) as bucket:
            queue = bucket.queue("jobs")
            queue.settings()
            return _repeat(go, seconds, lambda: len(queue.send_many(batch(0, E2E_BATCH))))
    peer = _peer(subject, store)

    def step() -> int:
        peer.send(batch(0, E2E_BATCH))
        return E2E_BATCH

    return _repeat(go, seconds, step)


def _receive_for(go: Go, subject: str, path: str, seconds: float) -> float:
    store = _store(path)
    if subject == OURS:
        with over(store) as bucket:
            queue = bucket.queue("jobs")
            queue.settings()

            def step() -> int:
                deliveries = queue.receive(E2E_BATCH, wait_seconds=seconds)
                for delivery in deliveries:
                    delivery.body  # noqa: B018  # looking at it is part of the work
                    delivery.ack()
                return len(deliveries)

            return _repeat(go, seconds, step)
    peer = _peer(subject, store)
    acked: list[int] = []

    def peer_step() -> int:
        received = peer.receive(E2E_BATCH, acked=acked)
        received.bodies()
        acked[:] = [received.lease] if received.items else []
        return len(received.items)

    return _repeat(go, seconds, peer_step)


def _repeat(go: Go, seconds: float, step: Callable[[], int]) -> float:
    go()
    began = time.perf_counter()
    done, passed = 0, 0.0
    while passed < seconds:
        done += step()
        passed = time.perf_counter() - began
    return done / passed
