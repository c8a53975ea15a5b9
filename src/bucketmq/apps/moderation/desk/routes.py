"""The routes behind the tabs Review, where people decide, and Flow. Thin: each calls a part.

Every decision has its line in moderation's own audit log, under the name of whoever is logged in; what was refused at
the gate is in the log of actions.
"""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response

from bucketmq.apps.moderation import posts
from bucketmq.apps.moderation.classify.fetch import FetchSettings, Unseen
from bucketmq.apps.moderation.desk.figures import Figures
from bucketmq.apps.moderation.desk.images import Images, Shown
from bucketmq.apps.moderation.desk.index import Index, Item, Query, as_json, item_of
from bucketmq.apps.moderation.posts import Action, Entry, Refused, Seen
from bucketmq.apps.moderation.record import CATEGORIES
from bucketmq.dashboard.site import Site, json_answer, query_of
from bucketmq.errors import Invalid
from bucketmq.server.place import bus_of, run, seconds_now
from bucketmq.server.wire import Refusal

BODY_BYTES_MAX = 256 << 10


class Said(msgspec.Struct, forbid_unknown_fields=True):
    """What a person says of a post. Who it is, is not asked."""

    id: str
    revision: int
    action: Action
    note: str = ""


def review_routes(site: Site, fetch: FetchSettings) -> APIRouter:
    router = APIRouter()
    index, images = Index(site.bucket), Images(fetch)

    async def close() -> None:
        await index.close()
        images.close()

    site.on_close(close)

    @router.get("/posts")
    async def waiting(request: Request) -> Response:
        """A page of the posts that wait for a person."""
        site.looker(request)
        query = query_of(request, Query)
        await site.work(index.refresh())
        try:
            found = index.find(query)
        except Invalid as error:
            raise Refusal(400, str(error)) from None
        row = msgspec.structs.asdict(found)
        return json_answer(
            {**row, "items": as_json(found.items), "categories": CATEGORIES, "now": seconds_now(site.bucket)}
        )

    @router.get("/post")
    async def post(request: Request) -> Response:
        """One post as it is now, with its whole text."""
        site.looker(request)
        return json_answer(_whole(await site.work(index.look_at(request.query_params.get("id", "")))))

    async def image_of(request: Request) -> Shown | Unseen:
        site.looker(request)
        seen = await site.work(index.look_at(request.query_params.get("id", "")))
        if seen.record is None or seen.record.media_url is None:
            return Unseen("the post has no image")
        return await images.show(seen.record.media_url)

    @router.get("/image/state")
    async def image_state(request: Request) -> Response:
        """Whether there is an image to show, and if not why: an <img> could not tell. It is fetched by this already."""
        shown = await image_of(request)
        return json_answer(
            {"there": isinstance(shown, Shown), "why": shown.reason if isinstance(shown, Unseen) else None}
        )

    @router.get("/image")
    async def image(request: Request) -> Response:
        """The image of a post, fetched by us."""
        shown = await image_of(request)
        if isinstance(shown, Unseen):
            raise Refusal(404, shown.reason)
        return Response(shown.data, media_type=shown.media_type, headers={"content-disposition": "inline"})

    @router.post("/decide")
    async def decide(request: Request) -> Response:
        """Approve, uphold or escalate. 409 if somebody was earlier: who, when, and what they did."""
        said = await site.body(request, Said, bytes_max=BODY_BYTES_MAX)
        caller = await site.changer(request, "review", said.action, f"post {said.id[:200]!r}", has_own_line=True)
        work = posts.review(
            bus_of(site.bucket),
            said.id,
            revision=said.revision,
            reviewer=caller.name,
            action=said.action,
            note=said.note,
        )
        done = await site.work(run(site.bucket, work))
        # The decision stands whether or not the index can be told now.
        with contextlib.suppress(Refusal):
            await site.work(index.look_at(said.id))
        if isinstance(done, Refused):
            return json_answer({"error": done.text, "hint": None, **msgspec.to_builtins(done)}, 409)
        return json_answer(msgspec.to_builtins(done.review))

    return router


def flow_routes(site: Site) -> APIRouter:
    router = APIRouter()
    figures = Figures(site.bucket)

    @router.get("/figures")
    async def figure(request: Request) -> Response:
        """Counts, rates and latencies of all posts."""
        site.looker(request)
        return json_answer({"flow": await site.work(figures.flow()), "now": seconds_now(site.bucket)})

    return router


def _whole(seen: Seen) -> dict[str, Any]:
    """A post for the page."""
    register, record = seen.register, seen.record
    if record is None or seen.outcome is None:
        raise Refusal(404, f"post {seen.id!r} is not there any more", "it may have been moved; look at the list again")
    item: Item = item_of(Entry(seen.id, "", seen.outcome, 0.0, ""), record, seen.fault)
    row = as_json([item])[0]
    said = {"decision": None, "escalation": None, "review": None}
    if register is not None:
        said = {name: msgspec.to_builtins(getattr(register, name)) for name in said}
    return {
        **row,
        **said,
        "text": record.text,
        "prompt": record.prompt,
        "attempts": record.attempts,
        "escalated": said["escalation"] is not None,
    }
