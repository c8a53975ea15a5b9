"""Documents as an application."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bucketmq.apps.app import App, LazyPipeline
from bucketmq.apps.documents.names import PIPELINE
from bucketmq.apps.documents.pages.tabs import tabs
from bucketmq.apps.documents.settings import DocumentSettings
from bucketmq.apps.page import page_agent

if TYPE_CHECKING:
    import typer

    from bucketmq.pipeline import Pipeline


def indexing(
    *,
    encoders: tuple[str, ...] = ("granite",),
    relations: str = "text",
    relations_requests_max: int = 10_000,
    url: str = "",
) -> Pipeline:
    """The pipeline as the settings want it."""
    from bucketmq.apps.documents.pipeline import index

    return index(encoders=encoders, relations=relations, relations_requests_max=relations_requests_max, url=url)


def commands() -> typer.Typer:
    from bucketmq.apps.documents.cli import GROUP

    return GROUP.typer


def demo() -> Callable[..., None]:
    from bucketmq.apps.documents.demo.verb import demo as verb

    return verb


DOCUMENTS = App(
    name="documents",
    about="index what lies below docs/, search it by words and by meaning, keep a graph of it",
    settings=DocumentSettings,
    pipelines=(
        LazyPipeline(
            name=PIPELINE,
            make=indexing,
            about="What lies below docs/ as chunks with their terms, entities and vectors, in a table.",
        ),
    ),
    agents=(page_agent(tabs, about="the page: search, and what is around a name"),),
    tabs=tabs(),
    commands=commands,
    demo=demo,
)
