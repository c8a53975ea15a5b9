"""The gate of every door for people and programs: who is asking, whether they may, and the line that says so.

Two ways in, with the same tokens (`people`): a header `Authorization: Bearer TOKEN`, for programs; and a cookie that a
token was exchanged for (`session`), for browsers. A browser sends cookies whoever's page asks, so a change also shows a
proof (the header `x-bucketmq-csrf`) that only our own page knows. Wrong tokens are limited by address.

Whatever is asked for at a door is refused here or nowhere: a page that hides a button is a kindness, not a check.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import msgspec

from bucketmq import aio
from bucketmq.errors import BucketMQError, Corrupt, Invalid, NotFound
from bucketmq.procedures.requests import Procedure
from bucketmq.server import actions
from bucketmq.server.access import too_many_failures
from bucketmq.server.actions import Action, Door
from bucketmq.server.callers import Limit, caller_address, proxies_of
from bucketmq.server.people import Caller, Person, Role, who_has
from bucketmq.server.place import bus_of, run, within
from bucketmq.server.receive import unavailable
from bucketmq.server.session import Session, Sessions
from bucketmq.server.wire import Refusal, Scope, authorization_of, header_pairs, headers_of, loggable

CSRF_HEADER = "x-bucketmq-csrf"
LOGIN_MARK = "login"
"""The header's value at the login, before there is a session: other sites' pages cannot set it."""

FAILURES_MAX = 10
"""Wrong tokens that one address may show within a minute."""
ANSWER_SECONDS = 20.0
TOKEN_CHARS_MAX = 4_096

logger = logging.getLogger("bucketmq")

Result = TypeVar("Result")


class GateSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Who may use a door, and how they reach it."""

    people: tuple[Person, ...]
    https: bool = False
    """Whether people reach it by https, through a proxy: then browsers send the cookie over nothing else."""
    trusted_proxies: tuple[str, ...] = ()
    """Networks of proxies whose `X-Forwarded-For` says who is calling."""
    answer_seconds: float = ANSWER_SECONDS
    """How long somebody is kept waiting for the bucket before they are told that it does not answer."""


class Gate:
    """The gate of one door to one bucket. Belongs to one event loop."""

    def __init__(
        self, bucket: aio.Bucket, settings: GateSettings, *, door: Door = "dashboard", sessions: Sessions | None = None
    ) -> None:
        self.bucket = bucket
        self.settings = settings
        self.door: Door = door
        self.proxies = proxies_of(settings.trusted_proxies)
        self.sessions = sessions or Sessions(settings.people)
        self.limit = Limit(FAILURES_MAX)

    # Who is asking.

    def caller(self, scope: Scope) -> Caller:
        """Who asks, by header or by cookie; 401 if nobody is known, 429 after too many wrong tokens."""
        shown = _bearer(scope)
        if shown is not None:
            return self._has(shown, scope)
        return self.session(scope).caller

    def session(self, scope: Scope) -> Session:
        """The session of the cookie; 401 if there is none."""
        session = self.sessions.read(_cookie(scope, self.cookie_name(scope)))
        if session is None:
            raise Refusal(401, "nobody is logged in", "log in with your token")
        return session

    def login(self, token: str, scope: Scope) -> Session:
        """Exchange a token for a session. Whoever calls has counted the attempt (`begin_login`)."""
        address = caller_address(scope, self.proxies)
        session = self.sessions.begin(token[:TOKEN_CHARS_MAX])
        if session is None:
            logger.warning("action=login_refused door=%s from=%s", self.door, loggable(address))
            raise Refusal(401, "this token opens nothing", "look whether all of it was copied")
        self.limit.forgive(address)
        logger.info("action=login door=%s by=%s from=%s", self.door, loggable(session.caller.name), loggable(address))
        return session

    def begin_login(self, scope: Scope) -> None:
        """Before the body is read: counted before anything is awaited, so that guesses that come together do not all
        find the limit untouched."""
        if headers_of(scope).get(CSRF_HEADER) != LOGIN_MARK:
            raise _elsewhere()
        address = caller_address(scope, self.proxies)
        wait = self.limit.wait_seconds(address)
        if wait > 0:
            raise too_many_failures(wait, close=True)
        self.limit.failed(address)

    def logout(self, scope: Scope) -> None:
        session = self.session(scope)
        if not self._comes_from_the_page(session, scope):
            raise _elsewhere()
        self.sessions.end(session)
        logger.info("action=logout door=%s by=%s", self.door, loggable(session.caller.name))

    def cookie_name(self, scope: Scope) -> str:
        """Browsers do not tell ports apart: without it, two pages on one machine would log each other's people out. A
        name with `__Host-` can only be set over HTTPS and by this very host."""
        server = scope.get("server") or ("", 0)
        return f"{'__Host-' if self.settings.https else ''}bucketmq_{server[1]}"

    # Whether they may.

    def looker(self, scope: Scope, *queues: str) -> Caller:
        """Who wants to look, at these queues too. Every role may; a queue out of scope is as if it were not there."""
        caller = self.caller(scope)
        for queue in queues:
            if not caller.sees(queue):
                raise Refusal(404, f"there is no queue {queue[:100]!r} that {caller.name} may see")
        return caller

    async def changer(
        self,
        scope: Scope,
        role: Role,
        did: str,
        to: str,
        *,
        how: str = "",
        queue: str | None = None,
        has_own_line: bool = False,
    ) -> Caller:
        """Who wants to change something; 403 unless the request is our page's or a program's, and the role and the
        scope allow it. Both answers are noted before anything is done: if the line cannot be written, nothing is.

        `has_own_line` is for changes that write who did them themselves: then only a refusal is noted here.
        """
        caller, denied = self._judge(scope, role, queue)
        if denied is not None or not has_own_line:
            await self.note(caller.name, did, to, how=how, denied="" if denied is None else denied.error)
        if denied is not None:
            raise denied
        return caller

    async def note(self, by: str, did: str, to: str, *, how: str = "", denied: str = "") -> None:
        """A line of the log of actions."""

        def line() -> Procedure[Action]:
            bucket = yield from bus_of(self.bucket).open()
            return (yield from actions.note(bucket, by=by, did=did, to=to, how=how, door=self.door, denied=denied))

        await self.work(run(self.bucket, line()))

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
        except Corrupt as error:  # asking again would not help
            logger.warning("action=answer_failed door=%s kind=%s error=%s", self.door, error.kind, loggable(error))
            raise Refusal(500, str(error), "see what is damaged: bucketmq doctor --deep") from None
        except BucketMQError as error:
            logger.warning("action=answer_failed door=%s kind=%s error=%s", self.door, error.kind, loggable(error))
            raise unavailable(f"the bucket cannot be used ({error.kind})") from None

    def _judge(self, scope: Scope, role: Role, queue: str | None) -> tuple[Caller, Refusal | None]:
        if _bearer(scope) is not None:
            caller = self.caller(scope)
        else:
            session = self.session(scope)
            caller = session.caller
            if not self._comes_from_the_page(session, scope):
                return caller, _elsewhere()
        if not caller.may(role):
            has = "+".join(caller.roles)
            return caller, Refusal(
                403, f"{caller.name} has the role {has}, and this needs {role}", "ask somebody who has it"
            )
        if queue is not None and not caller.sees(queue):
            return caller, Refusal(
                403, f"queue {queue[:100]!r} is not in the scope of {caller.name}", "ask somebody who has it"
            )
        return caller, None

    def _comes_from_the_page(self, session: Session, scope: Scope) -> bool:
        return self.sessions.fits(session, headers_of(scope).get(CSRF_HEADER, ""))

    def _has(self, token: str, scope: Scope) -> Caller:
        address = caller_address(scope, self.proxies)
        wait = self.limit.wait_seconds(address)
        if wait > 0:
            raise too_many_failures(wait, close=True)
        found = who_has(self.sessions.people, token[:TOKEN_CHARS_MAX])
        if found is None:
            self.limit.failed(address)
            logger.warning("action=token_refused door=%s from=%s", self.door, loggable(address))
            raise Refusal(401, "unauthorized", headers={"www-authenticate": "Bearer"})
        return found


def _elsewhere() -> Refusal:
    return Refusal(403, "the request does not come from the dashboard's page", "reload the page")


def _bearer(scope: Scope) -> str | None:
    scheme, _, token = authorization_of(scope).partition(" ")
    return token.strip(" ") if scheme.lower() == "bearer" else None


def _cookie(scope: Scope, name: str) -> str:
    """The value of a cookie. Other programs of this host leave cookies too, for browsers do not tell ports apart, and
    some hold what no cookie may. So each is taken for itself: one that cannot be read hides none."""
    for line in (value for key, value in header_pairs(scope) if key == "cookie"):
        for pair in line.split(";"):
            found, _, value = pair.strip().partition("=")
            if found == name:
                return value
    return ""


__all__: Sequence[str] = ("CSRF_HEADER", "LOGIN_MARK", "Gate", "GateSettings")
