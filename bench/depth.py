"""Ours and the single-JSON queue at growing depth: speed, requests and bytes for each operation.

Both lie in a folder, used as it is or with S3's latency. The time that many bytes take over a network is not added,
which favours the peer. Each cell has a time it may take at most. An operation is one message sent, or one message
received and acked; the ack travels with the next receive in both queues. End to end is one sending and one receiving
process with batches of 100.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import msgspec

from bench.backlog import fill
from bench.children import alone, together
from bench.latency import LatentStore, counted
from bench.payload import batch, body
from bench.places import folder, over, settle_disk
from bench.results import OURS, PEER, PEER_REMEMBERS, Measurement, measured
from bench.single_json import SingleJsonQueue
from bench.sizes import Sizes
from bucketmq.bucket.folder import FolderStore

FOLDER = "folder"
S3 = "S3-like latency"
E2E_BATCH = 100

Go = Callable[[], object]


class Spot(msgspec.Struct, frozen=True):
    """Whose queue it is, where it lies, and how it is reached."""

    subject: str
    path: str
    kind: str

    def store(self) -> LatentStore:
        inner = FolderStore(self.path)
        return LatentStore(inner, seed=1) if self.kind == S3 else counted(inner)

    def peer(self, store: LatentStore) -> SingleJsonQueue:
        return SingleJsonQueue(store, remember=self.subject == PEER_REMEMBERS)


class Cell(msgspec.Struct, frozen=True):
    """One operation at one depth."""

    per_second: float
    requests: float
    bytes: float
    operations: int


def on_folder(sizes: Sizes) -> Iterator[Measurement]:
    yield from _at_depths("depth", FOLDER, sizes)


def at_latency(sizes: Sizes) -> Iterator[Measurement]:
    yield from _at_depths("depth-s3", S3, sizes)


def _at_depths(scenario: str, kind: str, sizes: Sizes) -> Iterator[Measurement]:
    for depth in (*sizes.depths, *sizes.depths_ours):
        for subject in (OURS, PEER, PEER_REMEMBERS) if depth in sizes.depths else (OURS,):
            with folder() as path:
                yield from _at_depth(scenario, Spot(subject, str(path), kind), depth, sizes)


def _at_depth(scenario: str, spot: Spot, depth: int, sizes: Sizes) -> Iterator[Measurement]:
    _fill(spot, depth)
    settle_disk()
    found = partial(measured, scenario, subject=spot.subject, store=spot.kind, depth=depth)
    send, receive = alone(_operate, spot, sizes.cell_seconds, sizes.cell_operations)
    for what, cell in (("send", send), ("receive and ack", receive)):
        yield found(what, [cell.per_second], "messages/s")
        yield found(what, [cell.requests], "requests")
        yield found(what, [cell.bytes], "bytes")
    if spot.subject != PEER_REMEMBERS:
        yield found("end to end", [_end_to_end(spot, sizes.cell_seconds)], "messages/s")


def _fill(spot: Spot, depth: int) -> None:
    store = FolderStore(spot.path)
    if spot.subject == OURS:
        with over(store) as bucket:
            fill(bucket.queue("jobs"), depth)
    elif depth:
        SingleJsonQueue(store).send(batch(0, depth))


def _operate(go: Go, spot: Spot, seconds: float, operations: int) -> tuple[Cell, Cell]:
    """Send singly, then receive and ack singly, each for a while and never more than was sent."""
    store = spot.store()
    go()
    if spot.subject == OURS:
        with over(store) as bucket:
            queue = bucket.queue("jobs")
            queue.send(body(0))
            send = _cell(store, lambda: queue.send(body(1)), seconds, operations)

            def step() -> None:
                (delivery,) = queue.receive(1, wait_seconds=1.0)
                delivery.ack()

            step()
            return send, _cell(store, step, seconds, send.operations)
    peer = spot.peer(store)
    peer.send([body(0)])
    send = _cell(store, lambda: peer.send([body(1)]), seconds, operations)
    acked: list[int] = []

    def peer_step() -> None:
        received = peer.receive(1, acked=acked)
        received.bodies()
        acked[:] = [received.lease]

    peer_step()
    return send, _cell(store, peer_step, seconds, send.operations)


def _cell(store: LatentStore, operation: Callable[[], object], seconds: float, operations: int) -> Cell:
    before = store.counts.copy()
    began = time.perf_counter()
    done, passed = 0, 0.0
    while done < operations and passed < seconds:
        operation()
        done += 1
        passed = time.perf_counter() - began
    used = store.counts.since(before)
    return Cell(done / passed, used.requests / done, used.bytes / done, done)


def _end_to_end(spot: Spot, seconds: float) -> float:
    """Messages a second through the queue, while its depth stays about the same."""
    sent, received = together([(_send_for, (spot, seconds)), (_receive_for, (spot, seconds))])
    return float(min(sent, received))


def _send_for(go: Go, spot: Spot, seconds: float) -> float:
    store = spot.store()
    if spot.subject == OURS:
        with over(store) as bucket:
            queue = bucket.queue("jobs")
            queue.settings()
            return _repeat(go, seconds, lambda: len(queue.send_many(batch(0, E2E_BATCH))))
    peer = spot.peer(store)

    def step() -> int:
        peer.send(batch(0, E2E_BATCH))
        return E2E_BATCH

    return _repeat(go, seconds, step)


def _receive_for(go: Go, spot: Spot, seconds: float) -> float:
    store = spot.store()
    if spot.subject == OURS:
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
    peer = spot.peer(store)
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
