"""The tab that logs add to the dashboard. Its routes are `routes`'."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from bucketmq.dashboard.tab import Tab

if TYPE_CHECKING:
    from fastapi import APIRouter

    from bucketmq.dashboard.site import Site

KEYS = {"j k": "next, previous alert", "m": "mute the chosen alert", "Esc": "close the lines"}


def tabs() -> tuple[Tab, ...]:
    def routes(site: Site) -> APIRouter:
        from bucketmq.apps.logs.pages.routes import log_routes

        return log_routes(site)

    static = files(__package__).joinpath("static")
    return (Tab("logs", "Logs", routes, static, "logs.js", style="logs.css", keys=KEYS),)
