"""The content of objects, fetched for a batch of events: several at a time, and never more than so many bytes at once.

One procedure for each object says what an executor does for it; `Contents` runs them ahead, in order. What the fetched
bytes mean to a stage does not belong here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal

import msgspec

from bucketmq.bucket.port import Found, Missing
from bucketmq.errors import Invalid
from bucketmq.events.event import ObjectEvent, plain_version
from bucketmq.events.filters import Filter
from bucketmq.pipeline.ends import FromEvents
from bucketmq.procedures.objects.keys import full_key
from bucketmq.procedures.objects.metadata import hops_of
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.rules.examine import is_newer, look_at, matches
from bucketmq.procedures.verbs import get

BYTES_AT_ONCE = 64 << 20
"""So many bytes of objects one task holds at a time, as far as events tell their size; one object may be larger."""

State = Literal["same", "replaced", "gone"]


class Fetched(msgspec.Struct, frozen=True):
    """An object as an event's row shows it."""

    state: State | None = None
    """None where no content was wanted."""
    body: bytes | None = None
    version: str | None = None
    hops: int = 0
    """Of the chain of events that it was written in, as far as event and object tell."""


class Unreadable(msgspec.Struct, frozen=True):
    """Why an event cannot become a row."""

    reason: str


class Unwanted(msgspec.Struct, frozen=True):
    """The filter does not let it through."""


Answer = Fetched | Unreadable | Unwanted


def fetch(bucket: OpenBucket, source: FromEvents, chosen: Filter, event: ObjectEvent) -> Procedure[Answer]:
    """What an event's row needs of its object. Nothing for most events without content; otherwise one GET, after a
    HEAD if the event does not tell the size, and what the filter needs."""
    if not (yield from matches(bucket, chosen, event, body_bytes_max=source.size_bytes_max)):
        return Unwanted()
    found = yield from _content(bucket, source, event) if source.content is not None else _no_content(event)
    if isinstance(found, Fetched) and found.hops > source.hops_max:
        return Unreadable(
            f"loop guard: {event.key!r} was written in the {found.hops}th hop of a chain of events, and the pipeline "
            f"allows {source.hops_max}; break the loop, or raise hops_max"
        )
    return found


def _no_content(event: ObjectEvent) -> Procedure[Answer]:
    yield from ()
    return Fetched(hops=event.hops)


def _content(bucket: OpenBucket, source: FromEvents, event: ObjectEvent) -> Procedure[Answer]:
    gone = Fetched("gone", hops=event.hops)
    if event.kind == "deleted":
        return gone
    size = event.size_bytes
    if size is None:
        seen = yield from look_at(bucket, event.key)
        if isinstance(seen, Missing):
            return gone
        size = seen.size_bytes if isinstance(seen, Found) else 0
    if size > source.size_bytes_max:
        return _too_large(source, event, size)
    try:
        found = yield from get(full_key(bucket, event.key))
    except Invalid:  # a key that no object of ours can have
        return gone
    if isinstance(found, Missing):
        return gone
    if len(found.body) > source.size_bytes_max:
        return _too_large(source, event, len(found.body))
    state: State = "replaced" if is_newer(found, event) else "same"
    hops = max(event.hops, hops_of(found.attributes))
    return Fetched(state, found.body, plain_version(found.version), hops)


def _too_large(source: FromEvents, event: ObjectEvent, size: int) -> Unreadable:
    return Unreadable(
        f"{event.key!r} has {size:,} bytes, more than {source.size_bytes_max:,}; raise size_bytes_max or leave such "
        "objects out by the filter (size < ...)"
    )


class Contents:
    """Fetches for events, in order, with the next few on their way."""

    def __init__(self, source: FromEvents, ask: Callable[[ObjectEvent], Answer], *, requests: bool) -> None:
        self._source = source
        self._ask = ask
        self._requests = requests
        """Whether asking takes requests, so that it is worth a thread."""

    def fetched(self, events: Sequence[ObjectEvent]) -> Iterator[Answer]:
        """The answer for each event."""
        if not self._requests or len(events) < 2:
            yield from map(self._ask, events)
            return
        pool = ThreadPoolExecutor(self._source.concurrency, thread_name_prefix="bucketmq-content")
        waiting: deque[tuple[int, Future[Answer]]] = deque()
        held = 0
        try:
            for event in events:
                size = self._size(event)
                while waiting and (len(waiting) >= self._source.concurrency or held + size > BYTES_AT_ONCE):
                    freed, future = waiting.popleft()
                    yield future.result()
                    held -= freed
                waiting.append((size, pool.submit(self._ask, event)))
                held += size
            while waiting:
                yield waiting.popleft()[1].result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _size(self, event: ObjectEvent) -> int:
        """What fetching this one may bring into memory."""
        if self._source.content is None or event.kind == "deleted":
            return 0
        size = event.size_bytes
        return self._source.size_bytes_max if size is None else min(size, self._source.size_bytes_max)
