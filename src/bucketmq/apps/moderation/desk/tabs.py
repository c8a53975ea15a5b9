"""The tabs that moderation adds to the dashboard: Review, where people decide, and Flow. Their routes are `routes`'."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from bucketmq.dashboard.tab import Tab

if TYPE_CHECKING:
    from fastapi import APIRouter

    from bucketmq.dashboard.site import Site

REVIEW_KEYS = {
    "j k": "next, previous post",
    "a": "approve: it breaks no rule",
    "u": "uphold: it stays flagged, or becomes so",
    "e": "escalate: somebody else should look",
    "n": "write a note for the decision",
    "i": "show or blur the image",
    "/": "search",
}


def tabs(*, private_images: bool = False) -> tuple[Tab, ...]:
    """Review and Flow. `private_images` allows to fetch images from this machine and private networks."""

    def review(site: Site) -> APIRouter:
        from bucketmq.apps.moderation.classify.fetch import FetchSettings
        from bucketmq.apps.moderation.desk.routes import review_routes

        return review_routes(site, FetchSettings(private=private_images))

    def flow(site: Site) -> APIRouter:
        from bucketmq.apps.moderation.desk.routes import flow_routes

        return flow_routes(site)

    static = files(__package__).joinpath("static")
    return (
        Tab("review", "Review", review, static, "review.js", style="review.css", keys=REVIEW_KEYS),
        Tab("flow", "Flow", flow, static, "flow.js", style="flow.css"),
    )
