"""What the tab Flow shows, as plain values: how many posts are where, how many passed each step, and how long it took.

Each figure is made at most once at a time, however many people look, and the dearer it is the less often.
"""

from __future__ import annotations

from typing import Any

import msgspec

from bucketmq import aio
from bucketmq.apps.moderation import posts
from bucketmq.apps.moderation.desk.flow import MINUTES, WINDOW_SECONDS, Flow, Submission
from bucketmq.apps.moderation.desk.reading import Reader, since
from bucketmq.apps.moderation.queues import AUDIT, SUBMISSIONS
from bucketmq.dashboard.follow import Follower
from bucketmq.dashboard.site import Kept
from bucketmq.events.event import seconds_of
from bucketmq.procedures.claiming.browse import inline_body
from bucketmq.procedures.queues import DELIVERIES, EVENTS
from bucketmq.procedures.rules.journal import Attempt
from bucketmq.queue.message import Message
from bucketmq.server.place import bus_of, run, seconds_now

COUNT_PAGES_MAX = 20
"""Objects are counted by listing them; beyond so many pages a count is told as "at least"."""


class Figures:
    """The figures of one bucket."""

    def __init__(self, bucket: aio.Bucket) -> None:
        self._bucket = bucket
        self._flow = Flow()
        self._submissions = Reader(bucket, SUBMISSIONS, since(WINDOW_SECONDS))
        self._audit = Follower(bucket, AUDIT, WINDOW_SECONDS)
        self._events = Follower(bucket, EVENTS, WINDOW_SECONDS)
        self._journal = Follower(bucket, DELIVERIES, WINDOW_SECONDS)
        self._logs = Kept(self._read_logs)
        self._counts = Kept(self._count)

    async def flow(self) -> dict[str, Any]:
        """Counts, rates and latencies."""
        await self._logs.read()
        counts = await self._counts.read()
        now = seconds_now(self._bucket)
        return {
            **counts,
            "minutes": MINUTES,
            "explained": msgspec.to_builtins(self._flow.explained(now)),
            "rates": self._flow.rates(now),
            "latencies": msgspec.to_builtins(self._flow.latencies(now)),
        }

    async def _read_logs(self) -> bool:
        # Read before the lines: what was submitted later than these is not judged yet.
        for message in await self._submissions.read():
            sent = _submission(message)
            if sent is not None:
                self._flow.add_submission(sent)
        lines = await self._audit.read()
        # Read after the lines: the event that led to one of them is there by then.
        self._flow.add(lines, await self._events.read())
        for body in await self._journal.read():
            try:
                self._flow.add_attempt(msgspec.convert(body, Attempt))
            except msgspec.ValidationError:
                continue
        return True

    async def _count(self) -> dict[str, Any]:
        counted = await run(self._bucket, posts.overview(bus_of(self._bucket), pages_max=COUNT_PAGES_MAX))
        return msgspec.structs.asdict(counted)


def _submission(message: Message) -> Submission | None:
    """What was sent to be judged; None if it is not a post. A body too large for the log names its post by its key
    alone: it counts as the first revision."""
    body = inline_body(message)
    try:
        at = seconds_of(message.at)
        if isinstance(body, dict) and isinstance(body.get("id"), str) and isinstance(body.get("revision"), int):
            return Submission(body["id"], body["revision"], at, seconds_of(body["accepted_at"]))
    except (ValueError, KeyError, TypeError):
        return None
    return Submission(message.key, 1, at, at) if message.body_at is not None and message.key else None
