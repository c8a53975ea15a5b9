"""How a batch of files is held and hashed: in memory that the process keeps, on as many threads as are worth it.

Hashing a byte costs about as much as touching it for the first time in fresh memory. glibc gives memory back after
every batch, unless an allocation as large as its largest threshold was freed before: from then on it keeps twice that.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

THREADS_MAX = 4
WORTH_THREADS_BYTES = 1 << 20
"""Fewer bytes than this are hashed sooner than threads are started."""

_THRESHOLD_BYTES_MAX = 32 << 20
_ROOM_BYTES = 64 << 10

Item = TypeVar("Item")
Result = TypeVar("Result")


@functools.cache
def keep() -> None:
    """Have the process keep up to 64 MiB of what batches are read into. Once; no page of it is touched.

    A file of more than 32 MiB still gets fresh memory: that is the largest threshold. Other allocators, such as those
    of macOS and musl, are as they were.
    """
    bytes(_THRESHOLD_BYTES_MAX - _ROOM_BYTES)


def on_threads(work: Callable[[Item], Result], items: Sequence[Item], size_bytes: int) -> list[Result]:
    """What `work` returns for each, in their order; the first error is raised. hashlib lets other threads run."""
    threads = min(THREADS_MAX, os.cpu_count() or 1, len(items))
    if threads < 2 or size_bytes < WORTH_THREADS_BYTES:
        return [work(each) for each in items]
    with ThreadPoolExecutor(threads, thread_name_prefix="bucketmq-hash") as pool:
        return list(pool.map(work, items))
