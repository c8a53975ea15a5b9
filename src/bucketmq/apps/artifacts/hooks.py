"""What happens on a machine when a release was activated: a command or a webhook, then checks until it is healthy."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from bucketmq.apps.artifacts.commands import run_command, words_of
from bucketmq.procedures.requests import Answer, NoAnswer, Post, Procedure

PAUSE_SECONDS = 0.5
OUTPUT_CHARS_TOLD = 300


class HookPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to run and to ask, and for how long."""

    hook: str = ""
    """A command, run in the folder of the release."""
    webhook: str = ""
    """A URL that is told instead, by POST."""
    health: str = ""
    """A command that ends with 0 once the release works."""
    health_url: str = ""
    """A URL that answers 2xx once the release works."""
    private: bool = False
    """Whether these URLs may be on this machine and private networks."""
    hook_seconds: float = 120.0
    health_seconds: float = 60.0


class Release(msgspec.Struct, frozen=True):
    """A release on this machine."""

    name: str
    version: str
    digest: str
    counter: int
    environment: str
    folder: Path

    @property
    def told(self) -> dict[str, str]:
        """What hooks are given."""
        facts = msgspec.structs.asdict(self)
        facts["path"] = facts.pop("folder")
        return {name: str(value) for name, value in facts.items()}


class Hooks:
    """Runs them. Each method says why it did not work; empty text if it did."""

    def __init__(self, plan: HookPlan, run: Callable[[Procedure[Any]], Any]) -> None:
        self._plan = plan
        self._run = run
        self._hook = words_of(plan.hook, "the hook") if plan.hook else []
        self._health = words_of(plan.health, "the health check") if plan.health else []

    def activated(self, release: Release) -> str:
        """Tell that a release was made the current one."""
        if self._hook:
            return self._command(self._hook, release, self._plan.hook_seconds, "the hook")
        if not self._plan.webhook:
            return ""
        headers = {"content-type": "application/json"}
        body = msgspec.json.encode(release.told)
        post = Post(self._plan.webhook, headers, body, self._plan.hook_seconds, self._plan.private)
        return _answered(self._run(_posted(post)), "the webhook")

    def wait_until_healthy(self, release: Release) -> str:
        """Check again and again until it works, or the time is over."""
        if not (self._health or self._plan.health_url):
            return ""
        deadline = time.monotonic() + self._plan.health_seconds
        while True:
            why = self._check(release, max(0.1, deadline - time.monotonic()))
            if not why or deadline - time.monotonic() <= PAUSE_SECONDS:
                return why
            time.sleep(PAUSE_SECONDS)

    def _check(self, release: Release, seconds: float) -> str:
        if self._health:
            why = self._command(self._health, release, seconds, "the health check")
            if why or not self._plan.health_url:
                return why
        from bucketmq.notify.http import Poster

        with Poster() as poster:
            answer = poster.get(self._plan.health_url, timeout_seconds=seconds, private=self._plan.private)
        return _answered(answer, "the health check")

    def _command(self, words: list[str], release: Release, seconds: float, name: str) -> str:
        told = {f"ARTIFACT_{key.upper()}": value for key, value in release.told.items()}
        ran = run_command(words, folder=release.folder, environment=told, timeout_seconds=seconds, name=name)
        if ran.ok:
            return ""
        return f"{ran.why}: {ran.output[-OUTPUT_CHARS_TOLD:]}" if ran.output else ran.why


def _posted(post: Post) -> Procedure[Answer | NoAnswer]:
    return (yield from post)


def _answered(answer: Answer | NoAnswer, what: str) -> str:
    match answer:
        case NoAnswer(reason):
            return f"{what} did not answer: {reason}"
        case Answer(status) if not 200 <= status < 300:
            return f"{what} answered {status}"
        case _:
            return ""
