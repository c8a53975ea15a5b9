"""The store's own notifications: one for every change, told to our receiver over HTTP, and what can become of it.

The payload is text as the provider writes it, and the receiver parses it with the production code. A receiver that does
not answer in time is called again a few times; then the provider gives up, as real ones do.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote_plus

import msgspec

from bucketmq.api.bucket import BucketApi
from bucketmq.events.event import time_text
from bucketmq.events.parse import below, parse
from bucketmq.procedures.requests import Procedure
from bucketmq.testing.simulation.bus.plan import FINE, Plan, Weather
from bucketmq.testing.simulation.engine import Process
from bucketmq.testing.simulation.world import World

SOON_SECONDS = 0.02, 0.8
LATE_SECONDS = 3.0, 20.0
PATIENCE_SECONDS = 6.0
TRIES = 3

BOOKKEEPING_MAX = 12
"""How many notifications about our own bookkeeping are sent in a run; later ones show nothing new."""


class Provider:
    """Reports every change, more or less."""

    def __init__(self, plan: Plan, world: World) -> None:
        self.plan = plan
        self.world = world
        self.weather: Weather = plan.weather
        self.receiver: tuple[Process, BucketApi] | None = None
        self.in_flight = 0
        self._sequence = 0
        self._bookkeeping = 0

    def heal(self) -> None:
        self.weather = FINE

    def changed(self, full: str, version: str | None, size: int, *, bookkeeping: bool) -> None:
        """An object was written, or deleted if it has no version."""
        if not self.plan.notifies:
            return
        if bookkeeping:
            self._bookkeeping += 1
            if self._bookkeeping > BOOKKEEPING_MAX:
                return
        weather, chance, world = self.weather, self.world.chance, self.world
        text = self._payload(full, version, size)
        if weather.notice_lost and chance() < weather.notice_lost:
            world.faults["notice_lost"] += 1
            world.note("provider", f"loses {text.decode()}")
            return
        copies = 1
        if weather.notice_doubled and chance() < weather.notice_doubled:
            world.faults["notice_doubled"] += 1
            copies = 2
        for _ in range(copies):
            late = bool(weather.notice_late) and chance() < weather.notice_late
            world.faults["notice_late"] += late
            self.in_flight += 1
            world.after(world.between(*(LATE_SECONDS if late else SOON_SECONDS)), self._call, text, TRIES)

    def _call(self, text: bytes, tries: int) -> None:
        """Call the receiver, and again if it does not answer."""
        over = [False]

        def finish(_: object, error: BaseException | None) -> None:
            if not over[0] and error is None:
                over[0] = True
                self.in_flight -= 1

        def give_up_waiting() -> None:
            if over[0]:
                return
            over[0] = True
            if tries > 1:
                self.world.covered["notification repeated"] += 1
                self._call(text, tries - 1)
            else:
                self.in_flight -= 1
                self.world.covered["notification given up"] += 1

        if self.receiver is not None and self.receiver[0].alive:
            process, api = self.receiver
            process.start(_persisted(api, text, self.plan), "notification", finish)
        self.world.after(PATIENCE_SECONDS, give_up_waiting)

    def _payload(self, full: str, version: str | None, size: int) -> bytes:
        self._sequence += 1
        at = time_text(self.world.now)[:-4] + "Z"
        if self.plan.provider == "tigris":
            return msgspec.json.encode(
                {
                    "events": [
                        {
                            "eventVersion": "1",
                            "eventSource": "tigris",
                            "eventName": "OBJECT_DELETED" if version is None else "OBJECT_CREATED_PUT",
                            "eventTime": at,
                            "bucket": "simulated",
                            "object": {"key": full, "size": size, "eTag": version or ""},
                        }
                    ]
                }
            )
        told: dict[str, Any] = {"key": quote_plus(full, safe="/"), "sequencer": f"{self._sequence:016X}"}
        if version is not None:
            told |= {"eTag": version, "size": size}
            if not self.plan.content_versions:
                told["versionId"] = version
        record = {
            "eventSource": "aws:s3",
            "eventName": "ObjectRemoved:Delete" if version is None else "ObjectCreated:Put",
            "eventTime": at,
            "s3": {"bucket": {"name": "simulated"}, "object": told},
        }
        return msgspec.json.encode({"Records": [record]})


def _persisted(api: BucketApi, text: bytes, plan: Plan) -> Procedure[None]:
    """What a receiver does with a notification: parse, persist, then answer the caller."""
    parsed = parse(plan.provider, {}, text)
    told = [below(plan.prefix, event) for event in parsed.events]
    events = [event for event in told if event is not None]
    if events:
        yield from api.report(events)
