"""One sending and one receiving process on a real store: end to end, draining a backlog, and single sends."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

import bucketmq
from bench.children import alone, together
from bench.payload import batch, body, checksum
from bench.places import Place, folder, folder_place, seaweedfs_place, settle_disk
from bench.results import Measurement, Target, measured
from bench.sizes import BACKLOG, BATCH, Sizes

QUEUE = "jobs"
RAW_BYTES = 200_000
RAW_WRITES = 50
WAIT_SECONDS = 5.0

Go = Callable[[], object]

FOLDER_END_TO_END = Target(at_least=200_000)
FOLDER_DRAIN = Target(at_least=300_000)
FOLDER_SINGLES = Target(at_least=1_000)
SEAWEEDFS_END_TO_END = Target(at_least=50_000)

PEERS = (
    "other queues, measured earlier on a machine of this kind, durable settings, end to end / drain: "
    "Redis Streams 46,000 / 110,000; PostgreSQL SKIP LOCKED 39,000 / 66,000; RabbitMQ quorum 13,000 / 37,000; "
    "NATS JetStream 2,600 / 4,600; jqueue on a file 2,000"
)


def on_folder(sizes: Sizes) -> Iterator[Measurement]:
    """A folder on this machine's disk, every write forced to it."""
    with folder() as path:
        yield _raw_disk(path)
    with folder_place() as place:
        yield from _three("folder", place, sizes.messages, sizes, (FOLDER_END_TO_END, FOLDER_DRAIN, FOLDER_SINGLES))


def on_seaweedfs(sizes: Sizes) -> Iterator[Measurement]:
    """A real S3 server on loopback. It shares the machine's cores with the two processes."""
    with seaweedfs_place() as place:
        yield from _three("seaweedfs", place, sizes.messages_remote, sizes, (SEAWEEDFS_END_TO_END, None, None))


def _three(
    scenario: str,
    place: Place,
    messages: int,
    sizes: Sizes,
    targets: tuple[Target | None, Target | None, Target | None],
) -> Iterator[Measurement]:
    whole, backlog, single = targets
    runs = [_end_to_end(place.url(f"whole-{turn}"), messages) for turn in range(sizes.repeats)]
    yield measured(
        scenario, "end to end", [each[0] for each in runs], "messages/s", store=place.name, target=whole, note=PEERS
    )
    yield measured(scenario, "sending meanwhile", [each[1] for each in runs], "messages/s", store=place.name)
    yield measured(scenario, "processor time to send", [each[2] for each in runs], "µs/message", store=place.name)
    yield measured(scenario, "processor time to receive", [each[3] for each in runs], "µs/message", store=place.name)
    depth = min(messages, BACKLOG)
    drains = []
    for turn in range(sizes.repeats):
        url = place.url(f"backlog-{turn}")
        _send(lambda: None, url, depth)
        settle_disk()
        drained = alone(_receive, url, depth)
        drains.append(depth / (drained.ended - drained.began))
    yield measured(scenario, f"draining {depth:,}", drains, "messages/s", store=place.name, target=backlog, depth=depth)
    singles = [
        sizes.singles / alone(_send_singly, place.url(f"single-{n}"), sizes.singles) for n in range(sizes.repeats)
    ]
    yield measured(scenario, "single sends", singles, "messages/s", store=place.name, target=single)


def _raw_disk(path: Path) -> Measurement:
    """What one durable write of a batch's size costs without any queue: when this is slow, everything below is."""
    body = bytes(RAW_BYTES)
    seconds = []
    directory = os.open(path, os.O_RDONLY)
    try:
        for turn in range(RAW_WRITES):
            began = time.perf_counter()
            with (path / "tmp").open("wb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            (path / "tmp").rename(path / str(turn))
            os.fsync(directory)
            seconds.append(time.perf_counter() - began)
    finally:
        os.close(directory)
    return measured(
        "folder",
        f"{RAW_BYTES // 1000} KB written, forced, renamed, folder forced",
        [1000 * each for each in seconds],
        "ms",
        subject="no queue",
        store="folder",
        note="0.8 ms on this kind of machine when nobody else writes",
    )


def _end_to_end(url: str, messages: int) -> tuple[float, float, float, float]:
    """Messages a second from the first send to the last ack in the bucket, and those of the sender alone; then the
    processor time of each side for one message in microseconds, which says more than the rest on a busy machine."""
    settle_disk()
    sent, received = together([(_send, (url, messages)), (_receive, (url, messages))])
    rates = messages / (received.ended - sent.began), messages / (sent.ended - sent.began)
    return *rates, sent.processor_seconds / messages * 1e6, received.processor_seconds / messages * 1e6


class Timed(msgspec.Struct, frozen=True):
    """When a process did its part, on the clock that processes share, and what it took of the processor."""

    began: float
    ended: float
    processor_seconds: float


class Timer:
    def __init__(self) -> None:
        self._processor = time.process_time()
        self._began = time.monotonic()

    def stop(self) -> Timed:
        return Timed(self._began, time.monotonic(), time.process_time() - self._processor)


def _send(go: Go, url: str, messages: int) -> Timed:
    with bucketmq.connect(url, probe=False) as bucket:
        queue = bucket.queue(QUEUE)
        queue.settings()
        go()
        timer = Timer()
        for start in range(0, messages, BATCH):
            queue.send_many(batch(start, min(BATCH, messages - start)))
        return timer.stop()


def _receive(go: Go, url: str, messages: int) -> Timed:
    """Receive and ack everything, each body looked at; refuse to answer if something is missing or came twice."""
    with bucketmq.connect(url, probe=False) as bucket:
        queue = bucket.queue(QUEUE)
        queue.settings()
        go()
        timer = Timer()
        received = total = 0
        while received < messages:
            deliveries = queue.receive(BATCH, wait_seconds=WAIT_SECONDS)
            for delivery in deliveries:
                total += delivery.body["n"]
                delivery.ack()
            received += len(deliveries)
        queue.flush()
        timed = timer.stop()
    if received != messages or total != checksum(messages):
        raise AssertionError(f"received {received} of {messages} messages, adding up to {total}: some twice or lost")
    return timed


def _send_singly(go: Go, url: str, messages: int) -> float:
    with bucketmq.connect(url, probe=False) as bucket:
        queue = bucket.queue(QUEUE)
        queue.send(body(0))
        go()
        began = time.monotonic()
        for number in range(messages):
            queue.send(body(number))
        return time.monotonic() - began
