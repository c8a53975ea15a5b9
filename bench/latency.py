"""A store that answers as slowly as S3 does, and counts. The objects are in the store it wraps.

Half of the time passes before the wrapped verb and half after it, so requests overlap and collide as they would over a
network. Without a `Latency` it only counts.
"""

from __future__ import annotations

import random
import threading
import time

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
    Store,
    Unknown,
    Version,
    Written,
)


class Latency(msgspec.Struct, frozen=True):
    """From and to how many seconds a request takes; every length in between is as likely."""

    write: tuple[float, float] = (0.060, 0.100)
    read: tuple[float, float] = (0.025, 0.060)
    list: tuple[float, float] = (0.030, 0.080)


S3_LIKE = Latency()
NONE = Latency((0.0, 0.0), (0.0, 0.0), (0.0, 0.0))


class Counts(msgspec.Struct):
    """What went over the wire so far. `refused` writes are counted among `writes` too."""

    reads: int = 0
    writes: int = 0
    lists: int = 0
    deletes: int = 0
    refused: int = 0
    bytes_read: int = 0
    bytes_written: int = 0

    @property
    def requests(self) -> int:
        return self.reads + self.writes + self.lists + self.deletes

    @property
    def bytes(self) -> int:
        return self.bytes_read + self.bytes_written

    def since(self, before: Counts) -> Counts:
        return Counts(*(now - then for now, then in zip(self._all(), before._all(), strict=True)))

    def plus(self, other: Counts) -> Counts:
        return Counts(*(one + more for one, more in zip(self._all(), other._all(), strict=True)))

    def copy(self) -> Counts:
        return Counts(*self._all())

    def _all(self) -> tuple[int, ...]:
        return msgspec.structs.astuple(self)


class LatentStore:
    """`inner`, seen from afar. By default it claims to list in order and to be remote, as S3 would."""

    def __init__(
        self,
        inner: Store,
        latency: Latency = S3_LIKE,
        *,
        seed: int = 0,
        local: bool = False,
        lists_in_order: bool = True,
    ) -> None:
        self.inner = inner
        self.counts = Counts()
        self.local = local
        self.lists_in_order = lists_in_order
        self.renames = inner.renames
        self.copies = inner.copies
        self.exact_versions = inner.exact_versions
        self._latency = latency
        self._random = random.Random(seed)
        self._lock = threading.Lock()

    def get(self, key: str) -> Object | Missing:
        rest = self._half(self._latency.read)
        found = self.inner.get(key)
        _pass(rest)
        with self._lock:
            self.counts.reads += 1
            if isinstance(found, Object):
                self.counts.bytes_read += len(found.body)
        return found

    def create(self, key: str, body: bytes, attributes: Attributes = PLAIN) -> Written | Refused | Unknown:
        rest = self._half(self._latency.write)
        reply = self.inner.create(key, body, attributes)
        _pass(rest)
        self._count_write(body, reply)
        return reply

    def replace(
        self, key: str, body: bytes, version: Version, attributes: Attributes = PLAIN
    ) -> Written | Refused | Unknown:
        rest = self._half(self._latency.write)
        reply = self.inner.replace(key, body, version, attributes)
        _pass(rest)
        self._count_write(body, reply)
        return reply

    def delete(self, key: str) -> None:
        rest = self._half(self._latency.write)
        self.inner.delete(key)
        _pass(rest)
        with self._lock:
            self.counts.deletes += 1

    def look(self, key: str) -> Found | Missing:
        rest = self._half(self._latency.read)
        found = self.inner.look(key)
        _pass(rest)
        with self._lock:
            self.counts.reads += 1
        return found

    def remove(self, key: str, version: Version) -> Removed | Refused | Unknown:
        rest = self._half(self._latency.write)
        reply = self.inner.remove(key, version)
        _pass(rest)
        with self._lock:
            self.counts.deletes += 1
        return reply

    def rename(self, key: str, target: str, version: Version) -> Removed | Refused | Unknown:
        rest = self._half(self._latency.write)
        reply = self.inner.rename(key, target, version)
        _pass(rest)
        self._count_write(b"", reply)
        return reply

    def copy(self, key: str, target: str, source: Found, attributes: Attributes = PLAIN) -> Written | Refused | Unknown:
        rest = self._half(self._latency.write)
        reply = self.inner.copy(key, target, source, attributes)
        _pass(rest)
        self._count_write(b"", reply)
        return reply

    def list(self, prefix: str, *, after: str, limit: int) -> Page:
        rest = self._half(self._latency.list)
        page = self.inner.list(prefix, after=after, limit=limit)
        _pass(rest)
        with self._lock:
            self.counts.lists += 1
        return page

    def close(self) -> None:
        self.inner.close()

    def _half(self, span: tuple[float, float]) -> float:
        """Let half of a request's time pass and return the other half."""
        with self._lock:
            half = self._random.uniform(*span) / 2
        _pass(half)
        return half

    def _count_write(self, body: bytes, reply: object) -> None:
        with self._lock:
            self.counts.writes += 1
            self.counts.bytes_written += len(body)
            if isinstance(reply, Refused):
                self.counts.refused += 1


def _pass(seconds: float) -> None:
    if seconds > 0:  # sleeping for no time at all still costs a switch of threads
        time.sleep(seconds)


def counted(inner: Store) -> LatentStore:
    """`inner` as it is, but counted."""
    return LatentStore(inner, NONE, local=inner.local, lists_in_order=inner.lists_in_order)
