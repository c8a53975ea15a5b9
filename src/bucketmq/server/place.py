"""What the server needs of a bucket besides its verbs: where it lies, its clock, and running a procedure on it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from bucketmq import aio
from bucketmq.api.bucket import BucketApi
from bucketmq.client import Bucket
from bucketmq.events.event import time_text
from bucketmq.log.layout import join
from bucketmq.procedures.requests import Procedure

LATE_MAX = 1_000
"""Work of `within` that is under way at a time, of all callers: while a bucket hangs it is held in memory."""

Result = TypeVar("Result")
AnyBucket = Bucket | aio.Bucket


def bus_of(bucket: AnyBucket) -> BucketApi:
    return bucket.api


def now_of(bucket: AnyBucket) -> str:
    """The time by the store's clock, as events tell it."""
    return time_text(bucket.now_seconds)


def seconds_now(bucket: AnyBucket) -> float:
    return bucket.now_seconds


def folder_of(bucket: AnyBucket) -> Path | None:
    """Where the files are, if the bucket is a folder."""
    from bucketmq.bucket.folder import FolderStore

    return Path(bucket.store.root) if isinstance(bucket.store, FolderStore) else None


async def within(seconds: float, work: Coroutine[Any, Any, Result]) -> Result:
    """The result, or `TimeoutError`: at once if too much is under way, and nothing is begun. What takes longer goes on
    all the same: others may ride on it."""
    if len(_LATE) >= LATE_MAX:
        work.close()
        raise TimeoutError
    task = asyncio.ensure_future(work)
    _LATE.add(task)
    task.add_done_callback(_over)
    done, _ = await asyncio.wait({task}, timeout=seconds)
    if not done:
        raise TimeoutError
    return task.result()


_LATE: set[asyncio.Future[Any]] = set()
"""Tasks live only as long as somebody holds them."""


def _over(task: asyncio.Future[Any]) -> None:
    _LATE.discard(task)
    if not task.cancelled():
        task.exception()  # the waiting caller has it, or is gone


def ask(bucket: AnyBucket) -> None:
    """One request to the store, not repeated: an error if it does not work."""
    bucket.store.look(join(bucket.prefix, "readyz"))


async def run(bucket: AnyBucket, procedure: Procedure[Result]) -> Result:
    """Carry a procedure through, on the bucket's own engine."""
    if isinstance(bucket, aio.Bucket):
        return await bucket.run(procedure)
    return await asyncio.to_thread(bucket.run, procedure)


def run_now(bucket: Bucket, procedure: Procedure[Result]) -> Result:
    """The same on a blocking bucket, for a caller that waits."""
    return bucket.run(procedure)
