"""What a procedure can ask of the engine that runs it.

A procedure is a generator: it asks with `yield from` one of these values, and the reply has the type that the request
declares (`now = yield from Now()` is a float). It touches no store, clock, chance or thread itself, so the same
procedure runs blocking, under asyncio, and in the simulator.

| request | reply |
|---|---|
| `Get Create Replace Delete List Look Remove Rename Copy` | the store port's answer; its errors are raised |
| `Together(requests)` | a list of replies in the same order; a failed request's error stands in its place |
| `Now()` | seconds since 1970 on the store's clock |
| `NewId()` | a name nobody else has |
| `Chance()` | a number in [0, 1) |
| `Pause(seconds)` | nothing, later |
| `Wait(latch, seconds)` | nothing, when the latch is open or the time is over |
| `Spawn(procedure, name)` | nothing; the procedure runs on its own |
| `Post(url, ...)` | `Answer`, or `NoAnswer` and why; never an error for what the other side does |
| `Call(function, argument, crew)` | what the user's function returned; its exception is raised where it was asked |
| `IfAbandoned(make)` | nothing; if the caller stops waiting for the result, the procedure that `make` makes runs |
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

import msgspec

from bucketmq.bucket.port import (
    PLAIN,
    Attributes,
    Found,
    Missing,
    Object,
    Page,
    Refused,
    Removed,
    Unknown,
    Version,
    Written,
)

Reply = TypeVar("Reply")


class Asking(msgspec.Struct, Generic[Reply], frozen=True):
    """A request whose reply is a `Reply`. Iterating over it asks."""

    def __iter__(self) -> Generator[Any, Any, Reply]:
        reply: Reply = yield self
        return reply


class Get(Asking[Object | Missing], frozen=True):
    key: str


class Create(Asking[Written | Refused | Unknown], frozen=True):
    key: str
    body: bytes
    attributes: Attributes = PLAIN


class Replace(Asking[Written | Refused | Unknown], frozen=True):
    key: str
    body: bytes
    version: Version
    attributes: Attributes = PLAIN


class Delete(Asking[None], frozen=True):
    key: str


class List(Asking[Page], frozen=True):
    prefix: str
    after: str
    limit: int


class Look(Asking[Found | Missing], frozen=True):
    key: str


class Remove(Asking[Removed | Refused | Unknown], frozen=True):
    key: str
    version: Version


class Rename(Asking[Removed | Refused | Unknown], frozen=True):
    key: str
    target: str
    version: Version


class Copy(Asking[Written | Refused | Unknown], frozen=True):
    key: str
    target: str
    source: Found
    attributes: Attributes = PLAIN


StoreRequest = Get | Create | Replace | Delete | List | Look | Remove | Rename | Copy


class Post(Asking["Answer | NoAnswer"], frozen=True):
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


class Together(Asking[list[Any]], frozen=True):
    """Several store requests that do not depend on one another."""

    requests: tuple[StoreRequest, ...]


class Now(Asking[float], frozen=True):
    pass


class NewId(Asking[str], frozen=True):
    pass


class Chance(Asking[float], frozen=True):
    pass


class Pause(Asking[None], frozen=True):
    seconds: float


class Latch:
    """Opens once. Waiting callers are woken; later ones do not wait."""

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


class Wait(Asking[None], frozen=True):
    latch: Latch
    seconds: float | None = None


class Spawn(Asking[None], frozen=True):
    procedure: Generator[Any, Any, Any]
    name: str


class Crew:
    """Those who call a worker's functions, `size` at a time. An engine that needs threads for that keeps them until
    `ended` opens; async functions under way are cancelled when `cancelled` opens."""

    __slots__ = ("cancelled", "ended", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.cancelled = Latch()
        self.ended = Latch()


class Call(Asking[Any], frozen=True):
    function: Callable[[Any], Any]
    argument: Any
    crew: Crew | None = None


class IfAbandoned(Asking[None], frozen=True):
    """A cancelled task leaves, while the procedure it asked for goes on, because others may ride on its writes. What
    the procedure gets is nobody's then, and this says what to do about it."""

    make: Callable[[], Generator[Any, Any, None]]


Request = StoreRequest | Post | Together | Now | NewId | Chance | Pause | Wait | Spawn | Call | IfAbandoned

Result = TypeVar("Result")
Procedure = Generator[Request, Any, Result]
"""A generator that asks `Request`s and returns a `Result`."""
