"""The desk as an ASGI app: login, the API, and the page's files. Thin: each route calls a part.

Everything but the page's files, the login and health needs a session. Every write shows the session's CSRF token, is
for reviewers alone, and is noted in the audit log under the session's name, refused or not.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine, Sequence
from importlib.resources import files
from typing import Any, TypeVar

import msgspec
from fastapi import FastAPI, Request, Response

from bucketmq import __version__, aio
from bucketmq.api.bucket import BucketApi
from bucketmq.apps.moderation import audit, posts
from bucketmq.apps.moderation.audit import Did, Line
from bucketmq.apps.moderation.classify.fetch import PLAIN_SETTINGS, FetchSettings, Unseen
from bucketmq.apps.moderation.desk.figures import Figures
from bucketmq.apps.moderation.desk.images import Images, Shown
from bucketmq.apps.moderation.desk.index import Index, Item, Query, as_json, item_of
from bucketmq.apps.moderation.desk.people import Person
from bucketmq.apps.moderation.desk.session import FAILURES_MAX, Session, Sessions
from bucketmq.apps.moderation.posts import Action, Entry, Refused, Seen
from bucketmq.apps.moderation.record import CATEGORIES
from bucketmq.errors import BucketMQError, Invalid, NotFound
from bucketmq.procedures.requests import NewId, Procedure
from bucketmq.server.access import too_many_failures
from bucketmq.server.app import bare_app
from bucketmq.server.callers import Limit, caller_address, proxies_of
from bucketmq.server.place import bus_of, now_of, run, seconds_now, within
from bucketmq.server.receive import unavailable
from bucketmq.server.run import Listening, listen, server_of
from bucketmq.server.wire import Receive, Refusal, Scope, Send, headers_of, loggable, read_body

PORT_DEFAULT = 8082
BODY_BYTES_MAX = 256 << 10
LOGIN_BYTES_MAX = 4 << 10
BODY_SECONDS = 10.0
ANSWER_SECONDS = 20.0
REDRIVE_IDS_MAX = 1_000
STOP_SECONDS = 10.0

CSRF_HEADER = "x-desk-csrf"
LOGIN_MARK = "login"
"""The header's value at the login, before there is a session: other sites' pages cannot set it."""

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

MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

log = logging.getLogger("bucketmq")

Result = TypeVar("Result")
Struct = TypeVar("Struct", bound=msgspec.Struct)


class DeskSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a desk runs."""

    people: tuple[Person, ...]
    https: bool = False
    """Whether people reach it by https, through a proxy: then browsers send the cookie over nothing else."""
    trusted_proxies: tuple[str, ...] = ()
    """Networks of proxies whose `X-Forwarded-For` says who is calling."""
    fetch: FetchSettings = PLAIN_SETTINGS
    answer_seconds: float = ANSWER_SECONDS
    """How long somebody is kept waiting for the bucket before he is told that it does not answer."""


class Login(msgspec.Struct, forbid_unknown_fields=True):
    token: str


class Said(msgspec.Struct, forbid_unknown_fields=True):
    """What a person says of a post. Who it is, is not asked."""

    id: str
    revision: int
    action: Action
    note: str = ""


class Again(msgspec.Struct, forbid_unknown_fields=True):
    """Which dead letters to send again; all of the queue's if `ids` is None."""

    queue: str
    ids: list[str] | None


class Desk:
    """What the routes share."""

    def __init__(self, bucket: aio.Bucket, settings: DeskSettings, sessions: Sessions | None = None) -> None:
        self.bucket = bucket
        self.settings = settings
        self.sessions = sessions or Sessions(settings.people)
        self.limit = Limit(FAILURES_MAX)
        self.proxies = proxies_of(settings.trusted_proxies)
        self.index = Index(bucket)
        self.figures = Figures(bucket)
        self.images = Images(settings.fetch)

    @contextlib.asynccontextmanager
    async def lifespan(self, _app: FastAPI) -> AsyncIterator[None]:
        await self.bucket.open()
        try:
            yield
        finally:
            await self.index.close()
            self.images.close()

    def session(self, request: Request) -> Session:
        """Who asks; 401 if nobody is logged in."""
        session = self.sessions.read(request.cookies.get(_cookie_name(request, self), ""))
        if session is None:
            raise Refusal(401, "nobody is logged in", "log in with your token")
        return session

    async def writer(self, request: Request, what: str) -> Session:
        """Who asks for a change; 403 unless it comes from our page and from a reviewer."""
        session = self.session(request)
        if not self.sessions.fits(session, request.headers.get(CSRF_HEADER, "")):
            await self.note("denied", session.name, reason=f"{what}: the request does not come from the desk's page")
            raise Refusal(403, "the request does not come from the desk's page", "reload the page")
        if not session.may_decide:
            await self.note("denied", session.name, reason=f"{what}: the role is {session.role}")
            raise Refusal(403, f"{session.name} may look and not decide", "ask for a reviewer's token")
        return session

    async def note(self, did: Did, by: str, *, reason: str = "") -> None:
        """A line of the audit log about no post. An action whose line cannot be written is not answered as done."""
        at = now_of(self.bucket)
        await self.work(run(self.bucket, _note(bus_of(self.bucket), did, by, at, reason)))

    async def work(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result within a bounded time, errors as answers."""
        try:
            return await within(self.settings.answer_seconds, work)
        except TimeoutError:
            raise unavailable("the bucket did not answer in time") from None
        except Invalid as error:
            raise Refusal(400, str(error)) from None
        except NotFound as error:
            raise Refusal(404, str(error)) from None
        except BucketMQError as error:
            log.warning("action=desk_failed kind=%s error=%s", error.kind, loggable(error))
            raise unavailable(f"the bucket cannot be used ({error.kind})") from None


def _note(bus: BucketApi, did: Did, by: str, at: str, reason: str) -> Procedure[None]:
    name = yield from NewId()
    line = Line(action=f"{did}:{name}", did=did, by=by[:200], at=at, reason=reason[:1_000])
    yield from audit.note((yield from bus.open()), line)


def make_app(bucket: aio.Bucket, settings: DeskSettings, *, sessions: Sessions | None = None) -> FastAPI:
    """The app for one bucket, which the caller closes when the app has ended."""
    desk = Desk(bucket, settings, sessions)
    app = bare_app("BucketMQ moderation: desk", "Where people decide what becomes of posts.", desk.lifespan)
    app.state.desk = desk
    app.add_middleware(Guarded)
    _add_files(app)
    _add_login(app, desk)
    _add_review(app, desk)
    _add_figures(app, desk)
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


def _add_files(app: FastAPI) -> None:
    """The page. Its files are read once, so no path can lead elsewhere."""
    static = {
        each.name: each.read_bytes()
        for each in files(__package__).joinpath("static").iterdir()
        if each.name.rpartition(".")[2] in MEDIA_TYPES
    }

    @app.get("/")
    async def page() -> Response:
        return Response(static["index.html"], media_type=MEDIA_TYPES["html"])

    @app.get("/static/{name}")
    async def file(name: str) -> Response:
        if name not in static:
            raise Refusal(404, "there is no such file")
        return Response(static[name], media_type=MEDIA_TYPES[name.rpartition(".")[2]])

    @app.get("/healthz")
    async def healthz() -> Response:
        return _json({"status": "ok"})


def _add_login(app: FastAPI, desk: Desk) -> None:
    def about(session: Session) -> dict[str, Any]:
        return {
            "name": session.name,
            "role": session.role,
            "may_decide": session.may_decide,
            "csrf": desk.sessions.csrf(session),
            "categories": CATEGORIES,
            "version": __version__,
        }

    @app.post("/api/login")
    async def login(request: Request) -> Response:
        if request.headers.get(CSRF_HEADER) != LOGIN_MARK:
            raise Refusal(403, "the request does not come from the desk's page", "reload the page")
        address = caller_address(request.scope, desk.proxies)
        wait = desk.limit.wait_seconds(address)
        if wait > 0:
            raise too_many_failures(wait, close=True)
        # Counted before anything is awaited: guesses that come together do not all find the limit untouched.
        desk.limit.failed(address)
        given = await _body(request, Login, bytes_max=LOGIN_BYTES_MAX)
        session = desk.sessions.begin(given.token)
        if session is None:
            await desk.note("denied", "nobody", reason=f"a login with a wrong token from {address}")
            raise Refusal(401, "this token opens nothing", "look whether all of it was copied")
        desk.limit.forgive(address)
        await desk.note("login", session.name, reason=f"from {address} as {session.role}")
        answer = _json(about(session))
        _set_cookie(answer, request, desk, desk.sessions.write(session), int(desk.sessions.seconds))
        return answer

    @app.post("/api/logout")
    async def logout(request: Request) -> Response:
        session = desk.session(request)
        if not desk.sessions.fits(session, request.headers.get(CSRF_HEADER, "")):
            raise Refusal(403, "the request does not come from the desk's page", "reload the page")
        desk.sessions.end(session)
        answer = _json({"status": "ok"})
        _set_cookie(answer, request, desk, "", 0)
        await desk.note("logout", session.name)
        return answer

    @app.get("/api/session")
    async def session(request: Request) -> Response:
        """Who is logged in, perhaps nobody: an ordinary answer, which no browser counts as an error."""
        try:
            return _json(about(desk.session(request)))
        except Refusal:
            return _json({"name": None})


def _add_review(app: FastAPI, desk: Desk) -> None:
    @app.get("/api/posts")
    async def waiting(request: Request) -> Response:
        """A page of the posts that wait for a person."""
        desk.session(request)
        query = _query(request, Query)
        await desk.work(desk.index.refresh())
        try:
            found = desk.index.find(query)
        except Invalid as error:
            raise Refusal(400, str(error)) from None
        return _json({**msgspec.structs.asdict(found), "items": as_json(found.items), "now": seconds_now(desk.bucket)})

    @app.get("/api/post")
    async def post(request: Request) -> Response:
        """One post as it is now, with its whole text."""
        desk.session(request)
        return _json(_whole(await desk.work(desk.index.look_at(request.query_params.get("id", "")))))

    async def image_of(request: Request) -> Shown | Unseen:
        desk.session(request)
        seen = await desk.work(desk.index.look_at(request.query_params.get("id", "")))
        if seen.record is None or seen.record.media_url is None:
            return Unseen("the post has no image")
        return await desk.images.show(seen.record.media_url)

    @app.get("/api/image/state")
    async def image_state(request: Request) -> Response:
        """Whether there is an image to show, and if not why: an <img> could not tell. It is fetched by this already."""
        shown = await image_of(request)
        return _json({"there": isinstance(shown, Shown), "why": shown.reason if isinstance(shown, Unseen) else None})

    @app.get("/api/image")
    async def image(request: Request) -> Response:
        """The image of a post, fetched by us."""
        shown = await image_of(request)
        if isinstance(shown, Unseen):
            raise Refusal(404, shown.reason)
        return Response(shown.data, media_type=shown.media_type, headers={"content-disposition": "inline"})

    @app.post("/api/review")
    async def review(request: Request) -> Response:
        """Approve, uphold or escalate. 409 if somebody was earlier: who, when, and what they did."""
        desk.session(request)  # before anything of the body is read
        said = await _body(request, Said)
        session = await desk.writer(request, f"{said.action} post {said.id[:200]!r}")
        done = await desk.work(
            run(
                desk.bucket,
                posts.review(
                    bus_of(desk.bucket),
                    said.id,
                    revision=said.revision,
                    reviewer=session.name,
                    action=said.action,
                    note=said.note,
                ),
            )
        )
        # The decision stands whether or not the index can be told now.
        with contextlib.suppress(Refusal):
            await desk.work(desk.index.look_at(said.id))
        if isinstance(done, Refused):
            return _json({"error": done.text, "hint": None, **msgspec.to_builtins(done)}, 409)
        return _json(msgspec.to_builtins(done.review))


def _add_figures(app: FastAPI, desk: Desk) -> None:
    figures = {
        "flow": desk.figures.flow,
        "queues": desk.figures.queues,
        "rules": desk.figures.rules,
        "dead": desk.figures.dead,
        "badges": desk.figures.badges,
    }

    @app.get("/api/figures/{name}")
    async def figure(name: str, request: Request) -> Response:
        desk.session(request)
        if name not in figures:
            raise Refusal(404, "there is no such figure", f"choose one of {', '.join(figures)}")
        return _json({name: await desk.work(figures[name]()), "now": seconds_now(desk.bucket)})

    @app.post("/api/redrive")
    async def redrive(request: Request) -> Response:
        """Send dead letters again."""
        desk.session(request)  # before anything of the body is read
        again = await _body(request, Again)
        if again.ids is not None and not 1 <= len(again.ids) <= REDRIVE_IDS_MAX:
            raise Refusal(400, f"name 1 to {REDRIVE_IDS_MAX} dead letters at a time", "or all of them, by null")
        what = f"{'all' if again.ids is None else len(again.ids)} of {again.queue[:200]!r}"
        session = await desk.writer(request, f"redrive {what}")
        # Noted before it is done: whatever dies in between, nothing was sent again that nobody asked for.
        await desk.note("redrive", session.name, reason=what)
        done = await desk.work(desk.figures.redrive(again.queue, again.ids))
        return _json(msgspec.to_builtins(done))


def _whole(seen: Seen) -> dict[str, Any]:
    """A post for the page."""
    register, record = seen.register, seen.record
    if record is None or seen.outcome is None:
        raise Refusal(404, f"post {seen.id!r} is not there any more", "it may have been moved; look at the list again")
    item: Item = item_of(Entry(seen.id, "", seen.outcome, 0.0, ""), record, seen.fault)
    row = as_json([item])[0]
    said = {"decision": None, "escalation": None, "review": None}
    if register is not None:
        said = {name: msgspec.to_builtins(getattr(register, name)) for name in said}
    return {
        **row,
        **said,
        "text": record.text,
        "prompt": record.prompt,
        "attempts": record.attempts,
        "escalated": said["escalation"] is not None,
    }


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


async def _body(request: Request, kind: type[Struct], *, bytes_max: int = BODY_BYTES_MAX) -> Struct:
    headers = headers_of(request.scope)
    body = await read_body(headers, request.receive, bytes_max=bytes_max, seconds=BODY_SECONDS)
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(400, f"the body cannot be read: {error}") from None


def _query(request: Request, kind: type[Struct]) -> Struct:
    try:
        return msgspec.convert(dict(request.query_params), kind, strict=False)
    except (msgspec.ValidationError, Invalid) as error:
        raise Refusal(400, str(error)) from None


def _cookie_name(request: Request, desk: Desk) -> str:
    """Browsers do not tell ports apart: without it, two desks on one machine would log each other's people out. A name
    with `__Host-` can only be set over HTTPS and by this very host."""
    server = request.scope.get("server") or ("", 0)
    return f"{'__Host-' if desk.settings.https else ''}bucketmq_desk_{server[1]}"


def _set_cookie(answer: Response, request: Request, desk: Desk, value: str, seconds: int) -> None:
    answer.set_cookie(
        _cookie_name(request, desk),
        value,
        max_age=seconds,
        path="/",
        httponly=True,
        samesite="strict",
        secure=desk.settings.https,
    )


async def serve(
    bucket: aio.Bucket,
    settings: DeskSettings,
    *,
    host: str = "127.0.0.1",
    port: int = PORT_DEFAULT,
    listening: Listening = lambda _: None,
) -> None:
    """Serve until SIGTERM or SIGINT, then finish what is in flight. Closing the bucket is the caller's."""
    app = make_app(bucket, settings)
    await bucket.open()
    with listen(host, port) as listener:
        server = server_of(app, STOP_SECONDS, listening, proxies=app.state.desk.proxies)
        await server.serve(sockets=[listener])


__all__: Sequence[str] = ("PORT_DEFAULT", "Desk", "DeskSettings", "make_app", "serve")
