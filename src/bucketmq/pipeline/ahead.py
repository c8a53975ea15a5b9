"""Asking for several things at a time, and having the answers in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

Asked = TypeVar("Asked")
Got = TypeVar("Got")


def ahead(
    pool: Executor,
    ask: Callable[[Asked], Got],
    wanted: Iterable[Asked],
    *,
    most: int,
    size_of: Callable[[Asked], int] = lambda _: 0,
    size_max: int = 0,
) -> Iterator[tuple[Asked, Got]]:
    """Each of `wanted` with its answer; up to `most` are asked for at a time, and more than one only as long as their
    sizes are within `size_max`."""
    waiting: deque[tuple[Asked, Future[Got]]] = deque()
    held = 0
    for each in wanted:
        held += size_of(each)
        while waiting and (len(waiting) >= most or held > size_max):
            asked, future = waiting.popleft()
            yield asked, future.result()
            held -= size_of(asked)
        waiting.append((each, pool.submit(ask, each)))
    while waiting:
        asked, future = waiting.popleft()
        yield asked, future.result()
