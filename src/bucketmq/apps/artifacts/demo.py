"""The demo: a made-up shop is published, tampered with, deployed, promoted and rolled back, on a local folder.

Two deploy agents and the page are processes of their own; the staging agent is killed on the way. Each step says what
happened, and the demo fails if one of them did not come out as it must.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from bucketmq.apps.artifacts import environments, overview, promotion, trusting, verify
from bucketmq.apps.artifacts import publish as publishing
from bucketmq.apps.artifacts.environments import Report
from bucketmq.apps.artifacts.keyfiles import make_key, public_text
from bucketmq.apps.artifacts.keys import ROLES, Environment, Trust, TrustedKey
from bucketmq.apps.artifacts.promotion import Promoter
from bucketmq.apps.artifacts.refusals import Gated, Untrusted
from bucketmq.apps.artifacts.settings import KEY_VARIABLE, TRUST_VARIABLE
from bucketmq.cli.exits import end
from bucketmq.cli.options import Json
from bucketmq.cli.output import emit, emit_text, flush
from bucketmq.client import Bucket, connect
from bucketmq.crew import Crew, Scene, free_port
from bucketmq.errors import BucketMQError, Contended, Unavailable
from bucketmq.server.people import TOKENS_VARIABLE

NAME = "shop"
WAIT_SECONDS = 40.0
LOOK_SECONDS = 0.1


class Step(msgspec.Struct, frozen=True):
    """What happened, and whether it should have."""

    seconds: float
    text: str
    good: bool = True


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the agents and the page running until Ctrl-C.")] = False,
    as_json: Json = False,
) -> None:
    """See artifacts work: publish, tamper (refused), deploy to staging, promote to production, roll back.

    Needs no account and no server, and ends by itself in under a minute; exits with 1 if a step did not come out as it
    must. Its folder goes with it, unless something failed.
    """

    def tell(step: Step) -> None:
        if as_json:
            emit(step)
        else:
            emit_text(f"{step.seconds:5.1f} s  {'' if step.good else 'WRONG: '}{step.text}")
        flush()

    with Scene("artifacts") as scene, Show(scene.folder, tell) as show:
        scene.good = all(each.good for each in show.run())
        if as_json:
            emit({"good": scene.good, "page": show.link if keep else show.address})
        else:
            emit_text("")
            emit_text("every step came out as it must" if scene.good else "SOMETHING IS WRONG: please report this")
            emit_text(f"page  {show.link}" if keep else f"The page was at {show.address}; --keep leaves it running.")
        flush()
        if keep:
            with contextlib.suppress(KeyboardInterrupt):
                show.stay()
    end(scene)


class Show:
    """A run of the demo. Leaving the `with` block ends every process that it started."""

    def __init__(self, folder: Path, tell: Callable[[Step], None]) -> None:
        self._folder = folder
        self._tell = tell
        self._began = time.monotonic()
        self._steps: list[Step] = []
        url = f"file://{folder}/bucket"
        self._bucket: Bucket = connect(url)
        self._ada, self._ben = make_key(folder / "ada.key"), make_key(folder / "ben.key")
        self._token = secrets.token_urlsafe(18)
        self._port = free_port()
        self.address = f"http://127.0.0.1:{self._port}"
        self._crew = Crew(
            folder,
            {
                "BUCKETMQ_URL": url,
                TRUST_VARIABLE: str(folder / "trust.json"),
                KEY_VARIABLE: str(folder / "ada.key"),
                TOKENS_VARIABLE: f"ada={self._token}:operate",
            },
        )

    @property
    def link(self) -> str:
        return f"{self.address}/#token={self._token}"

    def __enter__(self) -> Show:
        return self

    def __exit__(self, *_: object) -> None:
        self._crew.__exit__()
        self._bucket.close()

    def stay(self) -> None:
        while self._crew.fallen() is None:
            time.sleep(LOOK_SECONDS)

    def run(self) -> list[Step]:
        trust = self._trust()
        self._start()
        self._publish("1.0", {"app.py": b"print('shop 1.0')\n", "data/prices.csv": b"tea,3\ncake,4\n"})
        self._publish(
            "1.1", {"app.py": b"print('shop 1.1')\n", "data/prices.csv": b"tea,3\ncake,5\n", "NEWS": b"Cake.\n"}
        )
        self._tamper(trust)
        self._to_staging(trust, "1.0")
        self._to_production(trust, "1.0")
        self._kill_the_agent(trust)
        self._to_production(trust, "1.1")
        self._race(trust)
        self._replay(trust)
        self._back(trust)
        self._wait_for_page()
        return self._steps

    def _say(self, text: str, *, good: bool = True) -> None:
        step = Step(round(time.monotonic() - self._began, 1), text, good)
        self._steps.append(step)
        self._tell(step)

    def _trust(self) -> Trust:
        """Ada builds and promotes, Ben approves; production comes after staging."""
        keys = (
            TrustedKey("ada", public_text(self._ada), ROLES),
            TrustedKey("ben", public_text(self._ben), ("approves",)),
        )
        wanted = trusting.TrustFile(keys, (Environment("staging"), Environment("production", "staging", approvals=1)))
        trust, body = self._bucket.run(trusting.publish_trust(self._bucket.api, wanted, (self._ada,), None))
        (self._folder / "trust.json").write_bytes(body)
        self._say("two keys are trusted; production comes after staging and needs an approval")
        return trust

    def _start(self) -> None:
        self._crew.start("page", "apps", "run", "artifacts", "--only", "page", "--port-page", str(self._port))
        for environment in ("staging", "production"):
            self._crew.start(
                environment,
                *("apps", "run", "artifacts", "--only", "deploy", "--environment", environment),
                *("--agent", f"{environment}-1", "--folder", str(self._folder / environment), "--look-seconds", "2"),
                *("--hook", f"{sys.executable} app.py", "--health", "test -s data/prices.csv"),
            )

    def _publish(self, version: str, files: dict[str, bytes]) -> None:
        here = self._folder / "dist" / version
        for path, body in files.items():
            (here / path).parent.mkdir(parents=True, exist_ok=True)
            (here / path).write_bytes(body)
        sources = publishing.sources_of([here])
        work = publishing.publish(self._bucket.api, NAME, version, sources, (self._ada,), commit=f"c0ffee{version}")
        made = self._bucket.run(work)
        self._say(f"published {NAME} {version}: {len(files)} files, signed by ada, {made.digest[:12]}")

    def _tamper(self, trust: Trust) -> None:
        path = self._folder / "bucket" / "builds" / NAME / "1.1" / "data" / "prices.csv"
        right = path.read_bytes()
        path.write_bytes(right.replace(b"cake,5", b"cake,1"))
        try:
            self._bucket.run(verify.verify(self._bucket.api, trust, NAME, "1.1"))
            self._say("a changed byte was not noticed", good=False)
        except Untrusted:
            self._say("somebody changed a byte of 1.1 in the bucket: refused, 'data/prices.csv' has other bytes")
        path.write_bytes(right)

    def _promote(self, trust: Trust, version: str, environment: str) -> None:
        promoter = Promoter((self._ada,), why="the demo")
        self._bucket.run(promotion.promote(self._bucket.api, trust, NAME, version, environment, promoter=promoter))

    def _to_staging(self, trust: Trust, version: str) -> None:
        try:
            self._promote(trust, version, "production")
            self._say("production was reached past staging", good=False)
        except Gated:
            self._say(f"{version} to production: refused, staging does not have it and nobody approved")
        self._promote(trust, version, "staging")
        self._deployed(trust, "staging", version)

    def _to_production(self, trust: Trust, version: str) -> None:
        approve = promotion.approve(self._bucket.api, trust, NAME, version, "production", signing=self._ben)
        self._bucket.run(approve)
        self._promote(trust, version, "production")
        self._say(
            f"ben approved, ada promoted {version} to production: copied inside the store, checked after the copy"
        )
        self._deployed(trust, "production", version)

    def _kill_the_agent(self, trust: Trust) -> None:
        self._crew.members["staging"].kill()
        self._promote(trust, "1.1", "staging")
        self._say("the agent of staging was killed (SIGKILL); 1.1 was promoted there meanwhile")
        self._crew.members["staging"].restart()
        self._deployed(trust, "staging", "1.1")

    def _race(self, trust: Trust) -> None:
        """Two people decide on the same state; the second comes too late."""
        opened = self._bucket.run(self._bucket.api.open())
        seen = self._bucket.run(environments.read_pointer(opened, trust, "staging", NAME))
        assert seen is not None
        again = environments.after(
            seen.pointer, trust.environment("staging"), NAME, self._next(seen.pointer.current), self._bucket.now_seconds
        )
        self._bucket.run(environments.write_pointer(opened, again, (self._ada,), seen.version))
        try:
            self._bucket.run(environments.write_pointer(opened, again, (self._ada,), seen.version))
            self._say("two promoters won", good=False)
        except Contended:
            self._say("two promoters looked at the same pointer: one won, the other was told")
        self._deployed(trust, "staging", "1.1")

    def _next(self, current: environments.State) -> environments.State:
        return msgspec.structs.replace(current, counter=current.counter + 1, id=secrets.token_hex(8), did="refreshed")

    def _replay(self, trust: Trust) -> None:
        """Put the pointer of an earlier day back, as somebody might who can write to the bucket."""
        path = self._folder / "bucket" / "env" / "production" / f"{NAME}.json"
        right = path.read_bytes()
        work = promotion.refresh(self._bucket.api, trust, NAME, "production", promoter=Promoter((self._ada,)))
        self._bucket.run(work)
        self._deployed(trust, "production", "1.1")
        new = path.read_bytes()
        path.write_bytes(right)
        self._wait(trust, "production", lambda report: report.state == "refused")
        self._say("somebody put an old pointer back: the agent remembers a higher counter, and refuses it")
        path.write_bytes(new)
        self._wait(trust, "production", lambda report: report.state == "healthy")

    def _back(self, trust: Trust) -> None:
        promoter = Promoter((self._ada,), why="cake is too dear")
        done = self._bucket.run(promotion.rollback(self._bucket.api, trust, NAME, "production", promoter=promoter))
        self._say(
            f"ada rolled production back to {done.pointer.current.version}, counter {done.pointer.current.counter}"
        )
        self._deployed(trust, "production", "1.0")
        cells = self._bucket.run(overview.overview(self._bucket.api, trust))
        where = ", ".join(f"{each.environment} {each.current.version}" for each in cells if each.current is not None)
        self._say(f"now: {where}", good=where == "staging 1.1, production 1.0")

    def _deployed(self, trust: Trust, environment: str, version: str) -> None:
        """Wait until the agent says so, and the files are there."""
        report = self._wait(trust, environment, lambda report: report.state == "healthy" and report.version == version)
        there = (self._folder / environment / NAME / "current" / "app.py").read_text()
        self._say(f"{environment}: {version} verified, fetched, hook and health check passed", good=version in there)
        assert report.environment == environment

    def _wait(self, trust: Trust, environment: str, holds: Callable[[Report], bool]) -> Report:
        opened = self._bucket.run(self._bucket.api.open())
        give_up = time.monotonic() + WAIT_SECONDS
        while True:
            pointed = self._bucket.run(environments.read_pointer(opened, trust, environment, NAME))
            for report in self._bucket.run(environments.read_reports(opened, trust, environment, NAME)):
                current = report.state == "refused" or (
                    pointed is not None and report.counter == pointed.pointer.current.counter
                )
                if current and holds(report):
                    return report
            fallen = self._crew.fallen()
            if fallen is not None:
                raise BucketMQError(f"{fallen.name} ended by itself: {fallen.last_words()}")
            if time.monotonic() > give_up:
                raise Unavailable(
                    f"{environment} did not report in {WAIT_SECONDS:.0f} s; the logs are in {self._folder}"
                )
            time.sleep(LOOK_SECONDS)

    def _wait_for_page(self) -> None:
        give_up = time.monotonic() + WAIT_SECONDS
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), timeout=1.0):
                return
            if self._crew.fallen() is not None or time.monotonic() > give_up:
                raise Unavailable(f"the page did not begin; its log is in {self._folder}")
            time.sleep(LOOK_SECONDS)
