"""The content of objects, fetched for a batch of events: several at a time, and never more than so many bytes at once.

One procedure for each object says what an executor does for it; `fetch_all` runs them ahead, in order. What the bytes
mean to a stage does not belong here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import msgspec

from bucketmq.bucket.port import Found, Missing
from bucketmq.errors import Invalid
from bucketmq.events.event import ObjectEvent, plain_version
from bucketmq.events.filters import Filter
from bucketmq.pipeline.ahead import ahead
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
    found: Answer = Fetched(hops=event.hops)
    if source.content is not None:
        found = yield from _content(bucket, source, event)
    if isinstance(found, Fetched) and found.hops > source.hops_max:
        return Unreadable(
            f"loop guard: {event.key!r} was written in the {found.hops}th hop of a chain of events, and the pipeline "
            f"allows {source.hops_max}; break the loop, or raise hops_max"
        )
    return found


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


def fetch_all(
    source: FromEvents, ask: Callable[[ObjectEvent], Answer], events: Sequence[ObjectEvent], *, requests: bool
) -> Iterator[Answer]:
    """The answer for each event, in order, with the next few on their way if asking takes `requests`."""
    if not requests or len(events) < 2:
        yield from map(ask, events)
        return

    def size_of(event: ObjectEvent) -> int:
        """What fetching this one may bring into memory."""
        if source.content is None or event.kind == "deleted":
            return 0
        return source.size_bytes_max if event.size_bytes is None else min(event.size_bytes, source.size_bytes_max)

    pool = ThreadPoolExecutor(source.concurrency, thread_name_prefix="bucketmq-content")
    try:
        for _, answer in ahead(pool, ask, events, most=source.concurrency, size_of=size_of, size_max=BYTES_AT_ONCE):
            yield answer
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
