"""An application as somebody else would publish it: a module and a pyproject, installed for real."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PYPROJECT = """
[project]
name = "example-wordcount"
version = "1.2"

[project.entry-points."bucketmq.apps"]
{name} = "{module}:{attribute}"

[tool.setuptools]
py-modules = ["{module}"]
"""

MODULE = '''
"""Counts the words of notes, and keeps the longest ones in a list."""

from importlib.resources import files
from typing import Annotated

import typer
from msgspec import Meta

from bucketmq.apps.app import Agent, App, WantedQueue, WantedRule, watching
from bucketmq.apps.settings import SECRET, AppSettings, Variable
from bucketmq.dashboard.tab import Tab
from bucketmq.pipeline import FromEvents, FromQueue, Pipeline, ToObjects, ToQueue, stage


class WordcountSettings(AppSettings, frozen=True, kw_only=True):
    long_from: Annotated[int, Meta(ge=1, description="so many words are long"), Variable("WORDCOUNT_LONG_FROM")] = 3
    token: Annotated[str | None, Variable("WORDCOUNT_TOKEN"), SECRET] = None


@stage(takes="key string, content string", gives="key string, words int")
def count(batch):
    texts = batch.column("content").to_pylist()
    return {"key": batch.column("key"), "words": [len(text.split()) for text in texts]}


counting = Pipeline(
    name="counting",
    source=FromEvents(filter='WHERE `key` LIKE "notes/%" AND kind != "deleted"', content="text"),
    stages=(count,),
    target=ToObjects(template="counts/{+key}.json"),
)


listing = Pipeline(
    name="listing", source=FromQueue("lines", "text string"), target=ToQueue(queue="listed", body="text", text=True)
)


def watch(bucket, settings):
    @bucket.watch('WHERE `key` LIKE "counts/%"', name="wordcount-long", start="beginning")
    async def long(change):
        if (await change.json())["words"] >= settings.long_from:
            await bucket.queue("long-notes").send(change.key)


def commands():
    verbs = typer.Typer(help="Words of notes.")

    @verbs.command()
    def hello(name: str = "you"):
        """Greet."""
        print("hello", name)

    @verbs.command()
    def twice(word: str):
        """Say a word twice."""
        print(word, word)

    return verbs


def demo():
    def run(count: int = 3):
        print("counted", count)

    return run


WORDCOUNT = App(
    name="wordcount",
    about="count the words of notes",
    settings=WordcountSettings,
    pipelines=(counting, listing),
    agents=(Agent(name="long", run=watching(watch), about="lists long notes"),),
    queues=(WantedQueue("long-notes", "keys of long notes", {"lease_seconds": 20.0}),),
    rules=(WantedRule(name="wordcount-all", filter='WHERE `key` LIKE "counts/%"', to="queue:all-counts"),),
    tabs=(Tab("words", "Words", static=files("bucketmq.dashboard") / "static", script="words.js"),),
    commands=commands,
    demo=demo,
)
NOT_AN_APP = 7
'''


def install(
    folder: Path,
    *,
    name: str = "wordcount",
    module: str = "wordcount",
    attribute: str = "WORDCOUNT",
    text: str = MODULE,
) -> Path:
    """Build and install it with pip, from a folder, as a user does; returns what belongs into the Python path."""
    source, site = folder / f"{module}-source", folder / "site"
    source.mkdir()
    (source / "pyproject.toml").write_text(PYPROJECT.format(name=name, module=module, attribute=attribute))
    (source / f"{module}.py").write_text(text)
    offline = ("--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *offline, f"--target={site}", str(source)], check=True, timeout=110
    )
    return site
