"""The queue `events`: where every object change goes, whoever told of it, and the journal of what became of it.

Reporting is one PUT, shared with whatever else the process reports at the time. Nothing is looked up here: duplicates
collapse when the log is read (`bucketmq.events.window`).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence

import msgspec

from bucketmq.errors import BucketMQError, Invalid
from bucketmq.events.event import ObjectEvent, seconds_of
from bucketmq.log.layout import is_bookkeeping, join
from bucketmq.log.segment import time_text
from bucketmq.procedures.opened import OpenBucket, OpenQueue
from bucketmq.procedures.queues import DELIVERIES, EVENTS, open_queue
from bucketmq.procedures.requests import NewId, Now, Procedure
from bucketmq.procedures.send import KEY_CHARS_MAX, send_messages
from bucketmq.queue.message import Message

REPLAY_HEADER = "bucketmq-replay"
REPORT_MAX = 5_000
"""Events in one send, so that a segment stays small enough to be read at once."""

log = logging.getLogger("bucketmq")


class Attempt(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One line of the journal: what one attempt to deliver one event came to."""

    rule: str
    event: str
    key: str
    attempt: int
    outcome: str
    """done, retry, bury or pause"""
    at: str
    happened_at: str
    """When the object changed, as the event tells."""
    seconds: float = 0.0
    status: int | None = None
    reason: str = ""


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
    at = time_text((yield Now()))
    for start in range(0, len(wanted), REPORT_MAX):
        name: str = yield NewId()
        yield from send_messages(
            queue,
            [
                Message(f"{name}-{place}", at, message_key(event.key), headers, event, to=to)
                for place, event in enumerate(wanted[start : start + REPORT_MAX])
            ],
        )
    return len(wanted)


def record(bucket: OpenBucket, attempts: Sequence[Attempt]) -> Procedure[None]:
    """Note attempts in the journal. The heads decide what is delivered; losing a line of the journal loses no event."""
    if not attempts:
        return
    try:
        queue = yield from open_queue(bucket, DELIVERIES, {})
        at, name = time_text((yield Now())), (yield NewId())
        lines = [Message(f"{name}-{place}", at, None, None, each) for place, each in enumerate(attempts)]
        yield from send_messages(queue, lines)
    except BucketMQError as error:
        log.warning("action=journal_failed rule=%s kind=%s %s", attempts[0].rule, error.kind, error)


def full_key(bucket: OpenBucket, key: str) -> str:
    """A user's key as the store knows it."""
    return join(bucket.prefix, key)
