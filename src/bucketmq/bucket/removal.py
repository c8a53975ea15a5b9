"""Deleting one state of an object and no other, which obstore has no verb for.

`bucketmq.bucket.objects` is given one of these as its `delete_if`, proves on an object of its own that the store
honours the condition, and does without where it does not. A way is a callable of a key and a version that raises
obstore's errors, or an `HttpFailure`, as any request may. Which answer means what belongs to `bucketmq.bucket.objects`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from bucketmq.bucket.sending import Sender, address

if TYPE_CHECKING:
    from obstore.store import AzureStore, GCSStore, S3Store


class DeleteIf(Protocol):
    """Send one DELETE that the store should refuse unless the object is at `version`."""

    def __call__(self, key: str, version: str) -> None: ...


class SignedDelete:
    """Signs the request through obstore, which knows the credentials, and sends it with an `If-Match` of its own.

    Neither S3's signatures nor Azure's SAS must cover that header.
    """

    def __init__(self, client: S3Store | AzureStore, send: Sender) -> None:
        self._client = client
        self._send = send

    def __call__(self, key: str, version: str) -> None:
        self._send("DELETE", address(self._client, "DELETE", key), {"If-Match": version})

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
