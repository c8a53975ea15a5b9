"""An application as a value: what belongs together and is run together. Importing one is cheap.

`App` says what there is; nothing happens when it is made. Whatever is heavy (a model, PySpark, a web framework, verbs)
is imported inside the functions that are named here, when they are called. How an application is found is `registry`,
what must be in the bucket for it is `provide`, how one of its parts runs is `parts`.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from bucketmq.apps.settings import AppSettings
from bucketmq.errors import Invalid, NotFound
from bucketmq.queue.settings import check_name

if TYPE_CHECKING:
    import typer

    from bucketmq import aio
    from bucketmq.dashboard.tab import Tab
    from bucketmq.pipeline import Pipeline

SPARK = "spark"
"""The part that runs all pipelines of an application in one session of Spark."""


class Here:
    """What an agent is handed: the bucket, its settings, and a way to say that it is ready."""

    def __init__(
        self,
        bucket: aio.Bucket,
        settings: Any,
        *,
        host: str = "127.0.0.1",
        ready: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.bucket = bucket
        self.settings = settings
        self.host = host
        self.ready = ready
        """Told the address when the agent listens, or "" when it works without one."""

    async def stopped(self) -> None:
        """Wait until SIGTERM or SIGINT."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await stop.wait()


Run = Callable[[Here], Awaitable[None]]


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """A program of the application that watches the bucket or serves HTTP, here or on any number of machines.

    `run` works until SIGTERM or SIGINT, then finishes what it has in hand. `watching` and `serving` make one.
    """

    name: str
    run: Run
    about: str = ""
    port: str = ""
    """The setting that says on which port it listens, if it does."""
    page: Callable[[Any, str], Page] | None = None
    """For the one that serves the page that people open: the page, by settings and address."""


class Page(msgspec.Struct, frozen=True):
    """What people open in a browser."""

    link: str
    """With a token behind the `#`, which browsers do not send, if one was made for this run."""
    environment: dict[str, str] = {}
    """What its agent needs in the environment for that."""


def watching(register: Callable[[aio.Bucket, Any], None]) -> Run:
    """The `run` of an agent that only watches: `register(bucket, settings)` decorates handlers with `@bucket.watch`."""

    async def run(here: Here) -> None:
        register(here.bucket, here.settings)
        here.ready("")
        await here.bucket.run_watchers()

    return run


def serving(make: Callable[[aio.Bucket, Any], Any], *, port: str) -> Run:
    """The `run` of an agent that serves HTTP: `make(bucket, settings)` gives a FastAPI app, `port` names the setting.

    It listens on this machine alone unless `--host` says otherwise. Who may call is for the app to check.
    """

    async def run(here: Here) -> None:
        from bucketmq.server.run import listen, server_of

        await here.bucket.open()
        with listen(here.host, getattr(here.settings, port)) as listener:
            await server_of(make(here.bucket, here.settings), STOP_SECONDS, here.ready).serve(sockets=[listener])

    return run


STOP_SECONDS = 10.0
"""How long requests in flight may take when a served agent is asked to stop."""


class LazyPipeline(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline that is made when it is wanted, where importing it is not cheap or it depends on settings.

    The keyword arguments of `make` are given the settings of the same names; they are options of
    `bucketmq pipeline run`, too.
    """

    name: str
    make: Callable[..., Pipeline]
    about: str = ""


class WantedQueue(msgspec.Struct, frozen=True):
    """A queue that must exist. One that is there is left as it was tuned."""

    name: str
    about: str = ""
    settings: dict[str, Any] = {}


class WantedRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that must exist as it is said here, with the options of `bucket.rules.add`. One that somebody paused stays
    so."""

    name: str
    to: str
    filter: str = ""
    about: str = ""
    options: dict[str, Any] = {}


class App(msgspec.Struct, frozen=True, kw_only=True):
    """An application. `bucketmq apps run NAME` runs all of it on one machine, `--only PART` one part of it.

    `commands` gives the Typer app of its verbs, `bucketmq NAME ...`; `demo` the function behind `bucketmq apps demo
    NAME`: functions that import what they give. `tabs` are what it adds to the dashboard; their routes are imported
    when one is served.
    """

    name: str
    about: str
    settings: type[AppSettings] = AppSettings
    pipelines: tuple[Pipeline | LazyPipeline, ...] = ()
    agents: tuple[Agent, ...] = ()
    rules: tuple[WantedRule, ...] = ()
    queues: tuple[WantedQueue, ...] = ()
    tabs: tuple[Tab, ...] = ()
    commands: Callable[[], typer.Typer] | None = None
    demo: Callable[[], Callable[..., None]] | None = None

    def __post_init__(self) -> None:
        check_name(self.name, "application name")
        if not issubclass(self.settings, AppSettings):
            raise Invalid(f"application {self.name!r}: its settings must be a struct made of AppSettings")
        names = [SPARK, *(each.name for each in (*self.pipelines, *self.agents))]
        for agent in self.agents:
            if agent.port and not hasattr(self.settings, agent.port):
                raise Invalid(
                    f"agent {agent.name!r} of {self.name!r} listens on {agent.port!r}, which is not a setting"
                )
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise Invalid(
                f"application {self.name!r} has two parts named {twice!r}; choose another name for one of them"
            )

    @property
    def page(self) -> Agent | None:
        """The agent that serves the page, if one does."""
        return next((each for each in self.agents if each.page is not None), None)

    @property
    def parts(self) -> list[str]:
        """What `--only` may name."""
        return [*(each.name for each in (*self.agents, *self.pipelines)), *([SPARK] if self.pipelines else [])]

    def agent(self, name: str) -> Agent | None:
        return next((each for each in self.agents if each.name == name), None)

    def pipeline(self, name: str, settings: AppSettings | None = None) -> Pipeline:
        """A pipeline by its name, made with these settings, or as it is by default."""
        for each in self.pipelines:
            if each.name == name:
                return made(each, settings)
        there = ", ".join(each.name for each in self.pipelines) or "none"
        raise NotFound(f"application {self.name!r} has no pipeline {name!r}; there are: {there}")

    def with_stage(self, stage: str, settings: AppSettings | None = None) -> Pipeline:
        """The pipeline that a stage belongs to; the pipeline's own name will do."""
        found = [made(each, settings) for each in self.pipelines]
        for pipeline in found:
            if pipeline.name == stage:
                return pipeline
        having = [each for each in found if stage in (one.name for one in each.stages)]
        if len(having) == 1:
            return having[0]
        if having:
            names = ", ".join(each.name for each in having)
            raise Invalid(f"several pipelines have a stage {stage!r}; name one of them instead: {names}")
        there = ", ".join(f"{one.name} (of {each.name})" for each in found for one in each.stages) or "none"
        raise NotFound(f"application {self.name!r} has no stage {stage!r}; there are: {there}")


def made(pipeline: Pipeline | LazyPipeline, settings: AppSettings | None = None) -> Pipeline:
    """The pipeline itself. What its maker can be told and the settings say, it is told."""
    if not isinstance(pipeline, LazyPipeline):
        return pipeline
    wanted = inspect.signature(pipeline.make).parameters
    given = {} if settings is None else {name: getattr(settings, name) for name in wanted if hasattr(settings, name)}
    unmet = [name for name, each in wanted.items() if name not in given and each.default is each.empty]
    if unmet:
        raise Invalid(f"the pipeline {pipeline.name!r} of an application needs {unmet[0]!r}, which no setting says")
    found = pipeline.make(**given)
    if found.name != pipeline.name:
        raise Invalid(f"the pipeline {pipeline.name!r} of an application calls itself {found.name!r}; use one name")
    return found
