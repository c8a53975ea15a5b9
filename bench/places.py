"""Where a scenario's queues lie, and how they are opened: a URL, or a store with something around it."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from bucketmq import aio
from bucketmq.bucket.port import Store
from bucketmq.client import Bucket
from bucketmq.engines.asynchronous import Asynchronous
from bucketmq.engines.blocking import Blocking
from bucketmq.engines.perform import Hands


class Place:
    """A store that can hold any number of unrelated buckets: `url("one")` and `url("two")` share nothing."""

    def __init__(self, name: str, url: Callable[[str], str]) -> None:
        self.name = name
        self.url = url


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A temporary folder on the disk that TMPDIR names, which should be a real one."""
    path = Path(tempfile.mkdtemp(prefix="bucketmq-bench-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def folder_place() -> Iterator[Place]:
    with folder() as path:
        yield Place("folder", lambda name: (path / name).as_uri())


@contextlib.contextmanager
def seaweedfs_place() -> Iterator[Place]:
    from bucketmq.testing.servers import seaweedfs

    with seaweedfs() as url:
        parts = urlsplit(url)
        yield Place("SeaweedFS", lambda name: parts._replace(path=f"{parts.path.rstrip('/')}/{name}").geturl())


def over(store: Store) -> Bucket:
    """A bucket over a store that has something around it."""
    return Bucket(Blocking(Hands(store)), "", probe=False)


def over_async(store: Store) -> aio.Bucket:
    return aio.Bucket(Asynchronous(Hands(store)), "", probe=False)


def asked(bucket: Bucket) -> int:
    """How many requests to the store a bucket has made."""
    made = bucket.requests
    return made.reads + made.writes + made.list + made.delete + made.remove


def settle_disk() -> None:
    """Let the disk finish what an earlier measurement left behind."""
    os.sync()
