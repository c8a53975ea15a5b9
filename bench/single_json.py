"""The peer: a queue in one JSON object, as several articles and packages have it.

One state object holds every message. Each operation reads it, changes it, and replaces it on the condition that nobody
else did; whoever loses the race does it all again. This version does what the published ones leave out and a user needs
(a lease with a number that settles, attempts, jittered retries for as long as it takes, batches, acks that travel with
the next receive, finished messages counted instead of kept), and it is as quick as the design allows: bodies are never
decoded on the way through. What cannot be helped is the design itself: the whole backlog crosses the wire twice for
every operation, and all producers and workers race for one object.

With `remember=True` the state last written or read is not read again before the next change: one request instead of
two, as long as no other process writes.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from bucketmq.bucket.port import Missing, Store, Version, Written
from bucketmq.errors import Contended, LeaseLost

Result = TypeVar("Result")

TRIES_MAX = 1_000
PAUSE_SECONDS = 0.005
PAUSE_SECONDS_MAX = 0.5


class Item(msgspec.Struct, frozen=True, gc=False):
    """A message in the state object. The body stays the JSON text it is."""

    id: int
    body: msgspec.Raw
    attempts: int = 0


class Claimed(msgspec.Struct, frozen=True):
    """Messages in somebody's hands until a time."""

    items: list[Item]
    until: float


class State(msgspec.Struct):
    """The whole queue. `version` makes every state's bytes differ from the one before."""

    messages: list[Item]
    processing: dict[int, Claimed]
    processed: int = 0
    next_id: int = 0
    next_lease: int = 1
    version: int = 0


class Received(msgspec.Struct, frozen=True):
    """A batch under one lease."""

    lease: int
    items: list[Item]

    def bodies(self) -> list[Any]:
        return [_decode(each.body) for each in self.items]


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(State)
_decode = msgspec.json.decode


class SingleJsonQueue:
    """The queue in the object `key` of any store that has the port's five verbs. Safe for many threads."""

    def __init__(
        self, store: Store, key: str = "queue.json", *, lease_seconds: float = 60.0, remember: bool = False
    ) -> None:
        self._store = store
        self._key = key
        self._lease_seconds = lease_seconds
        self._remember = remember
        self._lock = threading.Lock()
        self._last: tuple[bytes, Version] | None = None
        self.conflicts = 0

    def send(self, bodies: Iterable[Any]) -> None:
        """Returns when the messages are durable. One GET and one PUT of the whole queue."""
        raws = [msgspec.Raw(_encoder.encode(body)) for body in bodies]

        def change(state: State) -> None:
            state.messages += [Item(state.next_id + place, raw) for place, raw in enumerate(raws)]
            state.next_id += len(raws)

        self._change(change)

    def receive(self, limit: int = 1, *, acked: Sequence[int] = ()) -> Received:
        """Up to `limit` messages under one lease, perhaps none; settles the leases `acked` in the same write."""

        def change(state: State) -> Received:
            for lease in acked:
                _settle(state, lease)
            _expire(state)
            items = [msgspec.structs.replace(each, attempts=each.attempts + 1) for each in state.messages[:limit]]
            del state.messages[:limit]
            lease = state.next_lease
            if items:
                state.processing[lease] = Claimed(items, time.time() + self._lease_seconds)
                state.next_lease += 1
            return Received(lease, items)

        return self._change(change)

    def ack(self, lease: int) -> None:
        """Settle a batch; `LeaseLost` if its lease is over and somebody else has it. One GET and one PUT."""
        self._change(lambda state: _settle(state, lease))

    def depth(self) -> int:
        state, _ = self._read()
        return len(state.messages) + sum(len(each.items) for each in state.processing.values())

    def _change(self, change: Callable[[State], Result]) -> Result:
        for attempt in range(TRIES_MAX):
            state, version = self._read()
            before = state.version
            result = change(state)
            state.version = before + 1
            body = _encoder.encode(state)
            if version is None:
                reply = self._store.create(self._key, body)
            else:
                reply = self._store.replace(self._key, body, version)
            if isinstance(reply, Written):
                self._keep(body, reply.version)
                return result
            # A benchmark's store loses no replies, so a write that did not land was beaten by another.
            self.conflicts += 1
            self._keep(None, None)
            time.sleep(random.random() * min(PAUSE_SECONDS_MAX, PAUSE_SECONDS * 2 ** min(attempt, 10)))
        raise Contended(f"{self._key}: lost {TRIES_MAX} races in a row; use fewer producers and workers")

    def _read(self) -> tuple[State, Version | None]:
        with self._lock:
            last = self._last
        if last is not None:
            return _decoder.decode(last[0]), last[1]
        found = self._store.get(self._key)
        if isinstance(found, Missing):
            return State([], {}), None
        return _decoder.decode(found.body), found.version

    def _keep(self, body: bytes | None, version: Version | None) -> None:
        if self._remember:
            with self._lock:
                self._last = (body, version) if body is not None and version is not None else None


def _settle(state: State, lease: int) -> None:
    claimed = state.processing.pop(lease, None)
    if claimed is None:
        raise LeaseLost(f"lease {lease} is over and its messages went to somebody else; stop working on them")
    state.processed += len(claimed.items)


def _expire(state: State) -> None:
    now = time.time()
    for lease, claimed in list(state.processing.items()):
        if claimed.until <= now:
            state.messages[:0] = claimed.items
            del state.processing[lease]
