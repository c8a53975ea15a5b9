"""The routes behind the tab Logs. Thin: each calls a part. What they show of lines was masked before."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response

from bucketmq.apps.logs import alerts, explain, look
from bucketmq.apps.logs.models import read_model
from bucketmq.apps.logs.names import MUTED, OPEN, RESOLVED
from bucketmq.dashboard.site import Kept, Site, json_answer, query_of
from bucketmq.errors import NotFound
from bucketmq.server.wire import Refusal

PARTS = 60
HOURS_MAX = 24 * 14
PATTERNS_SHOWN = 100
NEW_SECONDS = 86400.0
MUTE_SECONDS_MAX = 30 * 86400.0


class Asked(msgspec.Struct, frozen=True):
    """What of the logs."""

    service: str = ""
    hours: int = 1


class Muting(msgspec.Struct, forbid_unknown_fields=True):
    """What a person wants to hear no more of; with no seconds, hear again."""

    id: str
    seconds: float
    note: str = ""


def log_routes(site: Site) -> APIRouter:
    router = APIRouter()
    bus = site.bucket.api
    table = Kept(lambda: site.bucket.run(look.counts(bus)))
    known = Kept(lambda: site.bucket.run(look.services(bus)))

    @router.get("/overview")
    async def overview(request: Request) -> Response:
        """Services, open alerts, the timeline, and the patterns of a service."""
        site.looker(request)
        return json_answer(await site.work(_overview(query_of(request, Asked))))

    async def _overview(asked: Asked) -> dict[str, Any]:
        now = site.bucket.now_seconds
        hours = min(max(1, asked.hours), HOURS_MAX)
        since, until = now - 3600.0 * hours, now + 60.0
        services = await known.read()
        rows = look.between(await table.read(), since, until, asked.service)
        found: dict[str, Any] = {
            "now": now,
            "since": since,
            "until": until,
            "services": services,
            "open": await site.bucket.run(alerts.open_alerts(bus, OPEN)),
            "muted": await site.bucket.run(alerts.open_alerts(bus, MUTED)),
            "resolved": (await site.bucket.run(alerts.open_alerts(bus, RESOLVED)))[:10],
            "timeline": look.timeline(rows, since, until, PARTS),
            "patterns": [],
            "new": [],
        }
        if asked.service:
            model = await site.bucket.run(read_model(await site.bucket.run(bus.open()), asked.service))
            patterns = look.patterns(model, rows, since, until, parts=PARTS)
            found["patterns"] = patterns[:PATTERNS_SHOWN]
            found["all"] = len(patterns)
            lately = (each for each in patterns if each.first_at > now - NEW_SECONDS)
            found["new"] = sorted(lately, key=lambda each: -each.first_at)[:10]
        return found

    @router.get("/lines")
    async def lines(request: Request) -> Response:
        """The newest lines of a pattern."""
        site.looker(request)
        query = request.query_params
        try:
            work = look.lines_of(bus, query.get("service", ""), query.get("template", ""), limit=100)
            found = await site.work(site.bucket.run(work))
        except NotFound as error:
            raise Refusal(404, str(error)) from None
        return json_answer({"lines": found})

    @router.get("/said")
    async def said(request: Request) -> Response:
        """What Claude said of an open alert, if it was asked."""
        site.looker(request)
        try:
            alert = await site.work(site.bucket.run(alerts.read_alert(bus, request.query_params.get("id", ""))))
        except NotFound as error:
            raise Refusal(404, str(error)) from None
        return json_answer({"said": await site.work(site.bucket.run(explain.said_of(bus, alert)))})

    @router.post("/mute")
    async def mute(request: Request) -> Response:
        """Mute an incident for a while, or unmute it."""
        asked = await site.body(request, Muting)
        if not 0 <= asked.seconds <= MUTE_SECONDS_MAX:
            raise Refusal(400, "an alert can be muted for up to 30 days")
        caller = await site.changer(
            request, "operate", "mute" if asked.seconds else "unmute", f"alert {asked.id[:60]!r}", has_own_line=True
        )
        work = alerts.mute(bus, asked.id, by=caller.name, seconds=asked.seconds, note=asked.note)
        made = await site.work(site.bucket.run(work))
        return json_answer({"id": asked.id, "until": None if made is None else made.until})

    return router
