"""Leaving a process' figures in the bucket, for dashboards in other processes: what it did, how fast, at what cost.

At most one write every few seconds, from a thread of its own, and none while nothing is done; one when it begins and
one when it ends. A bucket that cannot be written to is logged: nobody stops working because of a figure.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from types import TracebackType
from typing import Self

import msgspec

from bucketmq.engines.meter import Requests
from bucketmq.errors import BucketMQError
from bucketmq.facade import Observable
from bucketmq.log.reports import POINTS_MAX, Done, Kind, Point, Process, Report, Spent
from bucketmq.outcomes import Bury, Outcome, Release, Retry
from bucketmq.procedures.observers import Handed
from bucketmq.procedures.requests import NewId, Now, Procedure
from bucketmq.procedures.upkeep import reports

REPORT_SECONDS = 15.0
"""The least time from one write to the next."""
ERROR_CHARS = 500

logger = logging.getLogger("bucketmq")


class Reporter:
    """Reports what one process does for a program, while the block runs.

    `with Reporter(bucket, "pipeline", "thumbnails", queue="events"): bucket.run_watchers("thumbnails")`
    counts the messages that workers and watchers of this bucket handle. What is not seen that way, such as the batches
    of Spark, is told with `batch`. A server tells with `touch` that it did something.
    """

    def __init__(
        self,
        bucket: Observable,
        kind: Kind,
        name: str,
        *,
        queue: str = "",
        counts_requests: bool = True,
        every_seconds: float = REPORT_SECONDS,
    ) -> None:
        self._bucket = bucket
        self._empty = Report(kind, name, queue)
        self._counts_requests = counts_requests
        self._every = every_seconds
        self._lock = threading.Lock()
        self._done = Done()
        self._base = Done()
        """What a report already has under another id, by which this process was forgotten."""
        self._told = Done()
        self._told_at = time.monotonic()
        self._lag = -1
        self._recent: tuple[Point, ...] = ()
        self._id = ""
        self._began = 0.0
        self._written: Done | None = None
        """What the bucket has of this process."""
        self._works = True
        """Whether the last write did."""
        self._news = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="bucketmq-report", daemon=True)

    @property
    def id(self) -> str:
        """By which the report lists this process; empty before its first write."""
        return self._id

    def on_handled(
        self, queue: str, subscription: str, delivery: Handed, outcome: Outcome | BaseException, seconds: float
    ) -> None:
        if isinstance(outcome, Release | BaseException):
            return
        self._add(
            Done(rows=1, batches=1, retried=isinstance(outcome, Retry), dead=isinstance(outcome, Bury), seconds=seconds)
        )

    def batch(self, rows: int, *, dead: int, seconds: float, lag: int | None) -> None:
        """A batch was done. One without rows is not reported."""
        if lag is not None:
            self._lag = lag
        if rows:
            self._add(Done(rows=rows, batches=1, dead=dead, seconds=seconds))

    def touch(self) -> None:
        """Something was done that is worth a write."""
        self._news.set()

    def _add(self, more: Done) -> None:
        with self._lock:
            self._done = self._done + more
        self._news.set()

    def start(self) -> None:
        """Begin, without waiting for the first write."""
        self._bucket.observe(self)
        self._news.set()
        self._thread.start()

    def close(self, error: BaseException | None = None) -> None:
        """End, and write so; `error` is what the program ended with, if it failed."""
        self._over.set()
        self._news.set()
        self._thread.join()
        if self._works:  # or ending would have to wait for a bucket that is unavailable
            failed = isinstance(error, Exception)
            self._write(ended=True, error=f"{type(error).__name__}: {error}"[:ERROR_CHARS] if failed else "")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close(error)

    def _work(self) -> None:
        while True:
            self._news.wait()  # for ever, if nothing is done
            self._news.clear()
            if self._over.is_set() and self._id:
                return
            self._write()
            if self._over.wait(self._every):
                return

    def _write(self, *, ended: bool = False, error: str = "") -> None:
        try:
            self._bucket.run_apart(self._note(ended=ended, error=error))
            self._works = True
        except BucketMQError as failed:
            self._works = False
            logger.warning("action=report_failed name=%s kind=%s %s", self._empty.name, failed.kind, failed)
            self._news.set()  # again, when the next write is due

    def _note(self, *, ended: bool, error: str) -> Procedure[None]:
        opened = yield from self._bucket.opening.open()
        now = yield from Now()
        if not self._id:
            self._id, self._began = (yield from NewId()), now
        with self._lock:
            done = msgspec.structs.replace(
                self._done, spent=spent_of(self._bucket.requests) if self._counts_requests else None
            )
        self._point(now, done)
        while True:
            process = Process(
                place=f"{socket.gethostname()}:{os.getpid()}",
                began=round(self._began, 3),
                at=round(now, 3),
                done=done - self._base,
                ended=round(now, 3) if ended else None,
                error=error,
                recent=self._recent,
            )
            listed = self._written is not None
            noted = yield from reports.note(opened, self._empty, self._id, process, listed=listed)
            if noted:
                break
            # Forgotten, and added to the sum: what is new since then goes under another id.
            self._id, self._base, self._written = (yield from NewId()), self._written or Done(), None
        self._written = done

    def _point(self, now: float, done: Done) -> None:
        """What was done since the last point, as one."""
        new = done - self._told
        if not new.rows:
            return
        tick = time.monotonic()
        point = Point(
            round(now, 3),
            round(tick - self._told_at, 3),
            new.rows,
            new.retried + new.dead,
            round(new.seconds / max(1, new.batches), 4),
            self._lag,
        )
        self._recent = (*self._recent, point)[-POINTS_MAX:]
        self._told, self._told_at = done, tick


def spent_of(requests: Requests) -> Spent:
    return Spent(requests.writes, requests.reads, requests.list)
