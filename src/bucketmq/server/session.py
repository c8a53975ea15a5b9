"""Sessions: a token is exchanged for a signed cookie. Who somebody is comes from there and never from what they send.

The key that signs lives as long as the process: a restart asks everybody to log in again. A cookie holds a name and no
rights: those are looked up, so a person whose access was removed has no session either. Cookies and headers as text are
`gate`'s.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable, Sequence

import msgspec
from itsdangerous import BadData, Signer, URLSafeSerializer

from bucketmq.server.people import Caller, Person, who_has

SESSION_SECONDS = 12 * 3600.0
COOKIE_CHARS_MAX = 1_000

Clock = Callable[[], float]


class Session(msgspec.Struct, frozen=True):
    """Somebody who logged in."""

    caller: Caller
    expires: float
    nonce: str


class _Cookie(msgspec.Struct, frozen=True, array_like=True):
    name: str
    expires: float
    nonce: str


class Sessions:
    """Those of one process."""

    def __init__(
        self,
        people: Sequence[Person],
        *,
        key: bytes | None = None,
        seconds: float = SESSION_SECONDS,
        clock: Clock = time.time,
    ) -> None:
        self.seconds = seconds
        self.people = tuple(people)
        self._callers = {each.caller.name: each.caller for each in people}
        secret = key or secrets.token_bytes(32)
        self._cookies = URLSafeSerializer(secret, salt="session")
        self._proofs = Signer(secret, salt="csrf")
        self._clock = clock
        self._ended: dict[str, float] = {}
        """Sessions that were logged out, until they would have expired."""

    def begin(self, token: str) -> Session | None:
        """A session for the person with this token."""
        caller = who_has(self.people, token)
        if caller is None:
            return None
        return Session(caller, self._clock() + self.seconds, secrets.token_urlsafe(16))

    def write(self, session: Session) -> str:
        """The session as a cookie's value."""
        cookie = _Cookie(session.caller.name, session.expires, session.nonce)
        return str(self._cookies.dumps(msgspec.to_builtins(cookie)))

    def read(self, cookie: str) -> Session | None:
        """The session of a cookie that was made here, has not expired and was not logged out."""
        if len(cookie) > COOKIE_CHARS_MAX:
            return None
        try:
            found = msgspec.convert(self._cookies.loads(cookie), _Cookie)
        except (BadData, UnicodeError, msgspec.ValidationError):
            return None
        caller = self._callers.get(found.name)
        if caller is None or found.expires <= self._clock() or found.nonce in self._ended:
            return None
        return Session(caller, found.expires, found.nonce)

    def end(self, session: Session) -> None:
        """Log out: the cookie counts no more, wherever it is."""
        now = self._clock()
        self._ended = {nonce: until for nonce, until in self._ended.items() if until > now}
        self._ended[session.nonce] = session.expires

    def csrf(self, session: Session) -> str:
        """What the page shows with every write: other sites' pages cannot know it."""
        return self._proofs.get_signature(session.nonce).decode()

    def fits(self, session: Session, csrf: str) -> bool:
        return hmac.compare_digest(self.csrf(session).encode(), csrf.encode("utf-8", "surrogatepass"))
