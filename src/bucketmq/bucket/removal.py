"""Deleting one state of an object and no other, which obstore has no verb for.

`bucketmq.bucket.objects` is given one of these as its `delete_if`, proves on an object of its own that the store
honours the condition, and does without where it does not. A way is a callable of a key and a version that raises
obstore's errors, or an `HttpFailure`, as any request may. Which answer means what belongs to `bucketmq.bucket.objects`.
"""

from __future__ import annotations

import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import timedelta
from email.message import Message
from http.client import HTTPException
from typing import IO, TYPE_CHECKING, Protocol

import obstore
from obstore.exceptions import BaseError

if TYPE_CHECKING:
    from obstore.store import AzureStore, GCSStore, S3Store

SIGNED_SECONDS = 300
"""How long a signed request is good for: longer than it takes to arrive, with clocks a little off."""

ANSWER_BYTES_MAX = 10_000

_CODE = re.compile(rb"<Code>\s*(\w+)\s*</Code>")


class DeleteIf(Protocol):
    """Send one DELETE that the store should refuse unless the object is at `version`."""

    def __call__(self, key: str, version: str) -> None: ...


class HttpFailure(OSError):
    """What came instead of a good answer. It never shows the address, which has a signature in it."""

    def __init__(self, reason: str, status: int | None = None, code: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.code = code


class CannotSign(HttpFailure):
    """These credentials sign no requests for others to send. Nothing was sent."""


class SignedDelete:
    """Signs the request through obstore, which knows the credentials, and sends it with an `If-Match` of its own.

    Neither S3's signatures nor Azure's SAS must cover that header.
    """

    def __init__(self, client: S3Store | AzureStore, *, timeout_seconds: float, ca_file: str | None = None) -> None:
        self._client = client
        self._timeout_seconds = timeout_seconds
        self._ca_file = ca_file
        self._opener: urllib.request.OpenerDirector | None = None

    def __call__(self, key: str, version: str) -> None:
        try:
            url = obstore.sign(self._client, "DELETE", key, timedelta(seconds=SIGNED_SECONDS))
        except (BaseError, OSError, ValueError) as error:
            raise CannotSign(str(error)) from error
        request = urllib.request.Request(url, method="DELETE", headers={"If-Match": version})
        try:
            with self._open()(request, timeout=self._timeout_seconds):
                return
        except urllib.error.HTTPError as answer:
            with answer:
                failure = _failure(answer)
        except urllib.error.URLError as error:
            timed_out = isinstance(error.reason, TimeoutError)
            failure = HttpFailure("no answer in time" if timed_out else "no connection")
        except TimeoutError:
            failure = HttpFailure("no answer in time")
        except (OSError, HTTPException):
            failure = HttpFailure("the connection broke")
        raise failure from None  # what came first may quote the address

    def _open(self) -> Callable[..., IO[bytes]]:
        if self._opener is None:
            context = ssl.create_default_context()
            if self._ca_file:
                context.load_verify_locations(self._ca_file)
            self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirects())
        return self._opener.open

    def __repr__(self) -> str:
        return "SignedDelete()"


class HeaderDelete:
    """Sends it through a client made for this one request, whose every request has the condition in a header.

    For stores that authorise by token, where no signature covers the headers. A client costs about ten milliseconds,
    and maybe a request for a token.
    """

    def __init__(self, client_with: Callable[[dict[str, str]], GCSStore], header: str) -> None:
        self._client_with = client_with
        self._header = header

    def __call__(self, key: str, version: str) -> None:
        self._client_with({self._header: version}).delete(key)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(  # noqa: PLR0917 - the standard library's signature
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        return None


def _failure(answer: urllib.error.HTTPError) -> HttpFailure:
    try:
        found = _CODE.search(answer.read(ANSWER_BYTES_MAX))
    except (OSError, HTTPException):
        found = None
    code = found[1].decode() if found else answer.headers.get("x-ms-error-code")
    return HttpFailure(f"HTTP {answer.code} {code or ''}".strip(), answer.code, code)
