"""The server as an ASGI app: receivers, health, metrics and the OpenAPI page. Thin: each route calls a part.

The rules of the bucket run inside its lifespan, and so do sweeps and the watch over a folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterator
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Depends, FastAPI, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from fastapi.security import HTTPBasic, HTTPBearer
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from bucketmq import __version__, aio
from bucketmq.errors import BucketMQError
from bucketmq.events.parse import SOURCES
from bucketmq.metrics.counts import Counts
from bucketmq.metrics.families import OTHER, Families, page
from bucketmq.metrics.standing import Standing
from bucketmq.server import metrics
from bucketmq.server.access import Guard
from bucketmq.server.background import Background
from bucketmq.server.callers import proxies_of
from bucketmq.server.metrics import Counters
from bucketmq.server.place import ask
from bucketmq.server.receive import Receiver, unavailable
from bucketmq.server.settings import ServerSettings, check_settings
from bucketmq.server.wire import (
    Receive,
    Refusal,
    Scope,
    Send,
    Unambiguous,
    check_content,
    headers_of,
    leaves_unread,
    loggable,
    refuse,
)

if TYPE_CHECKING:
    from prometheus_client import Metric

READY_SECONDS = 5.0
"""How long an answer about the bucket is good for: anybody may ask, and asking costs a request."""

ALLOWED_RATE_PER_MINUTE = 6_000

SWAGGER_SCRIPT, SWAGGER_STYLE = "swagger-ui-bundle.js", "swagger-ui.css"
SWAGGER_TYPES = {SWAGGER_SCRIPT: "text/javascript; charset=utf-8", SWAGGER_STYLE: "text/css; charset=utf-8"}

Lifespan = Callable[[FastAPI], contextlib.AbstractAsyncContextManager[None]]
"""What goes on while an app runs."""

_ORIGIN = re.compile(r"[A-Za-z0-9.:_\[\]-]{1,253}\Z")

logger = logging.getLogger("bucketmq")

Source = Literal[
    "auto", "tigris", "s3", "minio", "ceph", "seaweedfs", "eventbridge", "sns", "gcs", "azure", "r2", "cloudevents"
]
SOURCE_FIELD = ["path", "source"]
SourcePath = Annotated[Source, Path(description="Who sends. `auto` goes by the headers and the shape of the body.")]


class BadItem(BaseModel):
    index: int
    reason: str


class Taken(BaseModel):
    """What became of a notification's items; or the answer to a handshake."""

    accepted: int | None = None
    ignored: int | None = None
    unknown: dict[str, int] | None = None
    bad: list[BadItem] | None = None
    outside: int | None = None
    confirmed: str | None = None
    validationResponse: str | None = None


class Error(BaseModel):
    error: str
    hint: str | None = None


class State(BaseModel):
    status: str
    reasons: list[str] = []


class Version(BaseModel):
    version: str


_ERRORS: dict[int, str] = {
    400: "The body cannot be read at all.",
    401: "No secret was shown, or a wrong one.",
    403: "Not allowed here: a topic or URL that is not wanted, or no secrets and a caller from elsewhere.",
    404: "There is no such source or page.",
    408: "The body came too slowly.",
    413: "The body is too long.",
    415: "The body is not JSON, or a signed CloudEvent is in binary mode.",
    429: "Too many wrong secrets came from the caller's address.",
    503: "The events could not be stored now; send them again later.",
}


def _documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": Error, "description": _ERRORS[status]} for status in statuses}


_BODY = {
    "requestBody": {
        "required": True,
        "description": "A notification as its sender writes it.",
        "content": {
            "application/json": {
                "schema": {},
                "example": {
                    "events": [
                        {
                            "eventName": "OBJECT_CREATED_PUT",
                            "eventTime": "2026-03-04T10:30:00.125Z",
                            "bucket": "press",
                            "object": {
                                "key": "pending/1.json",
                                "size": 1024,
                                "eTag": "0cc175b9c0f1b6a831c399e269772661",
                            },
                        }
                    ]
                },
            },
            "application/cloudevents+json": {"schema": {}},
            "application/cloudevents-batch+json": {"schema": {}},
        },
    }
}


class Parts:
    """What the routes share."""

    def __init__(self, bucket: aio.Bucket, settings: ServerSettings) -> None:
        self.bucket = bucket
        self.settings = settings
        self.counters = Counters()
        self.counts = Counts()
        bucket.observe(self.counts)
        self.standing: Standing | None = None
        """How queues stand, where no app beside this one knows it."""
        self.guard = Guard(
            settings.access,
            proxies=proxies_of(settings.trusted_proxies),
            wrong_secrets_max=settings.wrong_secrets_max,
        )
        self.receiver = Receiver(bucket, settings, self.counters)
        self.background: Background | None = None
        self.beside: Families | None = None
        """Figures of an app that runs beside this one."""
        self._ready: tuple[float, str | None] | None = None
        self._asking = asyncio.Lock()
        self._question: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def lifespan(self, _app: FastAPI) -> AsyncIterator[None]:
        await self.bucket.open()
        self.background = Background(self.bucket, self.settings, self.counters)
        self.standing = Standing(self.bucket) if self.beside is None else None
        try:
            await self.background.start()
            yield
        finally:
            if self.standing is not None:
                await asyncio.to_thread(self.standing.close)
            await self.background.stop()
            self.background = None
            self.receiver.close()
            self.guard.close()

    async def check_caller(self, request: Request) -> None:
        """Before anything of the body is read."""
        if self.settings.access.no_auth:
            self.guard.check_local(request.scope)
        close = leaves_unread(headers_of(request.scope), self.settings.body_bytes_max)
        try:
            request.state.known = await self.guard.admit(request.scope, close=close)
        except Refusal as refusal:
            source = request.path_params.get("source", "")
            known = source if source in SOURCES else OTHER
            self.counters.add("receiver_requests_total", source=known, status=str(refusal.status))
            raise

    async def check_reader(self, request: Request) -> None:
        self.guard.admit_reader(request.scope)

    async def body(self, request: Request) -> bytes:
        """Read no further than it may be long; parsed by nobody before a signature fits."""
        settings = self.settings
        return await self.guard.read(
            request.scope,
            request.receive,
            known=request.state.known,
            bytes_max=settings.body_bytes_max,
            seconds=settings.body_seconds,
        )

    async def unready(self) -> list[str]:
        """Why no work can be done now."""
        reasons = []
        if self.settings.notify and not (self.background is not None and self.background.notifier_up):
            reasons.append("the notifier is not running")
        async with self._asking:
            now = asyncio.get_running_loop().time()
            if self._ready is None or now - self._ready[0] > READY_SECONDS:
                why = await self._ask()
                self._ready = asyncio.get_running_loop().time(), why
        if self._ready[1] is not None:
            reasons.append(self._ready[1])
        return reasons

    def figures(self) -> Iterator[Metric]:
        """What `/metrics` shows."""
        background = self.background
        yield from metrics.server_families(
            self.counters,
            self.counts,
            [] if background is None else background.runs(),
            notifier_up=background is not None and background.notifier_up,
        )
        if self.beside is not None:
            yield from self.beside()
        elif self.standing is not None:
            yield from self.standing.families()

    async def _ask(self) -> str | None:
        """Never two questions at a time: one that hangs is waited for again."""
        if self._question is None:
            self._question = asyncio.create_task(asyncio.to_thread(ask, self.bucket))
        done, _ = await asyncio.wait({self._question}, timeout=READY_SECONDS)
        if not done:
            return "the bucket does not answer"
        question, self._question = self._question, None
        try:
            question.result()
        except BucketMQError as error:
            logger.warning("action=not_ready kind=%s error=%s", error.kind, loggable(error))
            return f"the bucket cannot be used ({error.kind})"  # no more: anybody may read this
        return None


def make_app(bucket: aio.Bucket, settings: ServerSettings, *, beside: FastAPI | None = None) -> FastAPI:
    """The app for one bucket, which the caller closes when the app has ended. `beside` is another app, such as the
    dashboard, that answers what this one does not."""
    parts = Parts(bucket, check_settings(settings))
    about = "Receives other systems' notifications of object changes and makes them events of a bucket."
    app = bare_app("BucketMQ", about, parts.lifespan if beside is None else _both(parts.lifespan, beside))
    app.state.parts = parts
    _add_receivers(app, parts)
    add_pages(app, parts)
    if beside is not None:
        parts.beside = getattr(beside.state, "families", None)
        app.mount("/", beside)
    return app


def _both(lifespan: Lifespan, beside: FastAPI) -> Lifespan:
    """What goes on while both run: a mounted app is not started by itself."""

    @contextlib.asynccontextmanager
    async def both(app: FastAPI) -> AsyncIterator[None]:
        async with lifespan(app), beside.router.lifespan_context(beside):
            yield

    return both


def bare_app(title: str, description: str, lifespan: Lifespan) -> FastAPI:
    """An app without routes, also without FastAPI's own pages: `add_pages` has those that ask who is reading. Every
    error has the same shape."""
    app = FastAPI(
        title=title,
        version=__version__,
        description=description,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    add_errors(app)
    app.add_middleware(Unambiguous)
    return app


def _add_receivers(app: FastAPI, parts: Parts) -> None:
    # These two only describe themselves on the OpenAPI page; `check_caller` does the work.
    described = [
        Depends(HTTPBearer(auto_error=False, description="A token.")),
        Depends(HTTPBasic(auto_error=False)),
    ]

    @app.post(
        "/events/{source}",
        summary="Take a notification",
        response_model=Taken,
        response_model_exclude_unset=True,
        responses=_documented(400, 401, 403, 404, 408, 413, 415, 429, 503),
        openapi_extra=_BODY,
        dependencies=[Depends(parts.check_caller), *described],
    )
    async def take(source: SourcePath, request: Request) -> Any:
        """Events are durable when this answers 200. Bad items are listed and lose no others; unknown names count as
        events of kind `other`. Sending the same again is harmless: repeats collapse on the events' ids."""
        status = 500
        try:
            check_content(headers_of(request.scope))
            answer = await parts.receiver.take(source, headers_of(request.scope), await parts.body(request))
            status = 200
            return answer
        except Refusal as refusal:
            status = refusal.status
            raise
        finally:
            parts.counters.add("receiver_requests_total", source=source, status=str(status))

    @app.options(
        "/events/{source}",
        summary="May I send CloudEvents here?",
        response_class=Response,
        responses={200: {"description": "As the headers say."}, **_documented(400, 403, 404)},
    )
    async def may_send(source: SourcePath, request: Request) -> Response:
        """The handshake of CloudEvents and Event Grid. It promises nothing: each request still shows a secret."""
        if parts.settings.access.no_auth:
            parts.guard.check_local(request.scope)
        headers = {"allow": "POST, OPTIONS"}
        origin = request.headers.get("webhook-request-origin")
        if origin is not None:
            if not _ORIGIN.match(origin):
                raise Refusal(400, "WebHook-Request-Origin is not a host name")
            if parts.settings.origins and origin not in parts.settings.origins:
                raise Refusal(403, "this origin may not send here", "name it with --origin")
            headers |= {"webhook-allowed-origin": origin, "webhook-allowed-rate": str(ALLOWED_RATE_PER_MINUTE)}
        return Response(status_code=200, headers=headers)


def add_pages(app: FastAPI, parts: Parts) -> None:
    reader = [Depends(parts.check_reader)]

    @app.get("/healthz", summary="Alive?")
    async def healthz() -> State:
        return State(status="ok")

    @app.get("/readyz", summary="Able to work?", responses={503: {"model": State, "description": "Not now."}})
    async def readyz(response: Response) -> State:
        """Whether the bucket answers and rules are being run."""
        reasons = await parts.unready()
        response.status_code = 503 if reasons else 200
        return State(status="unavailable" if reasons else "ready", reasons=reasons)

    @app.get("/version", summary="The version that runs")
    async def version() -> Version:
        return Version(version=__version__)

    @app.get(
        "/metrics",
        summary="Counters for Prometheus",
        response_class=PlainTextResponse,
        responses=_documented(401, 403, 429),
        dependencies=reader,
    )
    async def show_metrics(request: Request) -> Response:
        text, content_type = page(parts.figures, request.headers.get("accept", ""))
        return Response(text, headers={"content-type": content_type})

    @app.get("/openapi.json", include_in_schema=False, dependencies=reader)
    async def openapi() -> JSONResponse:
        return JSONResponse(schema(app))

    @app.get("/docs", include_in_schema=False, dependencies=reader)
    async def docs() -> HTMLResponse:
        """Swagger UI, with all that it needs from here and nothing from elsewhere."""
        shown = get_swagger_ui_html(
            openapi_url="openapi.json",
            title="BucketMQ",
            swagger_js_url=f"docs/{SWAGGER_SCRIPT}",
            swagger_css_url=f"docs/{SWAGGER_STYLE}",
            swagger_favicon_url="data:,",
            swagger_ui_parameters={"validatorUrl": None},
        )
        shown.headers["x-frame-options"] = "DENY"
        return shown

    @app.get("/docs/{name}", include_in_schema=False, dependencies=reader)
    async def docs_file(name: str) -> Response:
        if name not in SWAGGER_TYPES:
            raise Refusal(404, "there is no such file")
        return Response(
            _swagger(name), media_type=SWAGGER_TYPES[name], headers={"cache-control": "private, max-age=86400"}
        )


@functools.cache
def _swagger(name: str) -> bytes:
    return files("fastapi_offline").joinpath("static", name).read_bytes()


def schema(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document. Receivers document their 404 for a source that does not exist; where FastAPI adds its 422,
    the body has our shape."""
    found = app.openapi()
    for path in found["paths"].values():
        for operation in path.values():
            if "404" in operation["responses"]:
                operation["responses"].pop("422", None)
            elif "422" in operation["responses"]:
                operation["responses"]["422"] = {"description": "A parameter does not fit; the error names it."}
    for name in ("HTTPValidationError", "ValidationError"):
        found.get("components", {}).get("schemas", {}).pop(name, None)
    return found


def add_errors(app: FastAPI) -> None:
    """Every error has the same shape."""

    @app.exception_handler(Refusal)
    async def refused(_request: Request, refusal: Refusal) -> Response:
        return Refused(refusal)

    @app.exception_handler(RequestValidationError)
    async def does_not_fit(_request: Request, error: RequestValidationError) -> Response:
        return Refused(_unfit(error))

    @app.exception_handler(HTTPException)
    async def refused_by_router(_request: Request, error: HTTPException) -> Response:
        return Refused(Refusal(error.status_code, str(error.detail).lower(), headers=dict(error.headers or {})))

    @app.exception_handler(BucketMQError)
    async def failed(_request: Request, error: BucketMQError) -> Response:
        logger.warning("action=request_failed kind=%s error=%s", error.kind, loggable(error))
        return Refused(unavailable(f"the bucket cannot be used ({error.kind})"))


def _unfit(error: RequestValidationError) -> Refusal:
    """422 with the field that is wrong and why; 404 for a source that does not exist."""
    first = error.errors()[0]
    where = [str(part) for part in first["loc"]]
    if where == SOURCE_FIELD:
        return Refusal(404, "there is no such source of events", f"choose one of {', '.join(SOURCES)}")
    return Refusal(422, f"{'.'.join(where[1:]) or where[0]}: {first['msg']}", "see /openapi.json for what is expected")


class Refused(Response):
    """A refusal as it is sent."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(status_code=refusal.status)
        self._refusal = refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await refuse(receive, send, self._refusal, self._refusal.body())
