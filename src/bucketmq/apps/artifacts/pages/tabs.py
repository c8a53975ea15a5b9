"""The tab Artifacts, and the agent that serves it. Its routes are `routes`'; nothing heavy is imported before."""

from __future__ import annotations

import os
from importlib.resources import files
from typing import TYPE_CHECKING

from bucketmq.apps.app import Agent, Here, Page
from bucketmq.apps.artifacts.settings import KEY_VARIABLE, TRUST_VARIABLE, ArtifactsSettings
from bucketmq.apps.page import page_of, serve_page
from bucketmq.dashboard.tab import Tab
from bucketmq.server.people import TOKENS_VARIABLE

if TYPE_CHECKING:
    from fastapi import APIRouter

    from bucketmq.dashboard.site import Site


def tabs(*, trust: str = "", key: str = "") -> tuple[Tab, ...]:
    """The tab. `trust` and `key` name files; without them the variables of the environment do."""

    def routes(site: Site) -> APIRouter:
        from bucketmq.apps.artifacts.pages.routes import artifact_routes

        pinned = trust or os.environ.get(TRUST_VARIABLE, "")
        return artifact_routes(site, pinned, key or os.environ.get(KEY_VARIABLE, ""))

    static = files(__package__).joinpath("static")
    return (Tab("artifacts", "Artifacts", routes, static, "artifacts.js", style="artifacts.css"),)


async def _serve(here: Here) -> None:
    own: ArtifactsSettings = here.settings
    added = tabs(trust=own.trust, key=own.key)
    await serve_page(here, own.page_tokens, added, port=own.port_page, trusted_proxies=own.trusted_proxies)


def _page(settings: ArtifactsSettings, address: str) -> Page:
    return page_of(settings.page_tokens, TOKENS_VARIABLE, address)


page = Agent(
    name="page",
    run=_serve,
    about="environments by artifacts, with buttons for people with the role",
    port="port_page",
    page=_page,
)
