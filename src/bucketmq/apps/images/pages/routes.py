"""The routes behind the tab Images. Thin: what they show is `sheet`'s, running again is the pipelines'.

Thumbnails are served from here, to people who may see the bucket's events, as the WebP that the stage encoded: no bytes
of a stranger reach a browser, and nothing but thumbnails can be asked for.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from fastapi import APIRouter, Request, Response

from bucketmq.apps.app import made
from bucketmq.apps.images.pages.sheet import Sheet, Wanted
from bucketmq.apps.images.pipelines import PIPELINES
from bucketmq.apps.images.places import RAW, STAGES, thumb_key
from bucketmq.apps.images.thumbnails import SIZES
from bucketmq.dashboard.site import Site, json_answer, query_of
from bucketmq.events.event import plain_version
from bucketmq.pipeline.again import Retold, Which, retell
from bucketmq.pipeline.things import SOURCE_VERSION
from bucketmq.procedures.queues import EVENTS
from bucketmq.procedures.requests import Procedure
from bucketmq.server.place import bus_of, run, seconds_now
from bucketmq.server.wire import Refusal


class Again(msgspec.Struct, forbid_unknown_fields=True):
    """Which image is to be run again, by which stage; all of them with an empty one."""

    key: str
    stage: Literal["", "thumbnails", "policy", "text", "alt"] = ""


def image_routes(site: Site) -> APIRouter:
    router = APIRouter()
    sheet = Sheet(site.bucket)

    @router.get("/sheet")
    async def look(request: Request) -> Response:
        """A page of the contact sheet."""
        site.looker(request, EVENTS)
        found = await site.work(sheet.find(query_of(request, Wanted)))
        return json_answer({**msgspec.to_builtins(found), "now": seconds_now(site.bucket)})

    @router.get("/image")
    async def image(request: Request) -> Response:
        """One image with its text."""
        site.looker(request, EVENTS)
        return json_answer(await site.work(sheet.one(request.query_params.get("key", ""))))

    @router.get("/thumb")
    async def thumb(request: Request) -> Response:
        """A thumbnail. 404 for anything else, also for one of another version of the image than `v`."""
        site.looker(request, EVENTS)
        key, size = request.query_params.get("key", ""), request.query_params.get("size", "256")
        if not key.startswith(RAW) or size not in map(str, SIZES):
            raise Refusal(404, "there is no such thumbnail")
        found = await site.work(site.bucket.get(thumb_key(key, int(size))))
        version = plain_version(found.metadata.get(SOURCE_VERSION, ""))
        if version and request.query_params.get("v", version) != version:
            raise Refusal(404, "the thumbnail is of another version; look at the list again")
        headers = {"content-disposition": "inline", "x-content-type-options": "nosniff"}
        return Response(found.body, media_type="image/webp", headers=headers)

    @router.post("/rerun")
    async def rerun(request: Request) -> Response:
        """Tell one stage of an image again, or all; what comes of it appears when they have worked it off."""
        said = await site.body(request, Again)
        if not said.key.startswith(RAW):
            raise Refusal(400, f"{said.key[:200]!r} is not below {RAW}")
        how = f"stage {said.stage}" if said.stage else "all stages"
        await site.changer(request, "operate", "rerun", f"image {said.key[:200]!r}", how=how, queue=EVENTS)
        told = 0
        for stage in (said.stage,) if said.stage else STAGES:
            told += (await site.work(run(site.bucket, _told_again(site, stage, said.key)))).told
        return json_answer({"told": told})

    return router


def _told_again(site: Site, stage: str, key: str) -> Procedure[Retold]:
    opened = yield from bus_of(site.bucket).open()
    return (yield from retell(opened, made(PIPELINES[stage]), Which(keys=(key,))))
