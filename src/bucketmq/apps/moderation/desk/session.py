"""Sessions: a token is exchanged for a signed cookie. Who somebody is comes from there and never from what he sends.

The key that signs lives as long as the process: a restart asks everybody to log in again. Cookies and headers as text
are `app`'s.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable, Sequence

import msgspec
from itsdangerous import BadData, Signer, URLSafeSerializer

from bucketmq.apps.moderation.desk.people import Person, Role, who_has

SESSION_SECONDS = 12 * 3600.0
COOKIE_CHARS_MAX = 1_000

FAILURES_MAX = 10
"""Wrong tokens that one address may show within a minute."""

Clock = Callable[[], float]


class Session(msgspec.Struct, frozen=True):
    """Somebody who logged in."""

    name: str
    role: Role
    expires: float
    nonce: str

    @property
    def may_decide(self) -> bool:
        return self.role == "reviewer"


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
        self._people = tuple(people)
        secret = key or secrets.token_bytes(32)
        self._cookies = URLSafeSerializer(secret, salt="session")
        self._proofs = Signer(secret, salt="csrf")
        self._clock = clock
        self._ended: dict[str, float] = {}
        """Sessions that were logged out, until they would have expired."""

    def begin(self, token: str) -> Session | None:
        """A session for whoever has this token."""
        person = who_has(self._people, token)
        if person is None:
            return None
        return Session(person.name, person.role, self._clock() + self.seconds, secrets.token_urlsafe(16))

    def write(self, session: Session) -> str:
        """The session as a cookie's value."""
        return str(self._cookies.dumps(msgspec.to_builtins(session)))

    def read(self, cookie: str) -> Session | None:
        """The session of a cookie that was made here, has not expired and was not logged out."""
        if len(cookie) > COOKIE_CHARS_MAX:
            return None
        try:
            session = msgspec.convert(self._cookies.loads(cookie), Session)
        except (BadData, UnicodeError):
            return None
        return None if session.expires <= self._clock() or session.nonce in self._ended else session

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
