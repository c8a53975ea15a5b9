"""The agents of moderation, as `bucketmq apps run moderation` runs them. Each imports what it needs when it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bucketmq.apps.app import Agent, Here, Page
from bucketmq.apps.moderation.settings import DESK_TOKENS, ModerationSettings
from bucketmq.apps.page import page_of, serve_page

if TYPE_CHECKING:
    from bucketmq.apps.moderation.router import Told


async def ingest(here: Here) -> None:
    """Take posts at POST /submit."""
    from bucketmq.apps.moderation.ingest import serve

    await serve(here.bucket, here.settings, host=here.host, listening=here.ready)


async def route(here: Here) -> None:
    """Move judged posts; with a webhook if there are secrets for it."""
    from bucketmq.apps.moderation.router import serve

    if here.settings.webhook_secrets:
        await serve(here.bucket, here.settings, host=here.host, listening=here.ready)
    else:
        await pull(here)


async def pull(here: Here, told: Told | None = None) -> None:
    """Route by the bucket's own events until SIGTERM or SIGINT."""
    from bucketmq.apps.moderation.router import Router

    router = Router(here.bucket, here.settings, told=told)
    await router.start()
    here.ready("")
    try:
        await here.stopped()
    finally:
        await router.stop()


async def desk(here: Here) -> None:
    """The page where people decide."""
    from bucketmq.apps.moderation.desk.tabs import tabs

    own = here.settings
    added = tabs(private_images=own.private_images, undo_seconds=own.undo_seconds)
    await serve_page(
        here,
        own.desk_tokens,
        added,
        port=own.port_desk,
        trusted_proxies=own.trusted_proxies,
        variable=DESK_TOKENS,
    )


def page(settings: ModerationSettings, address: str) -> Page:
    """The desk."""
    return page_of(settings.desk_tokens, DESK_TOKENS, address)


AGENTS = (
    Agent(name="ingest", run=ingest, about="takes posts at POST /submit, durable when answered", port="port_ingest"),
    Agent(
        name="router",
        run=route,
        about="moves judged posts where they belong, and tells people of flagged ones",
        port="port_router",
    ),
    Agent(name="desk", run=desk, about="the page where people decide", port="port_desk", page=page),
)
