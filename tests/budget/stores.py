"""Stores for counting: one that is far away, and one that has a million segments without holding them."""

from __future__ import annotations

import time
from typing import Any

from bucketmq.bucket.listing import check_listing
from bucketmq.bucket.memory import MemoryStore
from bucketmq.bucket.port import PLAIN, Attributes, Entry, Missing, Object, Page, Refused, Version, Written
from bucketmq.client import Bucket
from bucketmq.engines.blocking import Blocking
from bucketmq.engines.meter import Requests
from bucketmq.engines.perform import Hands
from bucketmq.log import documents
from bucketmq.log.documents import Hint
from bucketmq.log.layout import QueueKeys, base_of
from bucketmq.log.segment import encode
from bucketmq.queue.message import Message
from bucketmq.queue.settings import Settings

PREFIX = "app"
KEYS = QueueKeys(PREFIX, "jobs")


class RemoteStore(MemoryStore):
    """A memory store that is treated as if it were far away."""

    local = False


class DeepStore(RemoteStore):
    """A queue with `depth` segments of one message each, made up as they are asked for.

    The hint is where real producers leave it: at most `behind` segments before the tail.
    """

    def __init__(self, depth: int, *, lists_in_order: bool, behind: int) -> None:
        super().__init__()
        self.lists_in_order = lists_in_order
        self.depth = depth
        self._log = KEYS.log(0)
        super().create(KEYS.settings, documents.encode(Settings()))
        super().create(KEYS.hint(0), documents.encode(Hint(max(0, depth - behind))))

    def _made_up(self, key: str) -> Object | None:
        if not key.startswith(self._log) or base_of(key) >= self.depth:
            return None
        base = base_of(key)
        body = encode([Message(f"{base:016}", "2026-01-01T00:00:00.000Z", body={"n": base})])
        return Object(body, Version("made up"), time.time() - 60)

    def overwrite(self, key: str, found: Object | Missing) -> None:
        assert isinstance(found, Object)
        self.delete(key)
        super().create(key, found.body)

    def get(self, key: str) -> Object | Missing:
        return self._made_up(key) or super().get(key)

    def create(self, key: str, body: bytes, attributes: Attributes = PLAIN) -> Written | Refused:
        return Refused() if self._made_up(key) else super().create(key, body, attributes)

    def list(self, prefix: str, *, after: str, limit: int) -> Page:
        check_listing(prefix, after, limit)
        if prefix != self._log:
            return super().list(prefix, after=after, limit=limit)
        first = base_of(after) + 1 if after.startswith(prefix) else 0
        bases = range(first, min(self.depth, first + limit))
        entries = [Entry(KEYS.segment(0, base), 80, time.time() - 60) for base in bases]
        rest = super().list(prefix, after=after, limit=limit)
        entries += rest.entries[: limit - len(entries)]
        more = first + len(bases) < self.depth or rest.more or len(bases) + len(rest.entries) > limit
        return Page(tuple(entries), more=more)


def connect(store: MemoryStore) -> Bucket:
    return Bucket(Blocking(Hands(store)), PREFIX, probe=False)


class Spent:
    """The requests made through a bucket in a `with` block, those that happened only: `{"get": 1, "replace": 1}`."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def __enter__(self) -> Spent:
        self._before = self._bucket.requests
        return self

    def __exit__(self, *about: object) -> None:
        self.requests: Requests = self._bucket.requests - self._before

    @property
    def kinds(self) -> dict[str, int]:
        kinds = ("get", "create", "replace", "delete", "list")
        return {kind: count for kind in kinds if (count := getattr(self.requests, kind))}

    @property
    def total(self) -> int:
        return sum(self.kinds.values())

    @property
    def bytes(self) -> int:
        return self.requests.bytes_in + self.requests.bytes_out


def settled(batch: Any) -> int:
    for delivery in batch:
        delivery.ack()
    return len(batch)
