"""The verb `apps run`: all parts of an application as child processes, or one part in this process."""

from __future__ import annotations

import functools
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from bucketmq import aio
from bucketmq.apps import registry
from bucketmq.apps.app import SPARK, App, Here, Page
from bucketmq.apps.provide import provide
from bucketmq.apps.settings import AppSettings, kept_secret, parse_options, read_settings, words_of
from bucketmq.apps.supervisor import Supervisor
from bucketmq.cli.agent import run_agent, signals
from bucketmq.cli.apps import Name, SettingsFile
from bucketmq.cli.exits import Code
from bucketmq.cli.figures import reported
from bucketmq.cli.options import BucketUrl, Json, open_bucket
from bucketmq.cli.output import answer, emit, emit_text, flush
from bucketmq.cli.worker import log_to_stderr
from bucketmq.client import Bucket
from bucketmq.crew import END_SECONDS
from bucketmq.errors import Invalid, NotFound, Unavailable
from bucketmq.pipeline import FromEvents, FromQueue, Pipeline
from bucketmq.pipeline.ends import FromTable

PARENT_SECONDS = 0.5

CHANGES_AT_ONCE = 100
"""What a pipeline without Spark is given at a time. It gives back what it has no time for."""

Master = Annotated[str | None, typer.Option(metavar="MASTER", help="Where Spark runs. Default: this machine.")]


def run(
    context: typer.Context,
    name: Name,
    *,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="PART", help="Only this part: an agent or a pipeline.")
    ] = None,
    without_spark: Annotated[
        bool, typer.Option("--without-spark", help="Run pipelines in plain Python, without Spark and Java.")
    ] = False,
    once: Annotated[
        bool, typer.Option("--once", help="With --only PIPELINE: do what there is to do, and end.")
    ] = False,
    host: Annotated[str, typer.Option(help="Where agents listen. 0.0.0.0 is everywhere.")] = "127.0.0.1",
    master: Master = None,
    parent: Annotated[int | None, typer.Option(hidden=True, help="End with this process.")] = None,
    settings: SettingsFile = None,
    url: BucketUrl = None,
    as_json: Json = False,
) -> None:
    """Run an application: all of it on this machine, or one part of it.

    Each part is a process of its own; one that dies is started again. The address of the page for people comes first.
    Settings follow by their names, like --port-ingest 0 (bucketmq apps show NAME lists them). SIGTERM and Ctrl-C finish
    what is in hand and end all parts.
    """
    app = registry.get(name)
    given = parse_options(app.settings, context.args)
    options = {**given, **({"url": url} if url else {})}
    found = read_settings(app.settings, app=app.name, options=options, file=settings)
    wanted = _wanted(app, only or [], without_spark=without_spark)
    if len(wanted) == 1 and only:
        if parent is not None:
            _end_with(parent)
        how: dict[str, Any] = {"host": host, "master": master, "without_spark": without_spark, "once": once}
        _run_part(app, wanted[0], found, **how, as_json=as_json)
        return
    if once:
        raise Invalid("--once goes with --only and one pipeline")
    words = [f"--host={host}", *["--without-spark"] * without_spark] + ([f"--master={master}"] if master else [])
    words += [f"--settings={settings}"] if settings else []
    _run_all(app, wanted, found, options, words, as_json=as_json)


def _wanted(app: App, only: list[str], *, without_spark: bool) -> list[str]:
    """The parts to run. All pipelines share one session of Spark, unless they are named, or run without it."""
    odd = next((each for each in only if each not in app.parts), None)
    if odd is not None:
        raise NotFound(f"application {app.name!r} has no part {odd!r}; there are: {', '.join(app.parts)}")
    if only:
        return list(dict.fromkeys(only))
    page = app.page
    agents = sorted((each.name for each in app.agents), key=lambda name: page is None or name != page.name)
    pipelines = [each.name for each in app.pipelines] if without_spark else [SPARK] if app.pipelines else []
    if not pipelines and not agents:
        raise Invalid(f"application {app.name!r} has neither agents nor pipelines, so there is nothing to run")
    return [*pipelines, *agents]


def _run_all(
    app: App, wanted: list[str], settings: AppSettings, options: dict[str, Any], words: list[str], *, as_json: bool
) -> None:
    began = time.monotonic()
    page, options = _page(app, wanted, settings, options)
    if page is not None:
        if as_json:
            emit({"page": page.link})
        else:
            emit_text(f"page  {page.link}")
        flush()

    def tell(part: str, text: str) -> None:
        seconds = time.monotonic() - began
        row = {"seconds": round(seconds, 1), "part": part, "said": text}
        answer(row, f"{seconds:6.1f} s  {part:<10} {text}", as_json=as_json)
        flush()

    shown, hidden = kept_secret(app.settings, options)
    commands = {
        part: ["--json", "apps", "run", app.name, "--only", part, f"--parent={os.getpid()}", *words, *words_of(shown)]
        for part in wanted
    }
    tell(app.name, f"starting {', '.join(wanted)}; stop all with Ctrl-C")
    stop = threading.Event()
    with signals(stop.set) as interrupted, tempfile.TemporaryDirectory(prefix="bucketmq-apps-") as folder:
        environment = {"PYTHONUNBUFFERED": "1", **hidden, **(page.environment if page is not None else {})}
        with Supervisor(commands, folder=Path(folder), environment=environment, tell=tell) as running:

            @functools.cache
            def ready() -> None:
                tell(app.name, f"all parts are ready on {_shown(settings)}")

            def is_over() -> bool:
                if running.ready:
                    ready()
                return stop.is_set()

            running.stay(is_over)
            tell(app.name, "stopping; what is in hand is finished first")
    tell(app.name, "stopped")
    if interrupted():
        raise typer.Exit(Code.INTERRUPTED)


def _shown(settings: AppSettings) -> str:
    from bucketmq.bucket.urls import without_secrets

    return without_secrets(settings.url).partition("?")[0]


def _page(
    app: App, wanted: list[str], settings: AppSettings, options: dict[str, Any]
) -> tuple[Page | None, dict[str, Any]]:
    """The page, whose port is chosen here: its address is told before its agent has started."""
    agent = app.page
    if agent is None or agent.page is None or agent.name not in wanted:
        return None, options
    port = _free(getattr(settings, agent.port), agent.port)
    return agent.page(settings, f"http://127.0.0.1:{port}"), {**options, agent.port: port}


def _free(port: int, name: str) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            flag = f"--{name.replace('_', '-')}"
            raise Unavailable(
                f"port {port} of the page cannot be had: {error.strerror}; choose another: {flag} 0"
            ) from None
        found: int = probe.getsockname()[1]
        return found


def _end_with(parent: int) -> None:
    """Stop as after SIGTERM when the process that started this one is gone, however it went. One that does not stop is
    killed as its supervisor would have done it, with the processes that it started."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(END_SECONDS)
        if os.getpgrp() == os.getpid():  # of its own: see `crew.Member`
            os.killpg(os.getpid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="bucketmq-parent", daemon=True).start()


def _run_part(
    app: App,
    part: str,
    settings: AppSettings,
    *,
    host: str,
    master: str | None,
    without_spark: bool,
    once: bool,
    as_json: bool,
) -> None:
    def ready(address: str = "") -> None:
        text = f"{part} is ready{f' at {address}' if address else ''}; stop it with Ctrl-C"
        answer({"part": part, "url": address}, text, as_json=as_json)
        flush()

    agent = app.agent(part)
    if agent is not None:
        if once:
            raise Invalid(f"{part!r} is an agent, which runs until it is stopped; --once is for pipelines")
        run_of = agent.run

        async def work(bucket: aio.Bucket) -> None:
            await bucket.run(provide(bucket.api, app))
            await run_of(Here(bucket, settings, host=host, ready=ready))

        run_agent(settings.url, work)
        return
    names = [each.name for each in app.pipelines] if part == SPARK else [part]
    pipelines = [app.pipeline(name, settings) for name in names]
    log_to_stderr()
    with open_bucket(settings.url) as bucket:
        bucket.run(provide(bucket.api, app))
        if without_spark:
            _run_without_spark(bucket, pipelines, ready, once=once)
            return
    from bucketmq.cli.pipeline import run_together

    run_together(pipelines, settings.url, master=master, started=ready, once=once)


def _run_without_spark(bucket: Bucket, pipelines: list[Pipeline], ready: Callable[[], None], *, once: bool) -> None:
    if len(pipelines) > 1:
        raise Invalid("without Spark each pipeline is a part of its own: name one with --only")
    (pipeline,) = pipelines
    log = "" if isinstance(pipeline.source, FromTable) else pipeline.source.log
    with reported(bucket, "pipeline", pipeline.name, log, wanted=True):
        _run_one(bucket, pipeline, ready, once=once)


def _run_one(bucket: Bucket, pipeline: Pipeline, ready: Callable[[], None], *, once: bool) -> None:
    match pipeline.source:
        case FromEvents() as source:
            watch = bucket.watch(source.filter, name=pipeline.name, start="beginning", batch=CHANGES_AT_ONCE)
            watch(pipeline.watcher(bucket))
            ready()
            bucket.run_watchers(pipeline.name, stop_when_empty=once)
        case FromQueue() as source:
            reader = bucket.queue(source.queue).subscription(pipeline.name, start="earliest")
            handler = pipeline.watcher(bucket)
            ready()
            reader.run(handler, stop_when_empty=once)
        case _:
            raise Invalid(f"pipeline {pipeline.name!r} reads a table, which needs Spark; leave out --without-spark")
