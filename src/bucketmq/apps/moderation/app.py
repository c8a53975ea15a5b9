"""Moderation as an application."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bucketmq.apps.app import App, LazyPipeline, WantedQueue
from bucketmq.apps.moderation.agents import AGENTS
from bucketmq.apps.moderation.desk.tabs import tabs
from bucketmq.apps.moderation.queues import AUDIT, CHORES, DECISIONS, FIRST_SETTINGS, READER, SUBMISSIONS
from bucketmq.apps.moderation.settings import ModerationSettings

if TYPE_CHECKING:
    import typer

    from bucketmq.pipeline import Pipeline


def judging(*, classifier: str = "embedded", private_images: bool = False) -> Pipeline:
    """The pipeline with the chosen classifier: embedded, claude, cascade or none."""
    from bucketmq.apps.moderation.pipeline import pipeline

    return pipeline(classifier=classifier, private_images=private_images)


def commands() -> typer.Typer:
    from bucketmq.apps.moderation.cli import GROUP

    return GROUP.typer


def demo() -> Callable[..., None]:
    from bucketmq.apps.moderation.demo.verb import demo as verb

    return verb


MODERATION = App(
    name="moderation",
    about="posts come in, are judged on Spark, routed by their verdict, and looked at by people",
    settings=ModerationSettings,
    pipelines=(
        LazyPipeline(
            name=READER,
            make=judging,
            about="Judge submitted posts and write them below pending/ with the verdict.",
        ),
    ),
    agents=AGENTS,
    tabs=tabs(),
    queues=tuple(
        WantedQueue(name, about, FIRST_SETTINGS.get(name, {}))
        for name, about in (
            (SUBMISSIONS, "posts that were accepted"),
            (AUDIT, "what was done to posts, and by whom"),
            (DECISIONS, "what people decided about posts, and took back"),
            (CHORES, "posts whose reviewer may have died half-way"),
        )
    ),
    commands=commands,
    demo=demo,
)
