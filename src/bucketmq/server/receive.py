"""From a notification to events in the log, and what its sender is told: persist first, then answer.

A batch with bad items is accepted for its good ones: most senders would repeat the whole of a refused batch for ever.
Who is calling was checked before. How requests arrive does not belong here.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from bucketmq import aio
from bucketmq.errors import BucketMQError, Invalid
from bucketmq.events.event import ObjectEvent
from bucketmq.events.parse import Confirm, Parsed, below, parse
from bucketmq.server.metrics import Counters
from bucketmq.server.place import now_of, within
from bucketmq.server.settings import ServerSettings
from bucketmq.server.sns import Sns
from bucketmq.server.wire import Refusal, loggable

LISTED_MAX = 100
"""How many bad items and unknown names an answer names."""

RETRY_AFTER_SECONDS = 5

logger = logging.getLogger("bucketmq")


class Receiver:
    """Takes notifications for one bucket."""

    def __init__(self, bucket: aio.Bucket, settings: ServerSettings, counters: Counters) -> None:
        self._bucket = bucket
        self._settings = settings
        self._counters = counters
        self._sns = Sns(settings)

    async def take(self, source: str, headers: dict[str, str], body: bytes) -> dict[str, Any]:
        """What to answer, when everything in the body that means something is stored."""
        await self._sns.check(source, headers, body)
        try:
            # Up to 10,000 events: a moment's work that must not hold up the other requests.
            parsed = await asyncio.to_thread(parse, source, headers, body, received_at=now_of(self._bucket))
        except Invalid as error:
            raise Refusal(400, str(error), "send a notification of a known form, as it came") from None
        events = [event for event in map(self._ours, parsed.events) if event is not None]
        refused = await self._store(events)
        bad = [{"index": each.index, "reason": each.reason} for each in parsed.bad] + refused
        accepted, outside = len(events) - len(refused), len(parsed.events) - len(events)
        self._count(source, parsed, accepted=accepted, outside=outside, bad=len(bad))
        if parsed.confirm is not None:
            return await self._confirm(source, parsed.confirm)
        if bad:
            first = loggable(bad[0]["reason"])
            logger.warning("action=bad_items source=%s count=%d first=%s", source, len(bad), first)
        return {
            "accepted": accepted,
            "ignored": parsed.ignored,
            "unknown": dict(list(parsed.unknown.items())[:LISTED_MAX]),
            "bad": bad[:LISTED_MAX],
            "outside": outside,
        }

    def close(self) -> None:
        self._sns.close()

    def _ours(self, event: ObjectEvent) -> ObjectEvent | None:
        buckets = self._settings.buckets
        if buckets and event.bucket and event.bucket not in buckets:
            return None
        return below(self._bucket.prefix, event)

    async def _store(self, events: list[ObjectEvent]) -> list[dict[str, Any]]:
        """Make them durable; returns those that cannot be. A sender that hangs up, or is sent away because it takes too
        long, does not stop it: when it comes again with the same events, they collapse on their ids."""
        if not events:
            return []
        try:
            return await within(self._settings.report_seconds, self._report(events))
        except TimeoutError:
            raise unavailable("the store took too long") from None
        except BucketMQError as error:
            logger.warning("action=report_failed kind=%s error=%s", error.kind, loggable(error))
            raise unavailable(f"the events could not be stored ({error.kind})") from None

    async def _report(self, events: list[ObjectEvent]) -> list[dict[str, Any]]:
        try:
            await self._bucket.report(events)
        except Invalid:
            return await self._store_each(events)
        return []

    async def _store_each(self, events: list[ObjectEvent]) -> list[dict[str, Any]]:
        """One of them does not fit; the others are stored."""
        refused: list[dict[str, Any]] = []
        for index, event in enumerate(events):
            try:
                await self._bucket.report([event])
            except Invalid as error:
                refused.append({"index": index, "reason": f"cannot be stored: {error}"[:500]})
        return refused

    def _count(self, source: str, parsed: Parsed, *, accepted: int, outside: int, bad: int) -> None:
        outcomes = {"accepted": accepted, "ignored": parsed.ignored, "outside": outside, "bad": bad}
        for outcome, count in outcomes.items():
            if count:
                self._counters.add("events_received_total", count, source=source, outcome=outcome)
        for name, count in parsed.unknown.items():
            self._counters.add("unknown_event_names_total", count, source=source, name=name)

    async def _confirm(self, source: str, confirm: Confirm) -> dict[str, Any]:
        if confirm.by == "eventgrid":
            self._counters.add("subscriptions_confirmed_total", source=source)
            return {"validationResponse": confirm.code}
        await self._sns.confirm(confirm)
        self._counters.add("subscriptions_confirmed_total", source=source)
        logger.info("action=subscription_confirmed topic=%s", loggable(confirm.topic))
        return {"confirmed": confirm.topic}


def unavailable(why: str) -> Refusal:
    return Refusal(503, why, "send it again later", headers={"retry-after": str(RETRY_AFTER_SECONDS)})
