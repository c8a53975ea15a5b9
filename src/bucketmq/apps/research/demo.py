"""The demo of research: BucketMQ tunes its own settings, and a worker is killed on the way."""

from __future__ import annotations

import contextlib
import time
from typing import Annotated, Any

import msgspec
import typer

from bucketmq.apps.page import page_of
from bucketmq.apps.research import study
from bucketmq.apps.research.plan import Plan, read_plan, with_version
from bucketmq.apps.research.tune import tuning_plan
from bucketmq.apps.settings import BUCKETMQ_URL
from bucketmq.cli.exits import end
from bucketmq.cli.options import Json
from bucketmq.cli.output import emit, emit_text, flush, say
from bucketmq.client import Bucket, connect
from bucketmq.crew import Crew, Scene, free_port
from bucketmq.server.people import TOKENS_VARIABLE

SECONDS_MAX = 110.0
LOOK_SECONDS = 0.5
WORKERS = ("worker-1", "worker-2")


def waits_plan() -> Plan:
    """How long customers wait: a search by halving for the servers that are enough."""
    raw = {
        "study": "waits",
        "about": "How long do customers wait, by load and number of servers?",
        "simulator": "mmc",
        "parameters": [
            {"name": "load", "low": 0.3, "high": 0.95},
            {"name": "servers", "values": [1, 2, 4, 8]},
        ],
        "fixed": {"customers": 1000},
        "metrics": [{"name": "wait"}, {"name": "waited"}],
        "baseline": {"load": 0.8, "servers": 1},
        "search": {"by": "halving", "points": 18, "keep": 3, "resource_low": 2},
        "seeds": 16,
        "budget": 400,
    }
    return with_version(read_plan(raw), "1")


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave everything running until Ctrl-C.")] = False,
    as_json: Json = False,
) -> None:
    """See research work: two studies on a local folder, two workers of which one is killed, a planner and the page.

    Needs no account and no server. Ends by itself in less than two minutes, with every number of both reports checked.
    Its folder goes with it, unless something failed.
    """
    port = free_port()
    page = page_of((), TOKENS_VARIABLE, f"http://127.0.0.1:{port}")
    began = time.monotonic()
    with Scene("research") as scene:
        environment = {BUCKETMQ_URL: scene.url, "PYTHONUNBUFFERED": "1", **page.environment}
        with connect(scene.url) as bucket, Crew(scene.folder, environment) as crew:
            plans = [waits_plan(), tuning_plan()]
            for plan in plans:
                bucket.run(study.start(bucket.api, plan))
                say(f"{time.monotonic() - began:5.1f} s  study {plan.study} started: {plan.about}")
            for name in (*WORKERS, "planner", "page"):
                _start(crew, name, port)
            killed = _follow(bucket, crew, plans, began)
            problems = [each for plan in plans for each in bucket.run(study.check(bucket.api, plan.study))]
            rows = [bucket.run(study.status(bucket.api, plan.study)) for plan in plans]
            scene.good = killed and not problems and all(row.state == "finished" for row in rows)
            _tell(rows, problems, page.link, scene.url, good=scene.good, keep=keep, as_json=as_json)
            if keep:
                flush()
                with contextlib.suppress(KeyboardInterrupt):
                    while crew.fallen() is None:
                        time.sleep(LOOK_SECONDS)
                        crew.look()
    end(scene)


def _start(crew: Crew, name: str, port: int) -> None:
    part = name.partition("-")[0]
    own = {"worker": ["--slots", "1"], "planner": ["--look-seconds", "1"], "page": ["--port-page", str(port)]}[part]
    crew.start(name, "--json", "apps", "run", "research", "--only", part, *own)


def _follow(bucket: Bucket, crew: Crew, plans: list[Plan], began: float) -> bool:
    """Say how far it is, kill a worker when some results are in, and wait for the reports; whether one was killed."""
    killed, told = False, ""
    while time.monotonic() - began < SECONDS_MAX:
        rows = [bucket.run(study.status(bucket.api, plan.study)) for plan in plans]
        now = "  ".join(f"{row.study} {row.results}/{row.planned} {row.state}" for row in rows)
        if now != told:
            say(f"{time.monotonic() - began:5.1f} s  {now}")
            told = now
        if not killed and sum(row.results for row in rows) >= 10:
            victim = crew.members[WORKERS[0]]
            victim.kill()
            say(f"{time.monotonic() - began:5.1f} s  {victim.name} was killed; its trials go to others")
            victim.restart()
            killed = True
        if all(row.state == "finished" for row in rows):
            return killed
        fallen = crew.fallen()
        if fallen is not None:
            say(f"{fallen.name} ended: {fallen.last_words()}")
            return killed
        time.sleep(LOOK_SECONDS)
        crew.look()
    return killed


def _tell(
    rows: list[study.Status],
    problems: list[str],
    link: str,
    url: str,
    *,
    good: bool,
    keep: bool,
    as_json: bool,
) -> None:
    if as_json:
        row: dict[str, Any] = {"good": good, "studies": msgspec.to_builtins(rows), "problems": problems}
        emit({**row, "page": link} | ({"bucket": url} if keep else {}))
        return
    for each in rows:
        emit_text(f"{each.study:<8} {each.state}: {each.results} results in {each.rounds} rounds; best: {each.best}")
    for problem in problems:
        emit_text(f"REFUSED: {problem}")
    emit_text(
        "every number in both reports is what their results give, though a worker was killed"
        if good
        else "SOMETHING IS WRONG: please report this"
    )
    emit_text(f"page     {link}" + ("" if keep else "   (was; --keep leaves it running)"))
    if keep:
        emit_text(f"bucket   {url}")
        emit_text("Everything goes on running. Ctrl-C ends it.")
