"""Who may speak to us: bearer tokens, basic secrets and signatures, several of each so that they can be rotated.

A caller needs to fit one of them. What can be checked without the body is checked before it is read; a signature is
over the body, which is read (bounded) but not parsed before it fits. Every refusal is the same 401.
"""

from __future__ import annotations

import contextlib
import ipaddress
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

import msgspec

from bucketmq.errors import Invalid
from bucketmq.events.parse.cloudevents import is_binary
from bucketmq.events.signing import (
    SIGNATURE_HEADER,
    Rejected,
    authorization,
    authorized,
    check_secret,
    verify,
)
from bucketmq.server.callers import Limit, Network, caller_address
from bucketmq.server.pubsub import Push, PushTokens, check_push
from bucketmq.server.wire import (
    Receive,
    Refusal,
    Scope,
    authorization_of,
    content_length,
    header_pairs,
    headers_of,
    read_body,
)

TOKEN_USER = "token"
"""Browsers can show a token only as a password; this is the user name that goes with it."""

SECRETS_MAX = 32
SECRET_CHARS_MIN = 16
SECRET_CHARS_DIFFERENT = 6
"""A token shorter or plainer than this can be guessed in time, for all that guessing is slowed down."""
WRONG_SECRETS_MAX = 30
"""Wrong secrets that one address may show within a minute."""
UNPROVEN_BYTES_MAX = 16 << 20
"""Bytes of bodies whose signature is not checked yet, of all callers together; one address may hold a quarter."""


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """The secrets that open the door. Never shown."""

    bearer: tuple[str, ...] = ()
    basic: tuple[str, ...] = ()
    """Each written user:password."""
    signing: tuple[str, ...] = ()
    """Standard Webhooks secrets, whsec_..."""
    push: Push | None = None
    """Takes push deliveries of Pub/Sub, by the token that Google signs."""
    no_auth: bool = False

    def __repr__(self) -> str:
        return (
            f"Access({len(self.bearer)} bearer, {len(self.basic)} basic, {len(self.signing)} signing"
            f"{', push' if self.push else ''}{', no_auth' if self.no_auth else ''})"
        )


def make_access(
    *,
    bearer: Sequence[str] = (),
    basic: Sequence[str] = (),
    signing: Sequence[str] = (),
    push: Push | None = None,
    no_auth: bool = False,
) -> Access:
    """Checked. Having no secret at all must be said explicitly."""
    for each, what in ((bearer, "bearer"), (basic, "basic"), (signing, "signing")):
        if isinstance(each, str):
            raise Invalid(f"{what} is a list of secrets, not one; write [secret]")
        if len(each) > SECRETS_MAX:
            raise Invalid(f"at most {SECRETS_MAX} {what} secrets at a time")
    access = Access(bearer=tuple(bearer), basic=tuple(basic), signing=tuple(signing), push=push, no_auth=no_auth)
    if push is not None:
        check_push(push)
    for secret in access.bearer:
        if secret != secret.strip() or not authorization(bearer=secret):
            raise Invalid("a bearer token must not be empty or begin or end with a space")
        _check_strength(secret, "a bearer token")
    for secret in access.basic:
        authorization(basic=secret)
        _check_strength(secret.partition(":")[2], "the password of a basic secret")
    for secret in access.signing:
        check_secret(secret)
    has_secret = bool(access.bearer or access.basic or access.signing or access.push)
    if has_secret and no_auth:
        raise Invalid("secrets were given and switched off with no_auth; leave one of the two out")
    if not has_secret and not no_auth:
        raise Invalid("no caller could be let in: give a bearer token, a basic secret or a signing secret (or no_auth)")
    return access


def _check_strength(secret: str, what: str) -> None:
    """Without repeating it."""
    if len(secret) < SECRET_CHARS_MIN or len(set(secret)) < SECRET_CHARS_DIFFERENT:
        raise Invalid(
            f"{what} must have at least {SECRET_CHARS_MIN} characters, {SECRET_CHARS_DIFFERENT} of them different; "
            "make one with: python -c 'import secrets; print(secrets.token_urlsafe(24))'"
        )


class Guard:
    """Lets callers in. Belongs to one event loop.

    An address that shows too many wrong secrets is sent away for a while (429), before anything is compared. Bodies of
    callers who are not known yet are read within a budget that all of them share.
    """

    def __init__(
        self, access: Access, *, proxies: Sequence[Network] = (), wrong_secrets_max: int = WRONG_SECRETS_MAX
    ) -> None:
        self._access = access
        self._proxies = tuple(proxies)
        self._limit = Limit(wrong_secrets_max)
        self._push = PushTokens(access.push) if access.push is not None else None
        self.unproven = Budget(UNPROVEN_BYTES_MAX, UNPROVEN_BYTES_MAX // 4)

    def close(self) -> None:
        if self._push is not None:
            self._push.close()

    async def admit(self, scope: Scope, *, close: bool = False) -> bool:
        """Before the body is read: True if the caller is known, False if that depends on the body's signature, or 401.

        `close` is for requests whose body is then left unread.
        """
        access = self._access
        if access.no_auth:
            return True
        self._check_limit(scope, close=close)
        if await self._is_push(scope):
            return True
        self._check_limit(scope, close=close)  # others may have guessed while Google's keys were fetched
        if _shows_secret(access, scope):
            _check_page(scope)
            return True
        if access.signing and any(name == SIGNATURE_HEADER for name, _ in header_pairs(scope)):
            if is_binary(headers_of(scope)):
                raise Refusal(
                    415,
                    "a signature does not cover the ce- headers of a CloudEvent in binary mode",
                    "send it in structured mode, as application/cloudevents+json, or show a token",
                    close=close,
                )
            return False
        raise self._refuse(scope, unauthorized(access, close=close))

    async def read(self, scope: Scope, receive: Receive, *, known: bool, bytes_max: int, seconds: float) -> bytes:
        """The body. Of a caller who is not known it is held within the budget until its signature fits, or 401."""
        headers = headers_of(scope)
        if known:
            return await read_body(headers, receive, bytes_max=bytes_max, seconds=seconds)
        size = min(bytes_max, content_length(headers, bytes_max))
        with self.unproven.held(self._address(scope), size):
            body = await read_body(headers, receive, bytes_max=bytes_max, seconds=seconds)
            if isinstance(verify(self._access.signing, header_pairs(scope), body, time.time()), Rejected):
                raise self._refuse(scope, unauthorized(self._access))
            return body

    async def _is_push(self, scope: Scope) -> bool:
        if self._push is None:
            return False
        scheme, _, token = authorization_of(scope).partition(" ")
        return scheme.lower() == "bearer" and token.count(".") == 2 and await self._push.fits(token.strip(" "))

    def admit_reader(self, scope: Scope) -> None:
        """For pages: 401 unless a secret is shown, where a token also counts as the password of the user `token`."""
        access = self._access
        if access.no_auth:
            self.check_local(scope)
            return
        self._check_limit(scope)
        as_passwords = msgspec.structs.replace(access, basic=tuple(f"{TOKEN_USER}:{each}" for each in access.bearer))
        if not _shows_secret(access, scope) and not _shows_secret(as_passwords, scope):
            refusal = Refusal(401, "unauthorized", headers={"www-authenticate": 'Basic realm="bucketmq"'})
            raise self._refuse(scope, refusal)

    def check_local(self, scope: Scope) -> None:
        """For servers without secrets: 403 for everybody but programs on this machine.

        Other people's web pages are not, though the browser they run in is: they name themselves in `Origin`, or reach
        us under a host name of theirs.
        """
        named = [value for name, value in header_pairs(scope) if name in ("host", "origin")]
        forwarded = [value for name, value in header_pairs(scope) if name in ("forwarded", "x-forwarded-for")]
        callers = [self._address(scope), *(each.strip() for each in ",".join(forwarded).split(",") if forwarded)]
        if not all(map(is_loopback, callers)) or not all(is_loopback(_host(each)) for each in named):
            raise Refusal(
                403, "this server has no secrets and so answers only to this machine", "start it with a token"
            )

    def _address(self, scope: Scope) -> str:
        return caller_address(scope, self._proxies)

    def _check_limit(self, scope: Scope, *, close: bool = False) -> None:
        wait = self._limit.wait_seconds(self._address(scope))
        if wait > 0:
            raise too_many_failures(wait, close=close)

    def _refuse(self, scope: Scope, refusal: Refusal) -> Refusal:
        """Showing nothing at all is not a guess."""
        if any(name in ("authorization", SIGNATURE_HEADER) for name, _ in header_pairs(scope)):
            self._limit.failed(self._address(scope))
        return refusal


def too_many_failures(wait_seconds: float, *, close: bool = False) -> Refusal:
    seconds = str(math.ceil(wait_seconds))
    return Refusal(
        429,
        "too many wrong secrets came from your address",
        f"try again in {seconds} seconds",
        headers={"retry-after": seconds},
        close=close,
    )


class Budget:
    """Bytes that all callers who are not known may hold at a time, and how many one address may."""

    def __init__(self, bytes_max: int, one_address_max: int) -> None:
        self._bytes_max = bytes_max
        self._one_address_max = one_address_max
        self._held: Counter[str] = Counter()

    @property
    def held_bytes(self) -> int:
        return self._held.total()

    @contextlib.contextmanager
    def held(self, address: str, size: int) -> Iterator[None]:
        """While the block runs. 503 if that is more than there is: signing senders send again."""
        own = self._held[address]
        if self.held_bytes + size > self._bytes_max or (own and own + size > self._one_address_max):
            raise Refusal(
                503,
                "too many bodies are being read whose signature is not checked yet",
                "send it again later, or show a token",
                headers={"retry-after": "1"},
                close=True,
            )
        self._held[address] += size
        try:
            yield
        finally:
            self._held[address] -= size
            if not self._held[address]:
                del self._held[address]


def _shows_secret(access: Access, scope: Scope) -> bool:
    return authorized(authorization_of(scope), bearer=access.bearer, basic=access.basic)


def _check_page(scope: Scope) -> None:
    """403 for other people's web pages: a browser that was told user and password once shows them for any page."""
    headers = headers_of(scope)
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    elsewhere = origin is not None and origin.partition("://")[2] != headers.get("host")
    if elsewhere if site is None else site not in ("same-origin", "none"):
        raise Refusal(403, "the request comes from another site's page", "send it from a program")


def unauthorized(access: Access, *, close: bool = False) -> Refusal:
    """The same for every reason. SNS shows its password only when it is asked for it."""
    schemes = [
        *(['Basic realm="bucketmq"'] if access.basic else []),
        *(["Bearer"] if access.bearer or access.push else []),
    ]
    return Refusal(
        401, "unauthorized", headers={"www-authenticate": ", ".join(schemes)} if schemes else None, close=close
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens there."""
    host = host.strip("[]").rstrip(".").lower()
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host(value: str) -> str:
    """The host in a `Host` or `Origin` header."""
    try:
        return urlsplit(value if "://" in value else f"//{value}").hostname or ""
    except ValueError:
        return ""
