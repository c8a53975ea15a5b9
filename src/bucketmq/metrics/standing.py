"""How queues stand, looked at in the background by a thread of its own: reading the figures costs nothing.

A look at a queue takes about ten requests however deep it is. Nothing is looked at while nobody reads the figures. Of
many workers of one queue one that looks is enough.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from bucketmq.errors import BucketMQError
from bucketmq.facade import Observable
from bucketmq.metrics.families import LABEL_SETS_MAX, queue_families
from bucketmq.procedures.queues import list_queues, open_queue
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.upkeep.stats import QueueStats, stats

if TYPE_CHECKING:
    from prometheus_client import Metric

LOOK_SECONDS = 60.0
READ_SECONDS = 600.0
"""So long after somebody read the figures, queues are looked at."""
QUEUE_SECONDS = 1.0
"""With many queues a round takes longer, so that what it costs does not grow with them."""

logger = logging.getLogger("bucketmq")


class Standing:
    """The stats of some queues, or of all if none are named. Those that are named are looked at from the beginning, all
    of them only when somebody has read the figures. Ends with `close`."""

    def __init__(self, bucket: Observable, queues: Sequence[str] = (), *, every_seconds: float = LOOK_SECONDS) -> None:
        self._bucket = bucket
        self._queues = tuple(queues)
        self._every = every_seconds
        self._found: dict[str, QueueStats] = {}
        self._unreadable: set[str] = set()
        self._over = threading.Event()
        self._wanted = threading.Event()
        self._read_at = -math.inf
        self.looks = 0
        """How often all were looked at."""
        if queues:
            self._want()
        self._thread = threading.Thread(target=self._work, name="bucketmq-standing", daemon=True)
        self._thread.start()

    def families(self) -> Iterator[Metric]:
        """What was found last; no request."""
        self._want()
        return queue_families(list(self._found.values()), unreadable=sorted(self._unreadable))

    def close(self) -> None:
        self._over.set()
        self._wanted.set()
        self._thread.join()

    def _want(self) -> None:
        self._read_at = time.monotonic()
        self._wanted.set()

    def _work(self) -> None:
        while True:
            self._wanted.wait()
            if self._over.is_set():
                return
            names = self._names()
            for name in names:
                self._look(name)
                if self._over.is_set():
                    return
            self.looks += 1
            if self._over.wait(max(self._every, QUEUE_SECONDS * len(names))):
                return
            self._wanted.clear()
            if time.monotonic() - self._read_at < READ_SECONDS:
                self._wanted.set()

    def _names(self) -> Sequence[str]:
        if self._queues:
            return self._queues
        try:
            names = self._bucket.run_apart(_all(self._bucket))[:LABEL_SETS_MAX]
        except BucketMQError as error:
            logger.warning("action=look_failed kind=%s %s", error.kind, error)
            self._found, self._unreadable = {}, self._unreadable | set(self._found)
            return ()
        self._found = {each: stats for each, stats in self._found.items() if each in names}
        self._unreadable = self._unreadable & set(names)
        return names

    def _look(self, name: str) -> None:
        try:
            found = self._bucket.run_apart(_stats(self._bucket, name))
            self._found = {**self._found, name: found}
            self._unreadable = self._unreadable - {name}
        except BucketMQError as error:
            logger.warning("action=look_failed queue=%s kind=%s %s", name, error.kind, error)
            self._found = {each: stats for each, stats in self._found.items() if each != name}
            self._unreadable = self._unreadable | {name}


def _all(bucket: Observable) -> Procedure[list[str]]:
    return (yield from list_queues((yield from bucket.opening.open())))


def _stats(bucket: Observable, name: str) -> Procedure[QueueStats]:
    queue = yield from open_queue((yield from bucket.opening.open()), name, {}, create=False)
    return (yield from stats(queue))
