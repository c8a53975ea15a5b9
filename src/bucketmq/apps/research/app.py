"""Research as an application."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bucketmq.apps.app import App, LazyPipeline, WantedQueue
from bucketmq.apps.research.agents import AGENTS
from bucketmq.apps.research.pages.tabs import tabs
from bucketmq.apps.research.record import FIRST_SETTINGS, TRIALS, TRIALS_ON_SPARK
from bucketmq.apps.research.settings import ResearchSettings

if TYPE_CHECKING:
    import typer

    from bucketmq.pipeline import Pipeline


def trials_pipeline(*, simulators: tuple[str, ...] = ()) -> Pipeline:
    """The pipeline that runs trials on Spark."""
    from bucketmq.apps.research.pipeline import pipeline

    return pipeline(simulators=simulators)


def commands() -> typer.Typer:
    from bucketmq.apps.research.cli import GROUP

    return GROUP.typer


def demo() -> Callable[..., None]:
    from bucketmq.apps.research.demo import demo as verb

    return verb


RESEARCH = App(
    name="research",
    about="plans become trials, workers run them, and every number of the report has its evidence",
    settings=ResearchSettings,
    pipelines=(
        LazyPipeline(name="trials", make=trials_pipeline, about="Run the trials of studies that ask for Spark."),
    ),
    agents=AGENTS,
    tabs=tabs(),
    queues=(
        WantedQueue(TRIALS, "trials for workers"),
        WantedQueue(TRIALS_ON_SPARK, "trials for Spark", FIRST_SETTINGS[TRIALS_ON_SPARK]),
    ),
    commands=commands,
    demo=demo,
)
