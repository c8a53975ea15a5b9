"""Images as an application. Each stage is a pipeline of its own: its own rule and dead letters, run again alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bucketmq.apps.app import Agent, App, Here
from bucketmq.apps.images.pages.tabs import tabs
from bucketmq.apps.images.pipelines import PIPELINES
from bucketmq.apps.images.settings import ImageSettings
from bucketmq.apps.page import page_agent

if TYPE_CHECKING:
    import typer


async def keep_table(here: Here) -> None:
    from bucketmq.apps.images.table import register

    register(here.bucket)
    here.ready("")
    await here.bucket.run_watchers()


def commands() -> typer.Typer:
    from bucketmq.apps.images.cli import GROUP

    return GROUP.typer


def demo() -> Callable[..., None]:
    from bucketmq.apps.images.demo import demo as verb

    return verb


IMAGES = App(
    name="images",
    about="thumbnails, a verdict, the text and a description of every image below raw/",
    settings=ImageSettings,
    pipelines=tuple(PIPELINES.values()),
    agents=(
        page_agent(tabs, about="the page: a contact sheet of all images"),
        Agent(name="images-table", run=keep_table, about="keeps the table images: a row for each image"),
    ),
    tabs=tabs(),
    commands=commands,
    demo=demo,
)
