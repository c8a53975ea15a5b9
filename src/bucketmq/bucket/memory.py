"""A store in a dictionary: for tests, examples and trying things out. Gone with the process.

It is the plainest reading of the contract in `bucketmq.bucket.port`, so it is also the model that other stores are
compared with. Faults, delays and lost replies do not belong here; the simulator adds them from outside.
"""

from __future__ import annotations

import itertools
import threading
import time
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable

from bucketmq.bucket.listing import check_listing
from bucketmq.bucket.port import Entry, Missing, Object, Page, Refused, Version, Written, check_key


class MemoryStore:
    """Objects of one process, shared by its threads. `clock` is the store's clock, in seconds since 1970."""

    lists_in_order = True
    local = True

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._objects: dict[str, Object] = {}
        self._keys: list[str] = []  # sorted; Python compares text by code point, which is byte order in UTF-8
        self._versions = itertools.count(1)

    def get(self, key: str) -> Object | Missing:
        check_key(key)
        with self._lock:
            return self._objects.get(key) or Missing()

    def create(self, key: str, body: bytes) -> Written | Refused:
        check_key(key)
        with self._lock:
            if key in self._objects:
                return Refused()
            insort(self._keys, key)
            return self._put(key, body)

    def replace(self, key: str, body: bytes, version: Version) -> Written | Refused:
        check_key(key)
        with self._lock:
            found = self._objects.get(key)
            if found is None or found.version != version:
                return Refused()
            return self._put(key, body)

    def delete(self, key: str) -> None:
        check_key(key)
        with self._lock:
            if self._objects.pop(key, None) is not None:
                del self._keys[bisect_left(self._keys, key)]

    def list(self, prefix: str, *, after: str, limit: int) -> Page:
        check_listing(prefix, after, limit)
        with self._lock:
            first = max(bisect_left(self._keys, prefix), bisect_right(self._keys, after))
            entries: list[Entry] = []
            for key in itertools.islice(self._keys, first, None):
                if not key.startswith(prefix):
                    break
                if len(entries) == limit:
                    return Page(tuple(entries), more=True)
                found = self._objects[key]
                entries.append(Entry(key, len(found.body), found.stored_at))
            return Page(tuple(entries), more=False)

    def _put(self, key: str, body: bytes) -> Written:
        written = Object(bytes(body), Version(str(next(self._versions))), self._clock())
        self._objects[key] = written
        return Written(written.version, written.stored_at)

    def __repr__(self) -> str:
        return f"MemoryStore({len(self._objects)} objects)"
