"""What a procedure can ask of the engine that runs it.

A procedure is a generator: it yields one of these values and receives the reply. It touches no store, clock, chance or
thread itself, so the same procedure runs blocking, under asyncio, and in the simulator.

| request | reply |
|---|---|
| `Get Create Replace Delete List Look Remove Rename` | the store port's answer; its errors are raised at the `yield` |
| `Together(requests)` | a list of replies in the same order; a failed request's error stands in its place |
| `Now()` | seconds since 1970 on the store's clock |
| `NewId()` | a name nobody else has |
| `Chance()` | a number in [0, 1) |
| `Pause(seconds)` | nothing, later |
| `Wait(latch, seconds)` | nothing, when the latch is open or the time is over |
| `Spawn(procedure, name)` | nothing; the procedure runs on its own |
| `Post(url, ...)` | `Answer`, or `NoAnswer` and why; never an error for what the other side does |
| `Call(function, argument)` | what the user's function returned; its exception is raised at the `yield` |
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import msgspec

from bucketmq.bucket.port import PLAIN, Attributes, Version


class Get(msgspec.Struct, frozen=True):
    key: str


class Create(msgspec.Struct, frozen=True):
    key: str
    body: bytes
    attributes: Attributes = PLAIN


class Replace(msgspec.Struct, frozen=True):
    key: str
    body: bytes
    version: Version
    attributes: Attributes = PLAIN


class Delete(msgspec.Struct, frozen=True):
    key: str


class List(msgspec.Struct, frozen=True):
    prefix: str
    after: str
    limit: int


class Look(msgspec.Struct, frozen=True):
    key: str


class Remove(msgspec.Struct, frozen=True):
    key: str
    version: Version


class Rename(msgspec.Struct, frozen=True):
    key: str
    target: str
    version: Version


StoreRequest = Get | Create | Replace | Delete | List | Look | Remove | Rename


class Post(msgspec.Struct, frozen=True):
    """One HTTP POST to somebody else's address. Redirects are not followed; the answer's body is cut."""

    url: str
    headers: dict[str, str]
    body: bytes
    timeout_seconds: float
    private: bool = False
    """Whether addresses of private networks and this machine may be spoken to."""


class Answer(msgspec.Struct, frozen=True):
    """What the other side answered. Header names are lower case. The body is cut: a 2xx's at 64 KiB, because it may
    name the events that failed; any other at 1 KiB."""

    status: int
    headers: dict[str, str]
    body: bytes
    seconds: float


class NoAnswer(msgspec.Struct, frozen=True):
    """No answer came. `refused` means that we did not even ask: the address is not allowed."""

    reason: str
    seconds: float
    refused: bool = False


class Together(msgspec.Struct, frozen=True):
    """Several store requests that do not depend on one another."""

    requests: tuple[StoreRequest, ...]


class Now(msgspec.Struct, frozen=True):
    pass


class NewId(msgspec.Struct, frozen=True):
    pass


class Chance(msgspec.Struct, frozen=True):
    pass


class Pause(msgspec.Struct, frozen=True):
    seconds: float


class Latch:
    """Opens once. Whoever waits for it is told; whoever comes later passes."""

    __slots__ = ("_callbacks", "_lock", "is_open")

    def __init__(self) -> None:
        self.is_open = False
        self._callbacks: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def open(self) -> None:
        with self._lock:
            self.is_open = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def on_open(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the latch opens, or now if it has."""
        with self._lock:
            if not self.is_open:
                self._callbacks.append(callback)
                return
        callback()

    def forget(self, callback: Callable[[], None]) -> None:
        """Whoever stops waiting says so, so that a latch that stays shut does not collect callbacks."""
        with self._lock:
            if callback in self._callbacks:
                self._callbacks.remove(callback)


class Wait(msgspec.Struct, frozen=True):
    latch: Latch
    seconds: float | None = None


class Spawn(msgspec.Struct, frozen=True):
    procedure: Generator[Any, Any, Any]
    name: str


class Call(msgspec.Struct, frozen=True):
    function: Callable[[Any], Any]
    argument: Any


Request = StoreRequest | Post | Together | Now | NewId | Chance | Pause | Wait | Spawn | Call

Result = TypeVar("Result")
Procedure = Generator[Request, Any, Result]
"""A generator that asks `Request`s and returns a `Result`."""
