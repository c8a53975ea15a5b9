"""Sessions: a token is exchanged for a signed cookie. Who somebody is comes from there and never from what he sends.

The key that signs lives as long as the process: a restart asks everybody to log in again. Cookies and headers as text
are `app`'s.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence

import msgspec

from bucketmq.pipelines.moderation.desk.people import Person, Role, who_has

SESSION_SECONDS = 12 * 3600.0
COOKIE_CHARS_MAX = 1_000

FAILURES_MAX = 10
FAILURES_SECONDS = 60.0
ADDRESSES_MAX = 10_000

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
        self._key = key or secrets.token_bytes(32)
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
        payload = msgspec.json.encode(session)
        return f"{_text(payload)}.{_text(self._signature(b'session', payload))}"

    def read(self, cookie: str) -> Session | None:
        """The session of a cookie that was made here, has not expired and was not logged out."""
        written, dot, signature = cookie.partition(".")
        if not dot or len(cookie) > COOKIE_CHARS_MAX:
            return None
        try:
            payload, shown = _bytes(written), _bytes(signature)
        except ValueError:
            return None
        if not hmac.compare_digest(self._signature(b"session", payload), shown):
            return None
        session = msgspec.json.decode(payload, type=Session)
        return None if session.expires <= self._clock() or session.nonce in self._ended else session

    def end(self, session: Session) -> None:
        """Log out: the cookie counts no more, wherever it is."""
        now = self._clock()
        self._ended = {nonce: until for nonce, until in self._ended.items() if until > now}
        self._ended[session.nonce] = session.expires

    def csrf(self, session: Session) -> str:
        """What the page shows with every write: other sites' pages cannot know it."""
        return _text(self._signature(b"csrf", session.nonce.encode()))

    def fits(self, session: Session, csrf: str) -> bool:
        return hmac.compare_digest(self.csrf(session).encode(), csrf.encode("utf-8", "surrogatepass"))

    def _signature(self, purpose: bytes, payload: bytes) -> bytes:
        return hmac.new(self._key, purpose + b"\0" + payload, hashlib.sha256).digest()


class Limit:
    """Failed logins by address: after too many within a minute even a right token is refused for a while."""

    def __init__(self, *, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def wait_seconds(self, address: str) -> float:
        """How long until this address may try again; 0 if it may now."""
        failures = self._recent(address)
        return 0.0 if len(failures) < FAILURES_MAX else failures[0] + FAILURES_SECONDS - self._clock()

    def failed(self, address: str) -> None:
        self._recent(address).append(self._clock())
        self._failures.move_to_end(address)
        while len(self._failures) > ADDRESSES_MAX:
            self._failures.popitem(last=False)

    def _recent(self, address: str) -> deque[float]:
        found = self._failures.setdefault(address, deque(maxlen=FAILURES_MAX))
        while found and found[0] <= self._clock() - FAILURES_SECONDS:
            found.popleft()
        return found


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
