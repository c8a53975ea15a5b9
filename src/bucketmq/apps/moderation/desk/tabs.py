"""The tabs that moderation adds to the dashboard: Review, where people decide; Decisions, where they see what was
decided and take it back; and Flow. Their routes are `routes`'."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from bucketmq.apps.moderation.register import UNDO_SECONDS
from bucketmq.dashboard.tab import Tab

if TYPE_CHECKING:
    from fastapi import APIRouter

    from bucketmq.dashboard.site import Site

REVIEW_KEYS = {
    "j k": "next, previous post",
    "a": "approve: it breaks no rule",
    "u": "uphold: it stays flagged, or becomes so",
    "e": "escalate: somebody else should look",
    "z": "take back your last decision",
    "n": "write a note for the decision",
    "b": "show or blur the text",
    "i": "show or blur the image",
    "h": "the history of the post",
    "x": "choose the post, for deciding about several",
    "/": "search",
}


def tabs(*, private_images: bool = False, undo_seconds: float = UNDO_SECONDS) -> tuple[Tab, ...]:
    """Review, Decisions and Flow. `private_images` allows to fetch images from this machine and private networks; for
    `undo_seconds` people may take back their own decisions."""

    def review(site: Site) -> APIRouter:
        from bucketmq.apps.moderation.desk.routes import review_routes
        from bucketmq.models.fetch import FetchSettings

        return review_routes(site, FetchSettings(private=private_images), undo_seconds=undo_seconds)

    def decisions(site: Site) -> APIRouter:
        from bucketmq.apps.moderation.desk.routes import decision_routes

        return decision_routes(site, undo_seconds=undo_seconds)

    def flow(site: Site) -> APIRouter:
        from bucketmq.apps.moderation.desk.routes import flow_routes

        return flow_routes(site)

    static = files(__package__).joinpath("static")
    return (
        Tab("review", "Review", review, static, "review.js", style="review.css", keys=REVIEW_KEYS),
        Tab("decisions", "Decisions", decisions, static, "decisions.js", style="decisions.css"),
        Tab("flow", "Flow", flow, static, "flow.js", style="flow.css"),
    )
