"""Reporting: every change of an object goes to the queue `events`, whatever source it is known from.

Reporting is one PUT, shared with whatever else the process reports at the time. Nothing is looked up here: duplicates
collapse when the log is read (`bucketmq.events.window`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from bucketmq.errors import Invalid
from bucketmq.events.event import ObjectEvent, seconds_of
from bucketmq.log.layout import is_bookkeeping
from bucketmq.log.segment import time_text
from bucketmq.procedures.opened import OpenBucket, OpenQueue
from bucketmq.procedures.queues import EVENTS, open_queue
from bucketmq.procedures.requests import NewId, Now, Procedure
from bucketmq.procedures.sending.send import KEY_CHARS_MAX, send_messages
from bucketmq.queue.message import Message

REPLAY_HEADER = "bucketmq-replay"
REPORT_MAX = 5_000
"""Events in one send, so that a segment stays small enough to be read at once."""


def events_queue(bucket: OpenBucket) -> Procedure[OpenQueue]:
    return (yield from open_queue(bucket, EVENTS, {}))


def message_key(key: str) -> str:
    """The message key of an object's events: its own, or a hash of one that is too long."""
    if 0 < len(key) <= KEY_CHARS_MAX:
        return key
    return "long:" + hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def has_times(event: ObjectEvent) -> bool:
    """Whether its times can be read; every reader of the log compares them."""
    try:
        seconds_of(event.at)
        if event.seen_at is not None:
            seconds_of(event.seen_at)
    except (ValueError, OverflowError):
        return False
    return True


def report(
    bucket: OpenBucket, events: Sequence[ObjectEvent], *, to: str | None = None, headers: dict[str, str] | None = None
) -> Procedure[int]:
    """Make events durable; returns how many. Our own bookkeeping never makes any. One PUT for each shard they go to.

    With `to`, only that subscription is given them.
    """
    wanted = [event for event in events if not is_bookkeeping(event.key)]
    for event in wanted:
        if not has_times(event):
            raise Invalid(
                f"the event of {event.key[:200]!r} happened at {event.at[:50]!r}; write it 2026-11-16T08:00:00Z"
            )
    if not wanted:
        return 0
    queue = yield from events_queue(bucket)
    at = time_text((yield from Now()))
    for start in range(0, len(wanted), REPORT_MAX):
        name = yield from NewId()
        yield from send_messages(
            queue,
            [
                Message(f"{name}-{place}", at, message_key(event.key), headers, event, to=to)
                for place, event in enumerate(wanted[start : start + REPORT_MAX])
            ],
        )
    return len(wanted)
