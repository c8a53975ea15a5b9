"""Posts over HTTP, at a rate or as fast as it goes. Every one must be accepted."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from bucketmq.apps.moderation.demo.posts import Sample, samples

CLIENTS = 16
"""Of a flood: enough to have posts share writes, as they do where many people submit."""


def named(part: str, count: int) -> list[Sample]:
    """Made-up posts with ids that no other part has."""
    return [msgspec.structs.replace(each, id=f"{part}-{each.id}") for each in samples(count)]


def submit(url: str, posts: Sequence[Sample], *, per_second: float | None = None) -> dict[str, float]:
    """Submit them all; id -> when its submission began, seconds since 1970.

    At a rate a post is sent when it is due, whether or not earlier ones were answered: latencies count from there, so
    what a slow answer delays is not forgotten.
    """
    import httpx2

    began: dict[str, float] = {}
    lock = threading.Lock()

    def send(client: httpx2.Client, post: Sample, due: float | None) -> None:
        if due is not None:
            time.sleep(max(0.0, due - time.time()))
        at = time.time() if due is None else due
        answer = client.post(url, json={"id": post.id, "text": post.text})
        if answer.status_code != 201:
            raise AssertionError(f"{post.id} was answered {answer.status_code}: {answer.text[:200]}")
        with lock:
            began[post.id] = at

    with httpx2.Client(timeout=60.0) as client, ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(lambda each: send(client, *each), zip(posts, _due(per_second, len(posts)), strict=True)))
    return began


def _due(per_second: float | None, count: int) -> Iterator[float | None]:
    start = time.time()
    for number in range(count):
        yield None if per_second is None else start + number / per_second
