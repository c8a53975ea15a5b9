"""Observers: the two places where metrics, traces and hooks hang.

A `RequestObserver` sees every request to the store, a `WorkObserver` every message that a worker has handled. They are
called where that happens, on its thread, so they must be quick and safe to call from several threads. What they raise
is logged and has no effect: nobody loses a message because a metric could not be written.
"""

from __future__ import annotations

import logging
from typing import Any, Protocol

import msgspec

from bucketmq.errors import Invalid
from bucketmq.outcomes import Outcome
from bucketmq.procedures.requests import StoreRequest
from bucketmq.queue.message import Message

logger = logging.getLogger("bucketmq")


class Handed(msgspec.Struct, frozen=True):
    """A message as it was handed to a worker: what it is, where it lies, and which attempt this is."""

    message: Message
    shard: int
    offset: int
    attempt: int
    waited_seconds: float = 0.0
    """From the send until it was begun, on the store's clock; for a later attempt its back-off is in it."""


class RequestObserver(Protocol):
    """Sees every request to the store."""

    def on_request(self, request: StoreRequest, reply: object, seconds: float) -> None:
        """`reply` is what the store answered, or the `BucketMQError` that was raised instead."""
        ...


class WorkObserver(Protocol):
    """Sees every message that a worker has handled."""

    def on_handled(
        self, queue: str, subscription: str, delivery: Handed, outcome: Outcome | BaseException, seconds: float
    ) -> None:
        """`outcome` is what becomes of the message; `LeaseLost` if that is not the worker's to say any more. Messages
        that are handled together took `seconds` together."""
        ...


class Observers:
    """Those who look on."""

    def __init__(self, *requests: RequestObserver) -> None:
        self.requests = requests
        self.work: tuple[WorkObserver, ...] = ()

    def add(self, observer: RequestObserver | WorkObserver) -> None:
        """Call it from now on, for whichever of the two it has a method."""
        watcher: Any = observer
        sees_requests, sees_work = hasattr(watcher, "on_request"), hasattr(watcher, "on_handled")
        if not sees_requests and not sees_work:
            raise Invalid(f"{observer!r:.80} observes nothing; give it a method on_request or on_handled")
        if sees_requests:
            self.requests = (*self.requests, watcher)
        if sees_work:
            self.work = (*self.work, watcher)

    def on_request(self, request: StoreRequest, reply: object, seconds: float) -> None:
        for each in self.requests:
            try:
                each.on_request(request, reply, seconds)
            except Exception as error:
                _failed(each, error)

    def on_handled(
        self, queue: str, subscription: str, delivery: Handed, outcome: Outcome | BaseException, seconds: float
    ) -> None:
        for each in self.work:
            try:
                each.on_handled(queue, subscription, delivery, outcome, seconds)
            except Exception as error:
                _failed(each, error)


def _failed(observer: object, error: Exception) -> None:
    logger.warning("action=observer_failed observer=%s error=%.200r", type(observer).__name__, error)
