"""The tab that images adds to the dashboard. Its routes are `routes`'."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from bucketmq.dashboard.tab import Tab

if TYPE_CHECKING:
    from fastapi import APIRouter

    from bucketmq.dashboard.site import Site

KEYS = {
    "j k": "next, previous image",
    "Enter": "open the image",
    "Escape": "close it",
    "b": "show or blur the image that is open",
    "/": "search",
}


def tabs() -> tuple[Tab, ...]:
    def routes(site: Site) -> APIRouter:
        from bucketmq.apps.images.pages.routes import image_routes

        return image_routes(site)

    static = files(__package__).joinpath("static")
    return (Tab("images", "Images", routes, static, "images.js", style="images.css", keys=KEYS),)
