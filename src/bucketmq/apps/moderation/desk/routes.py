"""The routes behind the tabs Review, where people decide, Decisions, and Flow. Thin: each calls a part.

Every decision has its line in moderation's own audit log, under the name of the person who is logged in; what was
refused at the gate is in the log of actions.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response

from bucketmq.apps.moderation import posts
from bucketmq.apps.moderation.desk.decisions import Ledger, Wanted
from bucketmq.apps.moderation.desk.figures import Figures
from bucketmq.apps.moderation.desk.images import Images, Shown
from bucketmq.apps.moderation.desk.index import Index, Item, Query, as_json, item_of
from bucketmq.apps.moderation.history import history_of
from bucketmq.apps.moderation.posts import Entry, PostState, Saying
from bucketmq.apps.moderation.record import CATEGORIES
from bucketmq.apps.moderation.register import Action, Refused, Reviewed
from bucketmq.dashboard.site import Site, json_answer, query_of
from bucketmq.errors import BucketMQError, Invalid, NotFound
from bucketmq.models.fetch import FetchSettings, Unseen
from bucketmq.server.place import bus_of, run, seconds_now
from bucketmq.server.wire import Refusal

logger = logging.getLogger("bucketmq")

BODY_BYTES_MAX = 256 << 10
BULK_MAX = 50
"""Posts that are decided at a time; a page that wants more asks again."""
MATCHING_MAX = 1_000
"""Posts that can be chosen by a filter for deciding about all of them."""


class Said(msgspec.Struct, forbid_unknown_fields=True):
    """What a person says of a post. Who it is, is not asked."""

    id: str
    revision: int
    action: Action
    note: str = ""


class SaidOfMany(msgspec.Struct, forbid_unknown_fields=True):
    """The same of several posts."""

    posts: list[Saying]
    action: Action
    note: str = ""


class Unsaid(msgspec.Struct, forbid_unknown_fields=True):
    """What should not have been said: as the decision names itself."""

    id: str
    revision: int
    action: Action
    turn: int
    note: str = ""


def review_routes(site: Site, fetch: FetchSettings, *, undo_seconds: float) -> APIRouter:
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
        return json_answer({**msgspec.to_builtins(done.review), "undo_seconds": undo_seconds})

    @router.get("/matching")
    async def matching(request: Request) -> Response:
        """Every post that a filter finds, by id and revision, up to a limit: to decide about all of them."""
        site.looker(request)
        query = query_of(request, Query)
        await site.work(index.refresh())
        found = index.matching(query)
        chosen = [{"id": item.id, "revision": item.revision} for item in found[:MATCHING_MAX]]
        return json_answer({"posts": chosen, "matching": len(found), "complete": index.complete})

    @router.post("/bulk")
    async def bulk(request: Request) -> Response:
        """The same said of several posts: for each what came of it. None fails because another one does."""
        said = await site.body(request, SaidOfMany, bytes_max=BODY_BYTES_MAX)
        ids = [each.id for each in said.posts]
        to = f"post {ids[0][:200]!r}" if len(ids) == 1 else f"{len(ids)} posts"
        caller = await site.changer(request, "review", said.action, to, has_own_line=True)
        if not 1 <= len(ids) <= BULK_MAX or len(set(ids)) < len(ids):
            raise Refusal(400, f"name 1 to {BULK_MAX} posts, each once, not {len(ids)}")
        work = posts.review_many(
            bus_of(site.bucket), said.posts, reviewer=caller.name, action=said.action, note=said.note
        )
        done = await site.work(run(site.bucket, work))
        # The decisions stand whether or not the index can be told now.
        await asyncio.gather(*(site.work(index.look_at(id)) for id in ids), return_exceptions=True)
        return json_answer({"results": [_said_of(id, each) for id, each in zip(ids, done, strict=True)]})

    @router.post("/undo")
    async def undo(request: Request) -> Response:
        """Take back a decision. 403 if it is another's or too old, 409 if something else happened since."""
        unsaid = await site.body(request, Unsaid, bytes_max=BODY_BYTES_MAX)
        to = f"post {unsaid.id[:200]!r}"
        caller = await site.changer(request, "review", f"undo {unsaid.action}", to, has_own_line=True)
        work = posts.undo(
            bus_of(site.bucket),
            unsaid.id,
            revision=unsaid.revision,
            action=unsaid.action,
            turn=unsaid.turn,
            by=caller.name,
            administers=caller.may("administer"),
            note=unsaid.note,
            window_seconds=undo_seconds,
        )
        done = await site.work(run(site.bucket, work))
        with contextlib.suppress(Refusal):
            await site.work(index.look_at(unsaid.id))
        if isinstance(done, Refused):
            status = 403 if done.why in ("not-yours", "late") else 409
            return json_answer({"error": done.text, "hint": None, **msgspec.to_builtins(done)}, status)
        return json_answer({**msgspec.to_builtins(done.undone), "outcome": done.outcome})

    @router.get("/history")
    async def history(request: Request) -> Response:
        """Everything known about a post, in order."""
        site.looker(request)
        work = history_of(bus_of(site.bucket), request.query_params.get("id", ""))
        return json_answer(await site.work(run(site.bucket, work)))

    return router


def _said_of(id: str, done: object) -> dict[str, Any]:
    """What came of one of several."""
    if isinstance(done, Reviewed):
        return {"id": id, "done": True, "turn": done.review.turn}
    if isinstance(done, Refused):
        return {"id": id, "done": False, "sure": True, "error": done.text, "why": done.why}
    if isinstance(done, Invalid | NotFound):
        return {"id": id, "done": False, "sure": True, "error": str(done), "why": done.kind}
    if isinstance(done, BucketMQError):
        return {"id": id, "done": False, "sure": False, "error": str(done), "why": done.kind}
    logger.error("action=review_failed id=%r", id[:200], exc_info=done if isinstance(done, BaseException) else None)
    return {"id": id, "done": False, "sure": False, "error": "the desk failed; its log says why", "why": "failed"}


def decision_routes(site: Site, *, undo_seconds: float) -> APIRouter:
    router = APIRouter()
    ledger = Ledger(site.bucket, undo_seconds=undo_seconds)

    @router.get("/list")
    async def listed(request: Request) -> Response:
        """A page of what people decided, the latest first."""
        caller = site.looker(request)
        wanted = query_of(request, Wanted)
        await site.work(ledger.refresh())
        now = seconds_now(site.bucket)
        try:
            found = ledger.find(wanted, caller, now)
        except Invalid as error:
            raise Refusal(400, str(error)) from None
        return json_answer({**msgspec.to_builtins(found), "now": now, "undo_seconds": undo_seconds})

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


def _whole(seen: PostState) -> dict[str, Any]:
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
