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
from bucketmq.bucket.port import (
    PLAIN,
    Attributes,
    Entry,
    Found,
    Missing,
    Object,
    Page,
    Refused,
    Removed,
    Version,
    Written,
    check_attributes,
    check_key,
)


class MemoryStore:
    """Objects of one process, shared by its threads. `clock` is the store's clock, in seconds since 1970."""

    lists_in_order = True
    local = True
    renames = True
    copies = True
    exact_versions = True

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

    def create(self, key: str, body: bytes, attributes: Attributes = PLAIN) -> Written | Refused:
        check_key(key)
        check_attributes(attributes)
        with self._lock:
            if key in self._objects:
                return Refused()
            insort(self._keys, key)
            return self._put(key, body, attributes)

    def replace(self, key: str, body: bytes, version: Version, attributes: Attributes = PLAIN) -> Written | Refused:
        check_key(key)
        check_attributes(attributes)
        with self._lock:
            return self._put(key, body, attributes) if self._is_at(key, version) else Refused()

    def delete(self, key: str) -> None:
        check_key(key)
        with self._lock:
            if key in self._objects:
                self._drop(key)

    def look(self, key: str) -> Found | Missing:
        found = self.get(key)
        if isinstance(found, Missing):
            return found
        return Found(len(found.body), found.version, found.stored_at, found.attributes)

    def remove(self, key: str, version: Version) -> Removed | Refused:
        check_key(key)
        with self._lock:
            if not self._is_at(key, version):
                return Refused()
            self._drop(key)
            return Removed()

    def rename(self, key: str, target: str, version: Version) -> Removed | Refused:
        check_key(key)
        check_key(target)
        with self._lock:
            if target in self._objects or not self._is_at(key, version):
                return Refused()
            moved = self._drop(key)
            insort(self._keys, target)
            self._put(target, moved.body, moved.attributes)
            return Removed()

    def copy(self, key: str, target: str, source: Found, attributes: Attributes = PLAIN) -> Written | Refused:
        check_key(key)
        check_key(target)
        check_attributes(attributes)
        with self._lock:
            if target in self._objects or not self._is_at(key, source.version):
                return Refused()
            insort(self._keys, target)
            return self._put(target, self._objects[key].body, attributes)

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
                entries.append(Entry(key, len(found.body), found.stored_at, found.version))
            return Page(tuple(entries), more=False)

    def close(self) -> None:
        """Nothing to free: the objects are this store."""

    def _is_at(self, key: str, version: Version) -> bool:
        found = self._objects.get(key)
        return found is not None and found.version == version

    def _drop(self, key: str) -> Object:
        del self._keys[bisect_left(self._keys, key)]
        return self._objects.pop(key)

    def _put(self, key: str, body: bytes, attributes: Attributes) -> Written:
        written = Object(bytes(body), self._version_of(body), self._clock(), attributes)
        self._objects[key] = written
        return Written(written.version, written.stored_at)

    def _version_of(self, body: bytes) -> Version:
        return Version(str(next(self._versions)))

    def __repr__(self) -> str:
        return f"MemoryStore({len(self._objects)} objects)"
