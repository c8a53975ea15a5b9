"""The tab that documents add to the dashboard. Its routes are `routes`'."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from bucketmq.dashboard.tab import Tab

if TYPE_CHECKING:
    from fastapi import APIRouter

    from bucketmq.dashboard.site import Site

KEYS = {"/": "search", "j k": "next, previous hit", "Enter": "where the hit stands", "g": "the graph of its first name"}


def tabs() -> tuple[Tab, ...]:
    def routes(site: Site) -> APIRouter:
        from bucketmq.apps.documents.pages.routes import document_routes

        return document_routes(site)

    static = files(__package__).joinpath("static")
    return (Tab("documents", "Documents", routes, static, "documents.js", style="documents.css", keys=KEYS),)
