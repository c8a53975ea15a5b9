"""Stores of every sort with a clock that the tests move, and any number of processes on them, some with faults.

Pauses take no time: they move the clock. Everything else is the real thing.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from bucketmq import aio, client
from bucketmq.bucket.folder import FolderStore
from bucketmq.bucket.memory import MemoryStore
from bucketmq.bucket.port import PLAIN, Attributes, Found, Missing, Object, Refused, Unknown, Version, Written
from bucketmq.engines.asynchronous import Asynchronous
from bucketmq.engines.blocking import Blocking
from bucketmq.engines.perform import Hands, Reply
from bucketmq.errors import Unavailable, Unsupported
from bucketmq.events.event import ObjectEvent
from bucketmq.events.window import Window
from bucketmq.notify.lazy import LazyPoster
from bucketmq.procedures.requests import Copy, Create, Pause, Remove, Rename, Replace, Request, StoreRequest
from procedures.awaited import Awaited, Loop

PREFIX = "app"

STORES = ["renaming", "copying", "hashing", "folder", "cloning", "promising"]
"""A store that renames in one step; one that does not; one whose versions are content hashes, as S3's are; a folder;
one that copies by itself, as a folder does; one that finds out only when it is asked that it cannot."""


class Time:
    """The store's clock: the machine's, and what a test or a pause has added. In place of `engines.clock.StoreClock`,
    which learns the same from the stamps of a real store."""

    learnt = True
    skew_seconds = 0.0

    def __init__(self) -> None:
        self.ahead = 0.0
        self._lock = threading.Lock()

    def tick(self) -> float:
        return time.time()

    def now(self) -> float:
        return self.tick() + self.ahead

    def advance(self, seconds: float) -> None:
        with self._lock:
            self.ahead += seconds

    def reach(self, ahead: float) -> None:
        """Those who pause at the same time pause together."""
        with self._lock:
            self.ahead = max(self.ahead, ahead)

    def observe(self, stored_at: float, before: float, after: float) -> None:
        pass


class CloningStore(MemoryStore):
    renames = False


class CopyingStore(CloningStore):
    copies = False


class PromisingStore(CloningStore):
    def copy(self, key: str, target: str, source: Found, attributes: Attributes = PLAIN) -> Written | Refused:
        raise Unsupported("conditions on copies turned out not to hold")


class HashingStore(CopyingStore):
    """Equal bytes have equal versions."""

    exact_versions = False

    def _put(self, key: str, body: bytes, attributes: Attributes) -> Written:
        version = Version(f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"')
        written = Object(bytes(body), version, self._clock(), attributes)
        self._objects[key] = written
        return Written(written.version, written.stored_at)


class Killed(BaseException):
    """The process is dead: nothing it does from here on reaches the store."""


WRITES = (Create, Replace, Remove, Rename, Copy)
FAULTS = ["landed", "lost", "refused", "landed and refused", "unavailable", "unavailable for long"]
DEATHS = ["dies before", "dies after"]


class FaultyHands(Hands):
    """Hands that do one request, number `at`, badly. Counts them all; `meddle` is called before each."""

    def __init__(self, store: Any, time_: Time, *, at: int = -1, fault: str = "", post: Any = None) -> None:
        super().__init__(store, post, post.close if post is not None else lambda: None)
        self.clock: Any = time_
        self.at = at
        self.fault = fault
        self.count = 0
        self.dead = False
        self.hit = False
        self.meddle: Callable[[int, StoreRequest], None] = lambda _number, _request: None

    def perform(self, request: StoreRequest) -> Reply:
        if self.dead:
            raise Killed
        number, self.count = self.count, self.count + 1
        self.meddle(number, request)
        due = number == self.at or (self.fault == "unavailable for long" and 0 <= self.at < number)
        return self._badly(request) if due else super().perform(request)

    def _badly(self, request: StoreRequest) -> Reply:
        self.hit = True
        is_write = isinstance(request, WRITES)
        match self.fault:
            case "dies before":
                self.dead = True
                raise Killed
            case "dies after":
                self.dead = True
                super().perform(request)
                raise Killed
            case "landed" if is_write:
                super().perform(request)
                return Unknown("timed out after it landed")
            case "lost" if is_write:
                return Unknown("timed out before it got there")
            case "refused" if is_write:
                return Refused()
            case "landed and refused" if is_write and not isinstance(request, Rename):  # a hidden retry
                super().perform(request)
                return Refused()
            case "landed" | "landed and refused":
                super().perform(request)
                raise Unavailable("the answer was lost")
            case _:
                raise Unavailable("503, try again")


class Timeless(Blocking):
    """The blocking engine, but pauses only move the clock."""

    def _do(self, request: Request) -> Any:
        if isinstance(request, Pause):
            self.hands.clock.reach(self.hands.clock.ahead + request.seconds)
            return None
        return super()._do(request)


class World:
    """`kind` is one of `STORES`. Every `connect` is like a process of its own: they share only the store."""

    def __init__(self, kind: str = "copying", folder: Path | None = None, *, prefix: str = PREFIX) -> None:
        self.time = Time()
        self.prefix = prefix
        if kind == "folder":
            assert folder is not None
            self.store: Any = FolderStore(folder)
        else:
            kinds = {
                "renaming": MemoryStore,
                "copying": CopyingStore,
                "hashing": HashingStore,
                "cloning": CloningStore,
                "promising": PromisingStore,
            }
            self.store = kinds[kind](self.time.now)
        self._buckets: list[Any] = []
        self._loops: list[Loop] = []

    def connect(self, *, at: int = -1, fault: str = "", prefix: str | None = None) -> Any:
        hands = FaultyHands(self.store, self.time, at=at, fault=fault, post=LazyPoster())
        bucket = client.Bucket(Timeless(hands), self.prefix if prefix is None else prefix, probe=False)
        bucket.hands = hands  # type: ignore[attr-defined]  # for the tests
        if fault:
            bucket.api.keeper.stop.open()  # nothing of it lives on in the background
        else:
            self._buckets.append(bucket)
        return bucket

    def connect_async(self) -> Any:
        """The asyncio facade, called as if it were blocking; its pauses take real time."""
        loop = Loop()
        self._loops.append(loop)
        hands = FaultyHands(self.store, self.time, post=LazyPoster())
        bucket = Awaited(aio.Bucket(Asynchronous(hands), self.prefix, probe=False), loop)
        self._buckets.append(bucket)
        return bucket

    def advance(self, seconds: float) -> None:
        self.time.advance(seconds)

    def objects(self, part: str = "") -> dict[str, bytes]:
        """Users' objects by key, below the prefix."""
        own = ("queues/", "rules/", "inventory/", "probe/", ".bucketmq/")
        return {
            key: body for key, body in self.everything().items() if key.startswith(part) and not key.startswith(own)
        }

    def everything(self) -> dict[str, bytes]:
        root = f"{self.prefix}/" if self.prefix else ""
        entries = self.store.list(root, after="", limit=1_000_000).entries
        found = {entry.key.removeprefix(root): self.store.get(entry.key) for entry in entries}
        return {key: each.body for key, each in found.items() if not isinstance(each, Missing)}

    def notes(self) -> list[str]:
        return [key for key in self.everything() if key.startswith("inventory/notes/")]

    def write(self, key: str, body: bytes, metadata: dict[str, str] | None = None) -> None:
        """Write an object behind the bus's back."""
        full = f"{self.prefix}/{key}" if self.prefix else key
        self.store.delete(full)
        assert isinstance(self.store.create(full, body, Attributes("", metadata or {})), Written)

    def delete(self, key: str) -> None:
        self.store.delete(f"{self.prefix}/{key}" if self.prefix else key)

    def close(self) -> None:
        for bucket in self._buckets:
            bucket.close()
        for loop in self._loops:
            loop.close()


def log_of(bucket: Any, queue: str = "events") -> Iterator[Any]:
    """Every message of a queue's log, in order within a shard."""
    positions: dict[int, int] = {}
    while seen := bucket.queue(queue).tail(positions):
        yield from seen


def told(bucket: Any) -> list[ObjectEvent]:
    """The events of the log for everybody, each change once, as readers see it."""
    window = Window(0)
    fresh = []
    for offset, message in enumerate(each for each in log_of(bucket) if each.message.to is None):
        event = msgspec.convert(message.body, ObjectEvent)
        if not window.judge(offset, event).duplicate:
            fresh.append(event)
    return fresh


def summary(bucket: Any) -> list[tuple[str, str]]:
    return [(event.kind, event.key) for event in told(bucket)]


def attempts_of(bucket: Any, rule: str) -> list[dict[str, Any]]:
    """The rule's lines of the journal."""
    return [message.body for message in log_of(bucket, "deliveries") if message.body["rule"] == rule]
