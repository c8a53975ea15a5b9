"""Deep queues, quickly: backlogs that would take a producer hours, for benchmarks and tests."""

from __future__ import annotations

import os
from pathlib import Path

from bench.payload import batch, body
from bucketmq.client import Queue
from bucketmq.log import documents, segment
from bucketmq.log.documents import Hint
from bucketmq.log.layout import SUFFIX, QueueKeys
from bucketmq.queue.message import Message
from bucketmq.queue.settings import Settings

SEND = 10_000
"""Messages in one segment of a backlog: about 2.5 MB."""

LINKS_MAX = 50_000
"""ext4 allows 65,000 names for one file."""


def fill(queue: Queue, depth: int, *, per_segment: int = SEND) -> None:
    """Send `depth` messages in a few large sends."""
    for start in range(0, depth, per_segment):
        queue.send_many(batch(start, min(per_segment, depth - start)))


def write_segments(root: Path, queue: str, count: int) -> None:
    """A queue of `count` one-message segments as files of a folder store, by hard links: some ten microseconds each.

    Many segments share one file, ids included, which nothing that counts or follows the log can see. There is no hint,
    as if every producer had died before writing one; see `write_hint`.
    """
    keys = QueueKeys("", queue)
    log = root / keys.log(0)
    log.mkdir(parents=True)
    (root / keys.settings).write_bytes(documents.encode(Settings()))
    line = segment.encode([Message("0123456789abcdef", segment.time_text(0.0), body=body(0))])
    directory = os.open(log, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for start in range(0, count, LINKS_MAX):
            first = Path(keys.segment(0, start)).name
            (log / first).write_bytes(line)
            for base in range(start + 1, min(start + LINKS_MAX, count)):
                os.link(first, f"{base:020}{SUFFIX}", src_dir_fd=directory, dst_dir_fd=directory)
    finally:
        os.close(directory)


def write_hint(root: Path, queue: str, base: int) -> None:
    """The hint as a producer would have left it when the tail was at `base`."""
    path = root / QueueKeys("", queue).hint(0)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(documents.encode(Hint(base)))
