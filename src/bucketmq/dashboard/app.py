"""The dashboard as an ASGI app: the page's files, the login, and a router for each tab. Thin: each route calls a part.

Everything but the page's files, the login and health needs somebody who is known. Every change is judged and noted by
`server.gate`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import msgspec
from fastapi import FastAPI, Request, Response

from bucketmq import __version__, aio
from bucketmq.dashboard import charts, dead, overview, pipelines, queues, rules
from bucketmq.dashboard.programs import Programs
from bucketmq.dashboard.site import Site, json_answer, read_struct
from bucketmq.dashboard.survey import Survey
from bucketmq.dashboard.tab import MEDIA_TYPES, Tab, files_of, media_type
from bucketmq.errors import Invalid
from bucketmq.metrics.counts import Counts
from bucketmq.metrics.families import build_info, page
from bucketmq.metrics.push import pushed
from bucketmq.server.app import bare_app
from bucketmq.server.gate import Gate, GateSettings
from bucketmq.server.people import ROLES
from bucketmq.server.run import Listening, listen, server_of
from bucketmq.server.session import Session, Sessions
from bucketmq.server.wire import Receive, Refusal, Scope, Send

if TYPE_CHECKING:
    from prometheus_client import Metric

PORT_DEFAULT = 8090
LOGIN_BYTES_MAX = 8 << 10
STOP_SECONDS = 10.0

GUARDS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "frame-ancestors 'none'; base-uri 'self'; form-action 'self'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}

OWN = ("overview", "queues", "rules", "pipelines", "dead")
"""The page's own tabs; no other may have one of these names."""

STATIC = files(__package__).joinpath("static")


class Login(msgspec.Struct, forbid_unknown_fields=True):
    token: str


class Dashboard:
    """One dashboard: its site, and what it knows of the bucket."""

    def __init__(
        self,
        bucket: aio.Bucket,
        settings: GateSettings,
        tabs: Sequence[Tab],
        sessions: Sessions | None,
        *,
        samples: bool,
    ) -> None:
        self.site = Site(bucket, Gate(bucket, settings, sessions=sessions))
        self.counts = Counts()
        bucket.observe(self.counts)
        self.survey = Survey(bucket)
        self.rulebook = rules.Rulebook(bucket, self.survey)
        self.programs = Programs(bucket)
        self.charts = charts.Charts(bucket, self.survey, self.programs)
        self.samples = samples
        self.tabs = tuple(tabs)

    @property
    def gate(self) -> Gate:
        return self.site.gate

    def families(self) -> Iterator[Metric]:
        """The figures of this process, and of the queues as they were last seen; no request."""
        yield build_info()
        yield from self.counts.families()
        yield from self.queue_families()

    def queue_families(self) -> Iterator[Metric]:
        """Those of the queues alone. Whoever reads them looks: figures are taken each minute from then on."""
        self.charts.look()
        return self.survey.families()

    @contextlib.asynccontextmanager
    async def lifespan(self, _app: FastAPI) -> AsyncIterator[None]:
        await self.site.bucket.open()
        try:
            if self.samples:
                async with self.programs.reporting(), charts.in_the_background(self.charts):
                    yield
            else:
                yield
        finally:
            await self.site.close()


def make_app(
    bucket: aio.Bucket,
    settings: GateSettings,
    *,
    tabs: Sequence[Tab] = (),
    sessions: Sessions | None = None,
    samples: bool = False,
) -> FastAPI:
    """The app for one bucket, which the caller closes when the app has ended. `tabs` are an application's; with
    `samples` figures over time are kept in the bucket."""
    made = Dashboard(bucket, settings, tabs, sessions, samples=samples)
    about = "What is ready, in flight, delayed and dead in a bucket, and what to do about it."
    app = bare_app("BucketMQ: dashboard", about, made.lifespan)
    app.state.dashboard = made
    app.state.families = made.queue_families
    """For a server that has this one beside it, and counts requests itself."""
    app.state.figures = made.families
    _add_metrics(app, made)
    app.add_middleware(Guarded)
    _add_files(app, made.tabs)
    _add_login(app, made)
    app.include_router(overview.routes(made.site, made.survey, made.rulebook, made.programs))
    app.include_router(charts.routes(made.site, made.charts))
    app.include_router(queues.routes(made.site, made.survey))
    app.include_router(rules.routes(made.site, made.rulebook))
    app.include_router(dead.routes(made.site, made.survey))
    app.include_router(pipelines.routes(made.site, made.programs, made.survey))
    for tab in made.tabs:
        if tab.routes is not None:
            app.include_router(tab.routes(made.site), prefix=f"/api/{tab.name}")
    return app


class Guarded:
    """Puts the headers on every answer that keep the page to itself."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                have = {name.lower() for name, _ in message["headers"]}
                more = [(name.encode(), value.encode()) for name, value in GUARDS.items() if name.encode() not in have]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        await self._app(scope, receive, guarded)


def _add_files(app: FastAPI, tabs: Sequence[Tab]) -> None:
    """The page. Its files are read once, so no path can lead elsewhere."""
    names = [tab.name for tab in tabs]
    if len(set(names)) < len(names) or set(names) & set(OWN):
        raise Invalid(f"two tabs have the same name: {', '.join(sorted(names))}")
    static = {"": files_of(STATIC), **{tab.name: files_of(tab.static) for tab in tabs if tab.static is not None}}
    for tab in tabs:
        missing = {tab.script, tab.style} - {""} - set(static.get(tab.name, {}))
        if missing:
            raise Invalid(f"the folder of tab {tab.name!r} has no {', '.join(sorted(missing))}")

    def found(tab: str, name: str) -> Response:
        if name not in static.get(tab, {}):
            raise Refusal(404, "there is no such file")
        return Response(static[tab][name], media_type=media_type(name))

    @app.get("/")
    async def page() -> Response:
        return Response(static[""]["index.html"], media_type=MEDIA_TYPES["html"])

    @app.get("/static/{name}")
    async def file(name: str) -> Response:
        return found("", name)

    @app.get("/tabs/{tab}/{name}")
    async def file_of_tab(tab: str, name: str) -> Response:
        return found(tab, name)

    @app.get("/healthz")
    async def healthz() -> Response:
        return json_answer({"status": "ok"})


def _add_metrics(app: FastAPI, made: Dashboard) -> None:
    """For Prometheus, which shows its token in a header. Made of what is known: a scrape costs the bucket nothing."""

    @app.get("/metrics")
    async def show(request: Request) -> Response:
        caller = made.site.looker(request)
        if "*" not in caller.queues:
            raise Refusal(403, "the metrics are of all queues", "use a token without a scope")
        text, content_type = page(made.families, request.headers.get("accept", ""))
        return Response(text, headers={"content-type": content_type})


def _add_login(app: FastAPI, made: Dashboard) -> None:
    gate = made.gate

    def about(session: Session) -> dict[str, Any]:
        caller = session.caller
        return {
            "name": caller.name,
            "roles": caller.roles,
            "may": [role for role in ROLES if caller.may(role)],
            "csrf": gate.sessions.csrf(session),
            "bucket": made.site.bucket.api.where,
            "tabs": [
                {
                    "name": tab.name,
                    "title": tab.title,
                    "script": f"/tabs/{tab.name}/{tab.script}",
                    "style": f"/tabs/{tab.name}/{tab.style}" if tab.style else None,
                    "keys": tab.keys,
                }
                for tab in made.tabs
            ],
            "version": __version__,
        }

    @app.post("/api/login")
    async def login(request: Request) -> Response:
        gate.begin_login(request.scope)
        given = await read_struct(request, Login, bytes_max=LOGIN_BYTES_MAX)
        session = gate.login(given.token, request.scope)
        answer = json_answer(about(session))
        _set_cookie(answer, request, gate, gate.sessions.write(session), int(gate.sessions.seconds))
        return answer

    @app.post("/api/logout")
    async def logout(request: Request) -> Response:
        gate.logout(request.scope)
        answer = json_answer({"status": "ok"})
        _set_cookie(answer, request, gate, "", 0)
        return answer

    @app.get("/api/session")
    async def session(request: Request) -> Response:
        """Who is logged in, perhaps nobody: an ordinary answer, which no browser counts as an error."""
        try:
            return json_answer(about(gate.session(request.scope)))
        except Refusal:
            return json_answer({"name": None})


def _set_cookie(answer: Response, request: Request, gate: Gate, value: str, seconds: int) -> None:
    answer.set_cookie(
        gate.cookie_name(request.scope),
        value,
        max_age=seconds,
        path="/",
        httponly=True,
        samesite="strict",
        secure=gate.settings.https,
    )


async def serve(
    bucket: aio.Bucket,
    settings: GateSettings,
    *,
    tabs: Sequence[Tab] = (),
    host: str = "127.0.0.1",
    port: int = PORT_DEFAULT,
    listening: Listening = lambda _: None,
    samples: bool = False,
    otlp: str | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then finish what is in flight. Closing the bucket is the caller's. Figures are
    also sent to the collector at `otlp`, if there is one."""
    app = make_app(bucket, settings, tabs=tabs, samples=samples)
    await bucket.open()
    with listen(host, port) as listener, pushed(app.state.figures, otlp):
        server = server_of(app, STOP_SECONDS, listening, proxies=app.state.dashboard.gate.proxies)
        await server.serve(sockets=[listener])
