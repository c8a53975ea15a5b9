"""A queue, open in this process: one store for all readers and writers of it, made when it is first needed.

Spark's planners and workers are processes of their own, forked before any of this is imported. Stores do not survive a
fork, and Spark makes new readers and writers for every step, so they are kept here and never in what is pickled.
"""

from __future__ import annotations

import os
import threading
from typing import TypeVar

from bucketmq.api.opening import Opening
from bucketmq.bucket.urls import open_store
from bucketmq.engines.blocking import Blocking
from bucketmq.engines.perform import Hands
from bucketmq.pipeline.intake import Bucket
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.queues import EVENTS, open_queue
from bucketmq.procedures.requests import Procedure
from bucketmq.spark.options import Place, other_place

Result = TypeVar("Result")


class Opened:
    """A queue and the engine that runs procedures on it. Safe to use from many threads."""

    def __init__(self, place: Place, *, create: bool) -> None:
        store, prefix = open_store(place.url, **dict(place.options))
        self.local = store.local
        self._engine = Blocking(Hands(store))
        self.meter = self._engine.hands.meter
        bucket = Opening.on(store, prefix, probe=False)
        self.queue: OpenQueue = self.run(_open(bucket, place.queue, create=create))

    def run(self, procedure: Procedure[Result]) -> Result:
        return self._engine.run(procedure)


def _open(bucket: Opening, name: str, *, create: bool) -> Procedure[OpenQueue]:
    return (yield from open_queue((yield from bucket.open()), name, {}, create=create))


_opened: dict[tuple[int, Place], Opened] = {}
_lock = threading.Lock()


def opened(place: Place, *, create: bool = False) -> Opened:
    """The queue at `place`; `NotFound` if there is none, unless it may be made. One GET the first time in a process."""
    name = os.getpid(), place
    with _lock:
        if name not in _opened:
            _opened[name] = Opened(place, create=create)
        return _opened[name]


def bucket_at(home: Place, url: str | None) -> Bucket:
    """The bucket of `home`, or that of a target."""
    here = opened(home if url is None else other_place(home, url, EVENTS), create=True)
    return Bucket(here.queue.bucket, here.run)
