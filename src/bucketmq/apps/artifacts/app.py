"""Artifacts as an application."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bucketmq.apps.app import App
from bucketmq.apps.artifacts.agents import DEPLOY
from bucketmq.apps.artifacts.pages.tabs import page, tabs
from bucketmq.apps.artifacts.settings import ArtifactsSettings
from bucketmq.errors import Unsupported

if TYPE_CHECKING:
    import typer


def commands() -> typer.Typer:
    try:
        from bucketmq.apps.artifacts.cli import GROUP
    except ModuleNotFoundError as error:
        raise Unsupported(f"this needs the package {error.name}; run: pip install 'bucketmq[artifacts]'") from None
    return GROUP.typer


def demo() -> Callable[..., None]:
    from bucketmq.apps.artifacts.demo import demo as verb

    return verb


ARTIFACTS = App(
    name="artifacts",
    about="what builds made: signed, promoted from environment to environment, deployed, rolled back",
    settings=ArtifactsSettings,
    agents=(page, DEPLOY),
    tabs=tabs(),
    commands=commands,
    demo=demo,
)
