"""Push deliveries of Google's Pub/Sub show a token that Google signed (OIDC): for whom it is, and on whose behalf.

The keys are fetched from Google by the guarded client, seldom, and kept. What a message says is `events.parse`'s.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from bucketmq.errors import Invalid
from bucketmq.notify.addresses import Target, target
from bucketmq.notify.lazy import LazyPoster
from bucketmq.procedures.requests import NoAnswer
from bucketmq.server.wire import loggable

if TYPE_CHECKING:
    from jwt import PyJWKSet

GOOGLE_KEYS_URL = "https://www.googleapis.com/oauth2/v3/certs"
ISSUERS = ("https://accounts.google.com", "accounts.google.com")
FETCH_SECONDS = 5.0
KEYS_SECONDS = 3600.0
"""How long keys are good for. Google announces new ones a day before it uses them."""
AGAIN_SECONDS = 60.0
"""A token with an unknown key has them fetched again, but no more often than this: anybody can write such a token."""
LEEWAY_SECONDS = 60.0
TOKEN_CHARS_MAX = 8192

logger = logging.getLogger("bucketmq")


class Push(msgspec.Struct, frozen=True, kw_only=True):
    """Whose push deliveries are taken."""

    audience: str
    """What the subscription was set up with; Google's default is the URL that it pushes to."""
    email: str
    """The service account on whose behalf it pushes."""
    keys_url: str = GOOGLE_KEYS_URL
    """Elsewhere for tests alone: a URL that is not Google's may be on this machine."""


def check_push(push: Push) -> Push:
    if not push.audience or not push.email or "@" not in push.email:
        raise Invalid("Pub/Sub needs both: the audience of the subscription and the service account's email")
    if not isinstance(target(push.keys_url, private=push.keys_url != GOOGLE_KEYS_URL), Target):
        raise Invalid(f"keys_url must be a URL like {GOOGLE_KEYS_URL}, not {push.keys_url[:100]!r}")
    return push


class PushTokens:
    """Checks the tokens of one subscription's deliveries. Belongs to one event loop; `close` when done."""

    def __init__(self, push: Push, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._push = push
        self._clock = clock
        self._poster = LazyPoster()
        self._keys: PyJWKSet | None = None
        self._asked_at = float("-inf")
        self._lock = asyncio.Lock()

    async def fits(self, token: str) -> bool:
        """Whether Google signed it, for us, on behalf of the account that may push, and it has not expired."""
        why = await self._why_not(token)
        if why is not None:
            logger.warning("action=push_token_refused why=%s", loggable(why))
        return why is None

    def close(self) -> None:
        self._poster.close()

    async def _why_not(self, token: str) -> str | None:
        import jwt

        if len(token) > TOKEN_CHARS_MAX:
            return "it is too long"
        try:
            name = jwt.get_unverified_header(token).get("kid")
            key = await self._key(name) if isinstance(name, str) else None
            if key is None:
                return "Google has no key of that name"
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=["RS256"],
                audience=self._push.audience,
                issuer=ISSUERS,
                leeway=LEEWAY_SECONDS,
                options={"require": ["aud", "exp", "iat", "iss"], "strict_aud": True},
            )
        except (jwt.PyJWTError, RecursionError) as error:
            return f"{type(error).__name__}: {error}"
        if claims.get("email") != self._push.email or claims.get("email_verified") is not True:
            return "it is of another account"
        return None

    async def _key(self, name: str) -> Any:
        async with self._lock:
            age = self._clock() - self._asked_at
            found = self._find(name)
            if age > KEYS_SECONDS or (found is None and age > AGAIN_SECONDS):
                await self._fetch()
                found = self._find(name)
            return found

    def _find(self, name: str) -> Any:
        if self._keys is None:
            return None
        return next((each.key for each in self._keys.keys if each.key_id == name and each.key_type == "RSA"), None)

    async def _fetch(self) -> None:
        """Fetch the keys. Those that are there stay if it does not work."""
        import jwt

        url = self._push.keys_url
        self._asked_at = self._clock()
        answer = await asyncio.to_thread(
            self._poster.get, url, timeout_seconds=FETCH_SECONDS, private=url != GOOGLE_KEYS_URL
        )
        if isinstance(answer, NoAnswer) or answer.status != 200:
            why = answer.reason if isinstance(answer, NoAnswer) else f"HTTP {answer.status}"
            logger.warning("action=push_keys_failed why=%s", loggable(why))
            return
        try:
            self._keys = jwt.PyJWKSet.from_json(answer.body.decode())
        except (jwt.PyJWTError, ValueError) as error:
            logger.warning("action=push_keys_failed why=%s", loggable(error))
