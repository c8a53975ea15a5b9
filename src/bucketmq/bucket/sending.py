"""Sending one signed request that obstore has no verb for, and reading what comes back.

`bucketmq.bucket.removal` and `bucketmq.bucket.copying` make the requests. Nothing is sent twice and no redirect is
followed. Which answer means what belongs to `bucketmq.bucket.objects`.
"""

from __future__ import annotations

import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from datetime import timedelta
from email.message import Message
from http.client import HTTPException, HTTPResponse
from typing import IO, TYPE_CHECKING, Literal, NamedTuple

import obstore
from obstore.exceptions import BaseError

if TYPE_CHECKING:
    from obstore.store import AzureStore, S3Store

SIGNED_SECONDS = 300
"""How long a signed address is good for: longer than it takes to arrive, with clocks a little off."""

ANSWER_BYTES_MAX = 10_000

_CODE = re.compile(rb"<Code>\s*(\w+)\s*</Code>")


class HttpFailure(OSError):
    """What came instead of a good answer. It never shows the address, which has a signature in it."""

    def __init__(self, reason: str, status: int | None = None, code: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.code = code


class CannotSign(HttpFailure):
    """These credentials sign no requests for others to send. Nothing was sent."""


class Answer(NamedTuple):
    """A 2xx, and the beginning of its body."""

    headers: Message
    body: bytes


class Sender:
    """Makes one connection for each request. `ca_file` is an authority of the user's own."""

    def __init__(self, *, timeout_seconds: float, ca_file: str | None = None) -> None:
        self._timeout_seconds = timeout_seconds
        self._ca_file = ca_file
        self._opener: urllib.request.OpenerDirector | None = None

    def __call__(self, method: str, url: str, headers: Mapping[str, str], body: bytes = b"") -> Answer:
        # With a body, even an empty one, the standard library would make up a content type, and a copy would have it.
        sent = {"content-type": "application/xml", **headers} if body else {**headers, "content-length": "0"}
        request = urllib.request.Request(url, body or None, sent, method=method)
        try:
            with self._open()(request, timeout=self._timeout_seconds) as answer:
                return Answer(answer.headers, answer.read(ANSWER_BYTES_MAX))
        except urllib.error.HTTPError as refusal:
            with refusal:
                failure = _failure(refusal)
        except urllib.error.URLError as error:
            timed_out = isinstance(error.reason, TimeoutError)
            failure = HttpFailure("no answer in time" if timed_out else "no connection")
        except TimeoutError:
            failure = HttpFailure("no answer in time")
        except (OSError, HTTPException):
            failure = HttpFailure("the connection broke")
        raise failure from None  # what came first may quote the address

    def _open(self) -> Callable[..., HTTPResponse]:
        if self._opener is None:
            context = ssl.create_default_context()
            if self._ca_file:
                context.load_verify_locations(self._ca_file)
            self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirects())
        return self._opener.open


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(  # noqa: PLR0917 - the standard library's signature
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        return None


def address(client: S3Store | AzureStore, method: Literal["GET", "PUT", "DELETE"], key: str) -> str:
    """Where a request of ours goes, with a signature of the client's in it."""
    try:
        return obstore.sign(client, method, key, timedelta(seconds=SIGNED_SECONDS))
    except (BaseError, OSError, ValueError) as error:
        raise CannotSign(str(error)) from error


def code_in(body: bytes) -> str | None:
    """The code of an error that is told in XML."""
    found = _CODE.search(body)
    return found[1].decode() if found else None


def _failure(answer: urllib.error.HTTPError) -> HttpFailure:
    try:
        code = code_in(answer.read(ANSWER_BYTES_MAX))
    except (OSError, HTTPException):
        code = None
    code = code or answer.headers.get("x-ms-error-code")
    return HttpFailure(f"HTTP {answer.code} {code or ''}".strip(), answer.code, code)
