"""A store in memory whose clock the test moves, and any number of processes connected to it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from bucketmq import aio, client
from bucketmq.bucket.memory import MemoryStore
from bucketmq.bucket.port import Missing, Version
from bucketmq.engines.asynchronous import Asynchronous
from bucketmq.engines.blocking import Blocking
from bucketmq.engines.perform import Hands, Reply
from bucketmq.procedures.requests import Create, StoreRequest
from procedures.awaited import Awaited, Loop

PREFIX = "app"


class Killed(BaseException):
    """The process is dead: nothing it does from here on reaches the store."""


class MortalHands(Hands):
    """Hands that die after so many requests. The last one has reached the store; its reply is never seen."""

    def __init__(self, store: MemoryStore, lives: int) -> None:
        super().__init__(store)
        self.lives = lives

    def perform(self, request: StoreRequest) -> Reply:
        if self.lives <= 0:
            raise Killed
        self.lives -= 1
        reply = super().perform(request)
        if self.lives == 0:
            raise Killed
        return reply


class World:
    """`facade` is "blocking" or "asyncio". Every `connect` is like a process of its own: they share only the store."""

    def __init__(self, facade: str = "blocking", store: MemoryStore | None = None) -> None:
        self.facade = facade
        self.ahead = 0.0
        self.store = store if store is not None else MemoryStore(lambda: time.time() + self.ahead)
        self._hands: list[Hands] = []
        self._buckets: list[Any] = []
        self._loops: list[Loop] = []
        self._ticks = 0

    def connect(self) -> Any:
        hands = Hands(self.store)
        self._hands.append(hands)
        self._tick(hands)
        if self.facade == "asyncio":
            loop = Loop()
            self._loops.append(loop)
            bucket: Any = Awaited(aio.Bucket(Asynchronous(hands), PREFIX, probe=False), loop)
        else:
            bucket = client.Bucket(Blocking(hands), PREFIX, probe=False)
        self._buckets.append(bucket)
        return bucket

    def mortal(self, lives: int) -> client.Bucket:
        """A process that dies after so many requests."""
        hands = MortalHands(self.store, lives + 1)
        self._tick(hands)
        bucket = client.Bucket(Blocking(hands), PREFIX, probe=False)
        bucket.api.keeper.stop.open()  # nothing of it lives on in the background
        return bucket

    def advance(self, seconds: float) -> None:
        """Let time pass on the store's clock. Processes see it on what they write, so each writes something."""
        self.ahead += seconds
        for hands in self._hands:
            self._tick(hands)

    def _tick(self, hands: Hands) -> None:
        """Write something, as the probe does, so that this process learns what the store's clock says."""
        self._ticks += 1
        hands.perform(Create(f"tick/{self._ticks}", b""))
        self.store.delete(f"tick/{self._ticks}")

    def now(self) -> float:
        return time.time() + self.ahead

    def keys(self, part: str = "", queue: str = "jobs") -> list[str]:
        """What lies in the bucket below this part of a queue."""
        prefix = f"{PREFIX}/queues/{queue}/{part}"
        return [key for key in self.everything() if key.startswith(prefix)]

    def everything(self) -> dict[str, bytes]:
        """The whole bucket."""
        entries = self.store.list("", after="", limit=1_000_000).entries
        found = {entry.key: self.store.get(entry.key) for entry in entries}
        return {key: each.body for key, each in found.items() if not isinstance(each, Missing)}

    def key(self, part: str, queue: str = "jobs") -> str:
        return f"{PREFIX}/queues/{queue}/{part}"

    def segment(self, base: int = 0, shard: int = 0, queue: str = "jobs") -> str:
        return self.key(f"log/{shard}/{base:020}.ndjson", queue)

    def read(self, key: str) -> bytes:
        found = self.store.get(key)
        assert not isinstance(found, Missing), key
        return found.body

    def json(self, key: str) -> Any:
        return msgspec.json.decode(self.read(key))

    def overwrite(self, key: str, body: bytes) -> None:
        found = self.store.get(key)
        version = Version("") if isinstance(found, Missing) else found.version
        self.store.replace(key, body, version)

    def close(self) -> None:
        for bucket in self._buckets:
            bucket.close()
        for loop in self._loops:
            loop.close()


def eventually(holds: Callable[[], Any], seconds: float = 15.0) -> Any:
    """What `holds` answers as soon as that is true."""
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.01)
    return found


def drain(queue: Any, *, limit: int = 100) -> list[Any]:
    """Receive and ack until nothing comes; the bodies in the order they came."""
    bodies = []
    while batch := queue.receive(limit):
        for delivery in batch:
            bodies.append(delivery.body)
            delivery.ack()
    queue.flush()
    return bodies
