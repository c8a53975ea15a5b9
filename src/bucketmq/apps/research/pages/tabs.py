"""The tab that research adds to the dashboard. Its routes are `routes`'."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from bucketmq.dashboard.tab import Tab

if TYPE_CHECKING:
    from fastapi import APIRouter

    from bucketmq.dashboard.site import Site

KEYS = {"j k": "next, previous study", "o": "open the report of the chosen study"}


def tabs() -> tuple[Tab, ...]:
    def routes(site: Site) -> APIRouter:
        from bucketmq.apps.research.pages.routes import research_routes

        return research_routes(site)

    static = files(__package__).joinpath("static")
    return (Tab("research", "Studies", routes, static, "research.js", style="research.css", keys=KEYS),)
