"""Carrying out one store request: the port's verb, its observers, and what the answer tells about the store's clock.

HTTP requests to other people's addresses go through `Hands.send`; how they are made does not belong here.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import assert_never

from bucketmq.bucket.port import (
    Found,
    Gathering,
    Missing,
    Object,
    Page,
    Refused,
    Removed,
    Store,
    Unknown,
    Version,
    Written,
)
from bucketmq.engines.clock import StoreClock
from bucketmq.engines.meter import Meter
from bucketmq.errors import BucketMQError, Invalid, Unsupported
from bucketmq.procedures.observers import Observers
from bucketmq.procedures.requests import (
    Answer,
    Copy,
    Create,
    Delete,
    Get,
    List,
    Look,
    NoAnswer,
    Post,
    Remove,
    Rename,
    Replace,
    StoreRequest,
)

Reply = Object | Found | Missing | Written | Removed | Refused | Unknown | Page | None

HTTP_DATE_SECONDS = 1.0
"""The precision of `Last-Modified`."""

REMEMBERED_WRITES = 32
ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
PAIRS = [first + second for first in ALPHABET for second in ALPHABET]
"""What ten bits become."""


class Hands:
    """What every engine needs to do what procedures ask: a store, its clock, chance, and those who look on.

    `post` makes HTTP requests to other people's addresses, for those who deliver events; `close_post` ends it.
    """

    def __init__(
        self,
        store: Store,
        post: Callable[[Post], Answer | NoAnswer] | None = None,
        close_post: Callable[[], None] = lambda: None,
    ) -> None:
        self.store = store
        self.post = post
        self._close_post = close_post
        self._together = store.together if isinstance(store, Gathering) else contextlib.nullcontext
        self.meter = Meter()
        self.observers = Observers(self.meter)
        self.clock = StoreClock(precision_seconds=0.0 if store.local else HTTP_DATE_SECONDS, local=store.local)
        self._random = random.SystemRandom()
        self._writes: OrderedDict[str, tuple[Version, float, float]] = OrderedDict()
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self.closed = False
        self.at_last: list[Callable[[], None]] = []
        """Called when the last request is over."""

    @property
    def is_own_process(self) -> bool:
        """False in a forked child: a store and its locks do not survive a fork."""
        return os.getpid() == self._pid

    def check_process(self) -> None:
        if self.closed:
            raise Invalid("this bucket was closed; call connect() again")
        if not self.is_own_process:
            raise Invalid("this bucket was opened before a fork; call connect() again in the child process")

    def close(self) -> None:
        """Nothing more is asked from now on."""
        self.closed = True
        self._close_post()

    def release(self) -> None:
        """Give back what the store holds open, when the last request is over, and what others held for it."""
        self.store.close()
        while self.at_last:
            self.at_last.pop()()

    def new_id(self) -> str:
        """80 bits of chance as 16 characters."""
        bits = self._random.getrandbits(80)
        return "".join([PAIRS[bits >> shift & 1023] for shift in range(70, -1, -10)])

    def chance(self) -> float:
        return random.random()

    def send(self, request: Post) -> Answer | NoAnswer:
        """What came of one HTTP request; what the other side does is never an error."""
        if self.post is None:
            raise Unsupported(
                f"cannot send to {request.url[:200]!r}: this bucket was opened without a way to make HTTP requests; "
                "deliver events through a notifier"
            )
        return self.post(request)

    def perform(self, request: StoreRequest) -> Reply:
        """The port's answer; its errors are raised."""
        before = self.clock.tick()
        try:
            reply = carry_out(self.store, request)
        except BucketMQError as error:
            self.observers.on_request(request, error, max(0.0, self.clock.tick() - before))
            raise
        after = self.clock.tick()
        self.observers.on_request(request, reply, max(0.0, after - before))
        self._watch_clock(request, reply, before, after)
        return reply

    def perform_all(self, requests: Iterable[StoreRequest]) -> list[Reply | BucketMQError]:
        """What came of each, one after the other: the port's answer, or its error."""
        replies: list[Reply | BucketMQError] = []
        try:
            with self._together():
                replies += [self._or_error(request) for request in requests]
        except BucketMQError as error:
            return [_in_doubt(reply, error) for reply in replies]
        return replies

    def _or_error(self, request: StoreRequest) -> Reply | BucketMQError:
        try:
            return self.perform(request)
        except BucketMQError as error:
            return error

    def _watch_clock(self, request: StoreRequest, reply: Reply, before: float, after: float) -> None:
        """Learn from stamps on our own writes: at once where the store tells, else when we happen to read one back."""
        if isinstance(reply, Written) and isinstance(request, Create | Replace):
            if reply.stored_at is not None:
                self.clock.observe(reply.stored_at, before, after)
                return
            with self._lock:
                self._writes[request.key] = reply.version, before, after
                while len(self._writes) > REMEMBERED_WRITES:
                    self._writes.popitem(last=False)
        elif isinstance(reply, Object) and isinstance(request, Get):
            with self._lock:
                write = self._writes.pop(request.key, None)
            if write is not None and write[0] == reply.version:
                self.clock.observe(reply.stored_at, write[1], write[2])


def carry_out(store: Store, request: StoreRequest) -> Reply:
    """The verb of the port that a request asks for."""
    match request:
        case Get(key):
            return store.get(key)
        case Create(key, body, attributes):
            return store.create(key, body, attributes)
        case Replace(key, body, version, attributes):
            return store.replace(key, body, version, attributes)
        case Delete(key):
            store.delete(key)
            return None
        case List(prefix, after, limit):
            return store.list(prefix, after=after, limit=limit)
        case Look(key):
            return store.look(key)
        case Remove(key, version):
            return store.remove(key, version)
        case Rename(key, target, version):
            return store.rename(key, target, version)
        case Copy(key, target, source, attributes):
            return store.copy(key, target, source, attributes)
        case _:
            assert_never(request)


def _in_doubt(reply: Reply | BucketMQError, error: BucketMQError) -> Reply | BucketMQError:
    """What can be said of a request whose effect may not last."""
    if reply is None:  # of a delete
        return error
    return Unknown(str(error)) if isinstance(reply, Written | Removed) else reply
