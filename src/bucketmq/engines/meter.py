"""Counting requests and bytes, by kind and outcome. What `stats` prices and what the tests assert.

The meter is the first observer of every bucket's requests.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import get_args

import msgspec

from bucketmq.bucket.port import Missing, Object, Refused, Unknown
from bucketmq.procedures.requests import Create, Remove, Replace, StoreRequest
from bucketmq.values import Value

NAMES: dict[type[StoreRequest], str] = {kind: kind.__name__.lower() for kind in get_args(StoreRequest)}


class Requests(Value, msgspec.Struct, frozen=True):
    """How many requests were made so far, and what became of them."""

    get: int = 0
    create: int = 0
    replace: int = 0
    delete: int = 0
    list: int = 0
    look: int = 0
    remove: int = 0
    rename: int = 0
    copy: int = 0
    missing: int = 0
    refused: int = 0
    """Writes that the store refused."""
    removes_refused: int = 0
    unknown: int = 0
    """Writes and removes of which nobody can tell."""
    failed: int = 0
    bytes_in: int = 0
    bytes_out: int = 0

    @property
    def writes(self) -> int:
        """Creates, replaces, renames and copies: what providers bill as a write."""
        return self.create + self.replace + self.rename + self.copy

    @property
    def reads(self) -> int:
        return self.get + self.look

    def __sub__(self, other: Requests) -> Requests:
        return Requests(**{name: getattr(self, name) - getattr(other, name) for name in self.__struct_fields__})


class Meter:
    """Thread-safe counters."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def on_request(self, request: StoreRequest, reply: object, seconds: float) -> None:
        with self._lock:
            counts = self._counts
            counts[NAMES[type(request)]] += 1
            if isinstance(request, Create | Replace):
                counts["bytes_out"] += len(request.body)
            match reply:
                case Object(body=body):
                    counts["bytes_in"] += len(body)
                case Missing():
                    counts["missing"] += 1
                case Refused():
                    counts["removes_refused" if isinstance(request, Remove) else "refused"] += 1
                case Unknown():
                    counts["unknown"] += 1
                case Exception():
                    counts["failed"] += 1

    def read(self) -> Requests:
        with self._lock:
            return Requests(**self._counts)
