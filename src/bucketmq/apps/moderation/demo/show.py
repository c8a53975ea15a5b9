"""The demo from beginning to end: start the agents, feed them, kill the router, wait for the end, and count.

What is shown while it runs is the caller's, which gets a `Look` now and then (`on_look`).
"""

from __future__ import annotations

import math
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from bucketmq.apps.moderation.demo.account import Account, add_up, all_settled, counts
from bucketmq.apps.moderation.demo.feed import Feed
from bucketmq.apps.moderation.demo.mailbox import Mailbox
from bucketmq.apps.moderation.demo.posts import samples
from bucketmq.apps.moderation.record import OUTCOMES
from bucketmq.apps.moderation.settings import ModerationSettings
from bucketmq.apps.settings import variables_of
from bucketmq.client import Bucket, connect
from bucketmq.crew import Crew
from bucketmq.errors import BucketMQError, Unavailable

FEED_SECONDS = 20.0
KILL_AT = 0.3
"""The part of the posts that is routed when the router is killed."""
DOWN_SECONDS = 3.0
LOOK_SECONDS = 0.4
GIVE_UP_SECONDS = 240.0
READY_SECONDS = 60.0

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Compile quickly, not well: up to the first verdict the JVM takes 12 seconds of CPU instead of 19, and does not live
long enough to earn them back."""

INGEST, JUDGE, ROUTER, DESK = "ingest", "spark", "router", "desk"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted."""

    url: str
    folder: Path
    """Where logs and the checkpoint go."""
    count: int = 300
    seed: int = 1
    classifier: str = "embedded"
    master: str | None = None


class Look(msgspec.Struct, frozen=True):
    """How it stands right now."""

    seconds: float
    submitted: int
    accepted: int
    objects: dict[str, int]
    notices: int
    states: dict[str, str]
    note: str


class Desk(msgspec.Struct, frozen=True):
    """Where people look."""

    url: str
    token: str

    @property
    def link(self) -> str:
        """With the token behind the #, which browsers do not send."""
        return f"{self.url}/#token={self.token}"


class Show:
    """A run of the demo. Leaving the `with` block ends every process it started."""

    def __init__(self, plan: Plan, on_look: Callable[[Look], None]) -> None:
        self.plan = plan
        self._on_look = on_look
        self._began = time.monotonic()
        self._note = "starting the agents and Spark"
        self._mailbox = Mailbox()
        token = secrets.token_urlsafe(18)
        self._ports = {name: _free_port() for name in (INGEST, DESK)}
        self.desk = Desk(f"http://127.0.0.1:{self._ports[DESK]}", token)
        environment = {
            "BUCKETMQ_URL": plan.url,
            "REVIEW_WEBHOOK_URL": self._mailbox.url,
            "REVIEW_WEBHOOK_FORMAT": "json",
            "DESK_TOKENS": f"demo={token}:reviewer",
        }
        self.crew = crew_of(plan.folder, environment)
        self.bucket: Bucket = connect(plan.url)

    def __enter__(self) -> Show:
        self._mailbox.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.crew.__exit__()
        self._mailbox.__exit__()
        self.bucket.close()

    def run(self) -> Account:
        """Start everything, and wait until every post has its outcome."""
        self._start()
        ingest = f"http://127.0.0.1:{self._ports[INGEST]}"
        self._wait_for(f"{ingest}/healthz")
        feed = Feed(f"{ingest}/submit", list(samples(self.plan.count, seed=self.plan.seed)), FEED_SECONDS)
        feed.start()
        self._note = "posts come in; Spark judges them, the router moves them"
        restart_at: float | None = None
        killed = False
        give_up = time.monotonic() + GIVE_UP_SECONDS
        while True:
            look = self._look(feed)
            routed = sum(look.objects.get(prefix, 0) for prefix in OUTCOMES)
            if not killed and routed >= KILL_AT * self.plan.count:
                self.crew.members[ROUTER].kill()
                killed, restart_at = True, time.monotonic() + DOWN_SECONDS
                self._note = f"the router was killed (SIGKILL) after {routed} posts"
            elif restart_at is not None and time.monotonic() >= restart_at:
                self.crew.members[ROUTER].restart()
                restart_at = None
                self._note = "the router was started again and goes on where it was"
            elif feed.over and restart_at is None and all_settled(self.bucket, feed.told, self._mailbox):
                break
            self._check(give_up)
            time.sleep(LOOK_SECONDS)
        self._note = "counting"
        self._look(feed)
        return add_up(self.bucket, feed.told, self._mailbox)

    def _start(self) -> None:
        checkpoint = str(self.plan.folder / "checkpoint")
        master = ("--master", self.plan.master) if self.plan.master else ()
        judging = ("--classifier", self.plan.classifier, "--checkpoint", checkpoint, "--json", *master)
        jvm = ("--conf", f"spark.driver.extraJavaOptions={QUICK_JVM}") if self.plan.master is None else ()
        self.crew.start(JUDGE, "pipeline", "run", "moderation", *judging, *jvm)
        self.crew.start(INGEST, "moderation", "ingest", "--port", str(self._ports[INGEST]))
        self.crew.start(ROUTER, "moderation", "route")
        self.crew.start(DESK, "moderation", "desk", "--port", str(self._ports[DESK]))

    def _look(self, feed: Feed) -> Look:
        self.crew.look()
        look = Look(
            seconds=time.monotonic() - self._began,
            submitted=len(feed.told.answer_seconds) + feed.told.refused,
            accepted=len(feed.told.accepted),
            objects=counts(self.bucket),
            notices=len(self._mailbox.arrived),
            states={name: each.state for name, each in self.crew.members.items()},
            note=self._note,
        )
        self._on_look(look)
        return look

    def stay(self) -> None:
        """Until Ctrl-C, or one of the processes ends by itself."""
        while True:
            self._check(math.inf)
            time.sleep(LOOK_SECONDS)

    def _check(self, give_up: float) -> None:
        fallen = self.crew.fallen()
        if fallen is not None:
            raise BucketMQError(
                f"{fallen.name} ended by itself: {fallen.last_words()} (all it said is in {fallen.log})"
            )
        if time.monotonic() > give_up:
            raise Unavailable(
                f"not everything was settled after {GIVE_UP_SECONDS:.0f} s; the logs are in {self.plan.folder}"
            )

    def _wait_for(self, url: str) -> None:
        import httpx2

        by = time.monotonic() + READY_SECONDS
        while True:
            try:
                if httpx2.get(url, timeout=2.0).status_code == 200:
                    return
            except httpx2.TransportError:
                pass
            self._check(by)
            time.sleep(0.1)


def crew_of(folder: Path, environment: dict[str, str]) -> Crew:
    """A crew of commands. Variables that are set for real agents are not for these: made-up posts must not go there.
    Claude may judge them, if it is chosen."""
    of_agents = [name for name in variables_of(ModerationSettings) if not name.startswith("ANTHROPIC_")]
    return Crew(folder, {**dict.fromkeys(of_agents, ""), **environment})


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
