"""The journal of deliveries: a line of the queue `deliveries` for each attempt to deliver an event."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from bucketmq.errors import BucketMQError
from bucketmq.log.segment import time_text
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.queues import DELIVERIES, open_queue
from bucketmq.procedures.requests import NewId, Now, Procedure
from bucketmq.procedures.sending.send import send_messages
from bucketmq.queue.message import Message

logger = logging.getLogger("bucketmq")


class Attempt(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What one attempt to deliver one event came to."""

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


def record(bucket: OpenBucket, attempts: Sequence[Attempt]) -> Procedure[None]:
    """Note attempts in the journal. The heads decide what is delivered; losing a line of the journal loses no event."""
    if not attempts:
        return
    try:
        queue = yield from open_queue(bucket, DELIVERIES, {})
        at, name = time_text((yield from Now())), (yield from NewId())
        lines = [Message(f"{name}-{place}", at, None, None, each) for place, each in enumerate(attempts)]
        yield from send_messages(queue, lines)
    except BucketMQError as error:
        logger.warning("action=journal_failed rule=%s kind=%s %s", attempts[0].rule, error.kind, error)
