"""Promise: a store that cannot do conditional writes is refused when it is opened."""

from __future__ import annotations

import threading

import pytest

from bucketmq import Unavailable, Unsupported
from bucketmq.bucket.memory import MemoryStore
from bucketmq.bucket.port import PLAIN, Missing, Unknown, Written
from bucketmq.client import Bucket
from bucketmq.engines.blocking import Blocking
from bucketmq.engines.perform import Hands


class Overwrites(MemoryStore):
    """Ignores If-None-Match."""

    def create(self, key, body, attributes=PLAIN):
        self.delete(key)
        return super().create(key, body, attributes)


class Replaces(MemoryStore):
    """Ignores If-Match."""

    def replace(self, key, body, version, attributes=PLAIN):
        found = self.get(key)
        return (
            super().create(key, body, attributes)
            if isinstance(found, Missing)
            else super().replace(key, body, found.version, attributes)
        )


class RacesBadly(MemoryStore):
    """Honours If-Match one by one, but every replace that runs beside another one wins."""

    local = False  # so that the racing replaces really run side by side

    def __init__(self):
        super().__init__()
        self._all_here = threading.Barrier(4, timeout=10)

    def replace(self, key, body, version, attributes=PLAIN):
        found = self.get(key)
        if isinstance(found, Missing) or found.version != version:
            return super().replace(key, body, version, attributes)
        self._all_here.wait()
        return Written(version, None)


class NeverMatches(MemoryStore):
    """Refuses every replace, as a gateway that compares quoted with bare marks does."""

    def replace(self, key, body, version, attributes=PLAIN):
        return super().replace(key, body, "no such version", attributes)


class Silent(MemoryStore):
    """Never answers a write."""

    def create(self, key, body, attributes=PLAIN):
        return Unknown("timed out")


def opened(store):
    Bucket(Blocking(Hands(store)), "", probe=True).open()


@pytest.mark.parametrize("kind", [Overwrites, Replaces, RacesBadly, NeverMatches])
def test_a_store_that_ignores_conditions_is_refused_with_a_cure(kind):
    with pytest.raises(Unsupported, match="BucketMQ needs a store that"):
        opened(kind())


class RefusesDeletes(Replaces):
    def delete(self, key):
        raise Unsupported("HTTP 501")


def test_a_delete_that_fails_too_does_not_hide_why_the_store_is_refused():
    with pytest.raises(Unsupported, match="ignores If-Match"):
        opened(RefusesDeletes())


def test_a_store_that_does_not_answer_is_unavailable_not_unsupported():
    with pytest.raises(Unavailable, match="try again"):
        opened(Silent())


def test_a_good_store_is_opened_and_nothing_is_left_behind():
    store = MemoryStore()

    opened(store)

    assert store.list("", after="", limit=10).entries == ()
