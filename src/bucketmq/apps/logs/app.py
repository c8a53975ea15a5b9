"""Logs as an application."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bucketmq.apps.app import Agent, App, Here, LazyPipeline, WantedQueue
from bucketmq.apps.logs.names import AUDIT, COUNTS, NEWS, WATCH, WINDOWS
from bucketmq.apps.logs.pages.tabs import tabs
from bucketmq.apps.logs.settings import LogSettings
from bucketmq.apps.page import page_agent

if TYPE_CHECKING:
    import typer

    from bucketmq.pipeline import Pipeline

DAY = 86400.0


def counting(
    *,
    url: str = "",
    skew_minutes: int = 5,
    unpacked_bytes_max: int = 256 << 20,
    sequence_field: str = "",
    sequence_pattern: str = "",
) -> Pipeline:
    """Objects below logs/ to counts, windows and what is new. With `url` the models of that bucket are used."""
    from bucketmq.apps.logs import stages

    reading = stages.Reading(
        url=url,
        skew_seconds=60.0 * skew_minutes,
        unpacked_bytes_max=unpacked_bytes_max,
        key_field=sequence_field,
        key_pattern=stages.checked_pattern(sequence_pattern),
    )
    return stages.counting(reading)


def watching(
    *,
    late_minutes: int = 10,
    quiet_minutes: int = 15,
    silence_minutes: int = 15,
    learning_minutes: int = 60,
    new_pattern_level: str = "warning",
    sequences_learnt: int = 1_000,
) -> Pipeline:
    """Windows to incidents."""
    from bucketmq.apps.logs import detect, stages

    limits = detect.Limits(
        late_minutes=late_minutes,
        quiet_minutes=quiet_minutes,
        silence_minutes=silence_minutes,
        learning_minutes=learning_minutes,
        new_pattern_level=new_pattern_level,
        sequences_learnt=sequences_learnt,
    )
    return stages.watching(limits)


async def keep(here: Here) -> None:
    from bucketmq.apps.logs.keeper import keep as run

    await run(here)


def commands() -> typer.Typer:
    from bucketmq.apps.logs.cli import GROUP

    return GROUP.typer


def demo() -> Callable[..., None]:
    from bucketmq.apps.logs.demo import demo as verb

    return verb


LOGS = App(
    name="logs",
    about="learn the patterns of logs, count them, and open one alert for each incident",
    settings=LogSettings,
    pipelines=(
        LazyPipeline(name=COUNTS, make=counting, about="Count lines by template and minute, and learn templates."),
        LazyPipeline(name=WATCH, make=watching, about="Find spikes, silence, errors and odd sequences."),
    ),
    agents=(
        Agent(name="keeper", run=keep, about="merges templates, opens and resolves alerts, tells people"),
        page_agent(tabs),
    ),
    tabs=tabs(),
    queues=(
        WantedQueue(WINDOWS, "what objects came to, for the detectors", {"keep_seconds": 7 * DAY}),
        WantedQueue(NEWS, "what was learnt, and incidents that began or are over", {"keep_seconds": 7 * DAY}),
        WantedQueue(AUDIT, "who muted what", {"main": False, "keep_seconds": 3660 * DAY}),
    ),
    commands=commands,
    demo=demo,
)
