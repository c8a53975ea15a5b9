"""The other side of webhooks: endpoints that work, fail, dawdle and vanish, as the seed has it.

An endpoint that answers 200 has *processed* the events; that is what counts as an arrival. It may have done so though
nobody learns it in time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from bucketmq.events.event import ObjectEvent
from bucketmq.procedures.requests import Answer, NoAnswer, Post
from bucketmq.testing.simulation.bus.plan import FINE, WEATHERS, Plan, Weather
from bucketmq.testing.simulation.world import World

LATENCY_SECONDS = 0.01, 0.2
VANISH_SECONDS = 2.0, 15.0
RETRY_AFTER_SECONDS = 1, 6

Deliver = Callable[[Any, BaseException | None], None]
Arrived = Callable[[str, str, ObjectEvent], None]
"""Called with every event that an endpoint processed: its URL, the request's webhook-id, the event."""

_KINDS = tuple(kind for kind in WEATHERS if not kind.startswith(("notice", "handler")))


class _Item(msgspec.Struct):
    bucketmq: ObjectEvent


class _Body(msgspec.Struct):
    events: list[_Item]


_decode = msgspec.json.Decoder(_Body).decode


class SimNetwork:
    """Every endpoint there is, by its URL."""

    def __init__(self, plan: Plan, world: World, arrived: Arrived) -> None:
        self.world = world
        self.weather: Weather = plan.weather
        self.arrived = arrived
        self.in_flight = 0
        self._gone_until: dict[str, float] = {}
        self.said_410: set[str] = set()

    def heal(self) -> None:
        self.weather = FINE
        self._gone_until.clear()

    def submit(self, who: str, request: Post, deliver: Deliver) -> None:
        self.in_flight += 1
        self.world.after(self.world.between(*LATENCY_SECONDS), self._arrive, who, request, deliver)

    def _arrive(self, who: str, request: Post, deliver: Deliver) -> None:
        self.in_flight -= 1
        world = self.world
        kind = self._draw(request.url)
        events = [item.bucketmq for item in _decode(request.body).events]
        names = " ".join(event.id[:12] for event in events)
        world.note(who, f"POST {request.url} {names}: {kind or 'ok'}")
        if kind is not None:
            world.faults[kind] += 1
        back = world.between(*LATENCY_SECONDS)
        match kind:
            case "vanish" | "no_answer" | "late_answer":
                seconds = 0.1 if kind == "vanish" else request.timeout_seconds
                if kind == "late_answer":
                    self._process(request, events)
                world.after(seconds, deliver, NoAnswer(f"simulated {kind}", seconds), None)
                return
            case "answer_500":
                answer = Answer(500, {}, b"out of order", back)
            case "answer_503":
                wanted = world.random.randint(*RETRY_AFTER_SECONDS)
                answer = Answer(503, {"retry-after": str(wanted)}, b"", back)
            case "answer_410":
                answer = Answer(410, {}, b"gone", back)
            case "answer_302":
                answer = Answer(302, {"location": "http://elsewhere.example/"}, b"", back)
            case "answer_partial":
                failed = [event for event in events if world.chance() < 0.5]
                self._process(request, [event for event in events if event not in failed])
                answer = Answer(200, {}, msgspec.json.encode({"failed": [event.id for event in failed]}), back)
                world.covered["per-event ack"] += 0 < len(failed) < len(events)
            case _:
                self._process(request, events)
                answer = Answer(200, {}, b"", back)
        world.after(back, deliver, answer, None)

    def _draw(self, url: str) -> str | None:
        weather, chance, now = self.weather, self.world.chance, self.world.now
        if self._gone_until.get(url, 0.0) > now:
            return "vanish"
        if weather is FINE:
            return None
        for kind in _KINDS:
            odds = getattr(weather, kind)
            if odds and chance() < odds:
                if kind == "vanish":
                    self._gone_until[url] = now + self.world.between(*VANISH_SECONDS)
                if kind == "answer_410":
                    if url in self.said_410:
                        continue
                    self.said_410.add(url)
                return kind
        return None

    def _process(self, request: Post, events: list[ObjectEvent]) -> None:
        for event in events:
            self.arrived(request.url, request.headers["webhook-id"], event)
