"""Requests as ASGI hands them over: headers, a body that is read no further than it may be long, and refusals.

Shared by the server and by mounted endpoints, and so without any framework. What a body means does not belong here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

JSON_TYPES = frozenset({"", "application/json", "text/json", "text/plain", "application/octet-stream"})
"""Content types that may hold JSON: SNS says text/plain, and some senders say nothing."""


LINGER_SECONDS = 1.0
LINGER_BYTES_MAX = 4 << 20


class Refusal(Exception):
    """An answer that is not a success. `hint` says what to do about it."""

    def __init__(
        self,
        status: int,
        error: str,
        hint: str | None = None,
        *,
        headers: dict[str, str] | None = None,
        close: bool = False,
    ) -> None:
        super().__init__(error)
        self.status = status
        self.error = error
        self.hint = hint
        self.headers = {**(headers or {}), **({"connection": "close"} if close else {})}
        self.closes = close
        """For requests whose body is not read to its end: the rest must not pass for a next request."""

    def body(self) -> dict[str, str | None]:
        return {"error": self.error, "hint": self.hint}


def header_pairs(scope: Scope) -> list[tuple[str, str]]:
    return [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]


def authorization_of(scope: Scope) -> str:
    """What the caller shows; nothing, if it shows several things."""
    given = [value for name, value in header_pairs(scope) if name == "authorization"]
    return given[0] if len(given) == 1 else ""


def headers_of(scope: Scope) -> dict[str, str]:
    """Names in lower case; values of a name that comes more than once are joined, as HTTP says."""
    found: dict[str, str] = {}
    for name, value in header_pairs(scope):
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def leaves_unread(headers: dict[str, str], bytes_max: int) -> bool:
    """Whether an answer before the body was read should end the connection: the body may be long, or without end."""
    return "transfer-encoding" in headers or (_length(headers) or 0) > bytes_max


async def read_body(headers: dict[str, str], receive: Receive, *, bytes_max: int, seconds: float) -> bytes:
    """The body. 413 as soon as it is known to be too long, 408 if it takes too long, 400 if it ends early."""
    if (_length(headers) or 0) > bytes_max:
        raise _too_long(bytes_max)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Refusal(400, "the request ended before its body did", close=True)
                part: bytes = message.get("body", b"")
                size += len(part)
                if size > bytes_max:
                    raise _too_long(bytes_max)
                parts.append(part)
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        raise Refusal(408, f"the body did not arrive within {seconds:g} s", "send it again", close=True) from None


def check_content(headers: dict[str, str]) -> None:
    """415 for what cannot be JSON. The data of a CloudEvent in headers may be anything."""
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        raise Refusal(415, "the body is compressed", "send it without a Content-Encoding")
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type in JSON_TYPES or (media_type.startswith("application/") and media_type.endswith("+json")):
        return
    if "ce-specversion" in headers and not media_type.startswith("application/cloudevents"):
        return
    raise Refusal(415, f"content of type {media_type[:100]!r} cannot be read", "send JSON, as application/json")


LOGGED_CHARS_MAX = 500


def loggable(text: object) -> str:
    """Something from outside as one word of a log line: whatever could end the line, steer a terminal or pass for
    another field is escaped and in quotes."""
    shown = str(text)[:LOGGED_CHARS_MAX]
    return shown if shown.isascii() and shown.isprintable() and not set(shown) & set(" '\"\\=") else repr(shown)


class Unambiguous:
    """Refuses requests whose body a proxy in front could have ended elsewhere than we do: what it let through as a body
    would be a request to us."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        names = {name for name, _ in scope.get("headers", ())}
        if b"transfer-encoding" in names and (b"content-length" in names or scope["http_version"] == "1.0"):
            refusal = Refusal(400, "the length of the body is told in two ways", "send one of them", close=True)
            await refuse(receive, send, refusal, refusal.body())
        else:
            await self._app(scope, receive, send)


async def answer(send: Send, status: int, body: object, headers: dict[str, str] | None = None) -> None:
    """Send a JSON answer."""
    data = await _begin(send, status, body, headers)
    await send({"type": "http.response.body", "body": data})


async def refuse(receive: Receive, send: Send, refusal: Refusal, body: object) -> None:
    """Send a refusal. Before a connection is closed on a sender who still sends, a little of that is thrown away:
    closing at once would reset the connection, and many a sender would never see the answer."""
    data = await _begin(send, refusal.status, body, refusal.headers)
    await send({"type": "http.response.body", "body": data, "more_body": refusal.closes})
    if refusal.closes:
        await _throw_away(receive)
        await send({"type": "http.response.body", "body": b""})


async def _begin(send: Send, status: int, body: object, headers: dict[str, str] | None) -> bytes:
    data = msgspec.json.encode(body)
    raw = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
    raw += [(name.encode("latin-1"), value.encode("latin-1")) for name, value in (headers or {}).items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    return data


async def _throw_away(receive: Receive) -> None:
    size = 0
    try:
        async with asyncio.timeout(LINGER_SECONDS):
            while size < LINGER_BYTES_MAX:
                message = await receive()
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
                size += len(message.get("body", b""))
    except TimeoutError:
        return


def content_length(headers: dict[str, str], otherwise: int) -> int:
    """How long the body says it is; `otherwise` if it does not say."""
    told = _length(headers)
    return otherwise if told is None or "transfer-encoding" in headers else told


def _length(headers: dict[str, str]) -> int | None:
    told = headers.get("content-length", "").strip()
    return int(told) if told.isascii() and told.isdecimal() and len(told) < 20 else None


def _too_long(bytes_max: int) -> Refusal:
    return Refusal(413, f"the body is longer than {bytes_max:,} bytes", "send smaller batches", close=True)
