"""What the server needs of a bucket besides its verbs: where it lies, its clock, and running a procedure on it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TypeVar

from bucketmq import aio
from bucketmq.client import Bucket
from bucketmq.events.event import time_text
from bucketmq.procedures.bus import BusApi
from bucketmq.procedures.requests import Procedure

Result = TypeVar("Result")
AnyBucket = Bucket | aio.Bucket


def bus_of(bucket: AnyBucket) -> BusApi:
    return bucket._bus


def prefix_of(bucket: AnyBucket) -> str:
    return bucket._bus.bucket.prefix


def now_of(bucket: AnyBucket) -> str:
    """The time by the store's clock, as events tell it."""
    return time_text(bucket._engine.hands.clock.now())


def seconds_now(bucket: AnyBucket) -> float:
    return bucket._engine.hands.clock.now()


def folder_of(bucket: AnyBucket) -> Path | None:
    """Where the files are, if the bucket is a folder."""
    from bucketmq.bucket.folder import FolderStore

    store = bucket._engine.hands.store
    return Path(store.root) if isinstance(store, FolderStore) else None


async def run(bucket: AnyBucket, procedure: Procedure[Result]) -> Result:
    """Carry a procedure through, on the bucket's own engine."""
    if isinstance(bucket, aio.Bucket):
        return await bucket._engine.run(procedure)
    return await asyncio.to_thread(bucket._engine.run, procedure)
