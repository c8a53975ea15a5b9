"""The ingest agent: `POST /submit` takes posts, and answers 201 when a post is durable in the queue `submissions`.

The bodies are those of the public demo. Posts that come at the same time share writes. What a submission means is
`posts.accept`; running the app on a port is `serve`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

import msgspec
from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from pydantic import BaseModel, Field

from bucketmq import aio
from bucketmq.api.bucket import BucketApi
from bucketmq.apps.moderation import posts
from bucketmq.apps.moderation.ids import ID_BYTES_MAX, PART_BYTES_MAX
from bucketmq.apps.moderation.queues import AUDIT, SUBMISSIONS, open_own
from bucketmq.apps.moderation.register import Accepted
from bucketmq.apps.moderation.settings import ModerationSettings
from bucketmq.errors import BucketMQError, Invalid
from bucketmq.procedures.requests import Procedure
from bucketmq.server.access import is_loopback, make_access
from bucketmq.server.app import Parts, add_pages, bare_app
from bucketmq.server.callers import proxies_of
from bucketmq.server.place import bus_of, run, within
from bucketmq.server.receive import unavailable
from bucketmq.server.run import Listening, listen, server_of
from bucketmq.server.settings import ServerSettings, check_settings
from bucketmq.server.wire import Refusal, headers_of, leaves_unread, loggable, read_body

logger = logging.getLogger("bucketmq")


ID_RULE = (
    f"Up to {ID_BYTES_MAX} bytes of UTF-8, and up to {PART_BYTES_MAX} when all but ASCII letters, digits and -_.~ is "
    "written as %XX."
)


class Submission(BaseModel):
    """A post."""

    id: Annotated[str, Field(min_length=1, max_length=ID_BYTES_MAX, description=ID_RULE, examples=["post-17"])]
    text: Annotated[str, Field(min_length=1, max_length=posts.TEXT_CHARS_MAX, examples=["Have a nice day"])]
    media_url: Annotated[str | None, Field(max_length=posts.MEDIA_URL_CHARS_MAX)] = None


class Submitted(BaseModel):
    id: str
    status: str


class Error(BaseModel):
    error: str


_ERRORS = {
    400: 'No JSON (`{"error": "invalid json"}`), or fields are missing or cannot be used.',
    401: "No token was shown, or a wrong one.",
    403: "There are no tokens, and the request does not come from a program on this machine.",
    408: "The body did not arrive in time.",
    413: "The body is too long.",
    429: "Too many wrong tokens came from the caller's address.",
    503: "The post could not be stored now; submit it again later.",
}


class _Given(msgspec.Struct):
    """A body as it arrives: like the demo, null and missing are the same."""

    id: str | None = None
    text: str | None = None
    media_url: str | None = None


def make_app(
    bucket: aio.Bucket, settings: ModerationSettings, *, host: str = "127.0.0.1", server: ServerSettings | None = None
) -> FastAPI:
    """The app for one bucket, which the caller closes when the app has ended.

    Without tokens anybody who reaches the port may submit; where that is this machine alone, other people's web pages
    are kept out all the same.
    """
    own = server or server_settings(settings.ingest_tokens, trusted_proxies=settings.trusted_proxies)
    parts = Parts(bucket, check_settings(own))
    app = bare_app("BucketMQ moderation: ingest", "Takes posts to be moderated.", parts.lifespan)
    app.state.parts = parts
    described = Depends(HTTPBearer(auto_error=False, description="A token, where one is asked for."))

    async def submit(request: Request) -> Response:
        """The post is durable when this answers 201. The same post again is the same post; another text under the same
        id is a new revision of it."""
        status, body, headers = await _answer(parts, request, local=is_loopback(host))
        parts.counters.add("submissions_total", status=str(status))
        return JSONResponse(body, status, headers=headers)

    app.router.add_api_route(  # before the pages: routes are tried in order
        "/submit",
        submit,
        methods=["POST"],
        route_class_override=_Bare,
        status_code=201,
        summary="Submit a post",
        response_model=Submitted,
        responses={status: {"model": Error, "description": text} for status, text in _ERRORS.items()},
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": Submission.model_json_schema()}},
            }
        },
        dependencies=[described],
    )
    add_pages(app, parts)
    return app


class _Bare(APIRoute):
    """A route that is described like any other, while its function takes the request and makes the response itself:
    what FastAPI does around it is a fifth of what a post costs here."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler: Callable[[Request], Coroutine[Any, Any, Response]] = self.endpoint
        return handler


def server_settings(tokens: tuple[str, ...], **options: Any) -> ServerSettings:
    """A server's settings without the chores of `bucketmq serve`."""
    access = make_access(bearer=tokens, no_auth=not tokens)
    return ServerSettings(access=access, notify=False, files=False, **options)


async def _answer(parts: Parts, request: Request, *, local: bool) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Status, body and headers. Refusals that leave a body unread are raised, for their connection to be closed."""
    try:
        accepted = await _accepted(parts, request, local=local)
    except Refusal as refusal:
        if refusal.closes:
            parts.counters.add("submissions_total", status=str(refusal.status))
            raise
        return refusal.status, {"error": refusal.error}, refusal.headers
    return 201, {"id": accepted.id, "status": "pending"}, {}


async def _accepted(parts: Parts, request: Request, *, local: bool) -> Accepted:
    settings, headers = parts.settings, headers_of(request.scope)
    if settings.access.no_auth and local:
        parts.guard.check_local(request.scope)
    await parts.guard.admit(request.scope, close=leaves_unread(headers, settings.body_bytes_max))
    body = await read_body(headers, request.receive, bytes_max=settings.body_bytes_max, seconds=settings.body_seconds)
    given = _read(body)
    try:
        work = run(parts.bucket, posts.accept(bus_of(parts.bucket), given.id or "", given.text or "", given.media_url))
        return await within(settings.report_seconds, work)
    except Invalid as error:
        raise Refusal(400, str(error)) from None
    except TimeoutError:
        raise unavailable("the store took too long") from None
    except BucketMQError as error:
        logger.warning("action=accept_failed kind=%s error=%s", error.kind, loggable(error))
        raise unavailable(f"the post could not be stored ({error.kind})") from None


def _read(body: bytes) -> _Given:
    try:
        given = msgspec.json.decode(body, type=_Given)
    except msgspec.ValidationError as error:
        raise Refusal(400, f"the post does not fit: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Refusal(400, "invalid json") from None
    if not given.id or not given.text:
        raise Refusal(400, "id and text are required")
    return msgspec.structs.replace(given, media_url=given.media_url or None)


def _open_queues(bus: BucketApi) -> Procedure[None]:
    """The queues are made before the first post comes, which then does not wait for it."""
    bucket = yield from bus.open()
    for name in (SUBMISSIONS, AUDIT):
        yield from open_own(bucket, name)


async def serve(
    bucket: aio.Bucket,
    settings: ModerationSettings,
    *,
    host: str = "127.0.0.1",
    listening: Listening = lambda _: None,
    insecure_no_token: bool = False,
) -> None:
    """Serve until SIGTERM or SIGINT, then finish what is in flight. Closing the bucket is the caller's."""
    if not settings.ingest_tokens and not is_loopback(host) and not insecure_no_token:
        raise Invalid(
            f"without a token everybody who reaches {host!r} could submit: give --token, set INGEST_TOKEN, or say "
            "--insecure-no-token if that is meant"
        )
    await run(bucket, _open_queues(bus_of(bucket)))  # a bucket that cannot be used is an error here
    app = make_app(bucket, settings, host=host)
    with listen(host, settings.port_ingest) as listener:
        own = app.state.parts.settings
        server = server_of(app, own.stop_seconds, listening, proxies=proxies_of(own.trusted_proxies))
        await server.serve(sockets=[listener])
