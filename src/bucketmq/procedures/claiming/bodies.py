"""Large bodies of a lot, fetched before it is handed to the caller."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bucketmq.errors import NotFound
from bucketmq.procedures.claiming.browse import body_of
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.requests import Procedure
from bucketmq.queue.message import Message


def fetch_bodies(queue: OpenQueue, messages: Iterable[Message]) -> Procedure[dict[str, Any]]:
    """The large bodies by message id. One GET each. A body that is gone is told where it is looked at, not here."""
    bodies: dict[str, Any] = {}
    for message in messages:
        if message.body_at is not None:
            try:
                bodies[message.id] = yield from body_of(queue, message)
            except NotFound as error:
                bodies[message.id] = error
    return bodies
