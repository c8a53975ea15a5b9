"""Object stores over the network: S3 and what speaks it, Google Cloud Storage, Azure Blob Storage.

Each verb is one request through obstore, whose own retries are off: a conditional write that is repeated behind our
back would be refused by its own first attempt. This module turns what comes back into the answers and errors of
`bucketmq.bucket.port`. Trying again, and finding out what became of an unknown write, is for those who call it.
URLs, credentials and settings belong to `bucketmq.bucket.urls` and `bucketmq.bucket.cloud`.
"""

from __future__ import annotations

import heapq
import itertools
import os
import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from bucketmq.bucket.listing import check_listing
from bucketmq.bucket.port import Entry, Missing, Object, Page, Refused, Unknown, Version, Written, check_key
from bucketmq.errors import BucketMQError, Denied, Invalid, NotFound, Unavailable, Unsupported

if TYPE_CHECKING:
    from obstore import PutMode, UpdateVersion
    from obstore.store import AzureStore, GCSStore, S3Store

CHUNK_MAX = 1000
"""Keys in one answer of S3; a listing of fewer costs one request."""


class ObjectStore:
    """One bucket or container. Every verb is one request; a listing is one for each thousand keys it passes over.

    `place` is how the bucket is called in messages. `by_generation` is for stores that count the states of an object
    instead of hashing them. `unquoted_etags` is for servers that take a quoted hash for a wrong one.
    """

    local = False

    def __init__(
        self,
        client: S3Store | GCSStore | AzureStore,
        *,
        place: str,
        lists_in_order: bool,
        by_generation: bool = False,
        unquoted_etags: bool = False,
    ) -> None:
        self.lists_in_order = lists_in_order
        self._client = client
        self._place = place
        self._by_generation = by_generation
        self._unquoted_etags = unquoted_etags
        self._pid = os.getpid()

    def get(self, key: str) -> Object | Missing:
        self._check(key)
        try:
            found = self._client.get(key)
            body = bytes(found.bytes())
            meta = found.meta
        except FileNotFoundError as error:
            self._check_bucket(error)
            return Missing()
        except (BaseError, OSError, ValueError) as error:
            raise self._failed(f"read {key!r}", error) from error
        version = self._version(meta["e_tag"], meta["version"])
        if version is None:
            raise Unsupported(f"{self._place} sends no version with {key!r}; it cannot hold a queue")
        return Object(body, version, meta["last_modified"].timestamp())

    def create(self, key: str, body: bytes) -> Written | Refused | Unknown:
        self._check(key)
        try:
            return self._put(key, body, "create")
        except FileNotFoundError as error:
            raise self._no_bucket() from error  # what else could be missing?

    def replace(self, key: str, body: bytes, version: Version) -> Written | Refused | Unknown:
        self._check(key)
        # The two fields are exclusive: obstore takes a None for a value.
        condition: UpdateVersion = {"version": version} if self._by_generation else {"e_tag": version}
        try:
            return self._put(key, body, condition)
        except FileNotFoundError as error:
            self._check_bucket(error)
            return Refused()

    def delete(self, key: str) -> None:
        self._check(key)
        try:
            self._client.delete(key)
        except FileNotFoundError as error:
            self._check_bucket(error)
        except (BaseError, OSError, ValueError) as error:
            raise self._failed(f"delete {key!r}", error) from error

    def list(self, prefix: str, *, after: str, limit: int) -> Page:
        self._check_process()
        check_listing(prefix, after, limit)
        try:
            found = self._entries(prefix, after, limit)
            if self.lists_in_order:
                entries = tuple(itertools.islice(found, limit + 1))
            else:
                entries = tuple(heapq.nsmallest(limit + 1, found, key=lambda entry: entry.key))
        except (BaseError, OSError, ValueError) as error:
            raise self._failed(f"list {prefix!r}", error) from error
        return Page(entries[:limit], more=len(entries) > limit)

    def __repr__(self) -> str:
        return f"ObjectStore({self._place!r})"

    def _put(self, key: str, body: bytes, mode: PutMode) -> Written | Refused | Unknown:
        try:
            result = self._client.put(key, body, mode=mode, use_multipart=False)
        except (AlreadyExistsError, PreconditionError) as error:
            self._check_bucket(error)
            return Refused()
        except FileNotFoundError:
            raise
        except (BaseError, OSError, ValueError) as error:
            if _may_have_landed(error):
                return Unknown(_reason(error))
            raise self._failed(f"write {key!r}", error) from error
        version = self._version(result["e_tag"], result["version"])
        return Unknown("the store sent no version") if version is None else Written(version, None)

    def _version(self, e_tag: str | None, generation: str | None) -> Version | None:
        mark = generation if self._by_generation else e_tag
        if mark is None:
            return None
        return Version(mark.strip('"') if self._unquoted_etags else mark)

    def _entries(self, prefix: str, after: str, limit: int) -> Iterator[Entry]:
        chunks = self._client.list(prefix or None, offset=after or None, chunk_size=min(limit + 1, CHUNK_MAX))
        for chunk in chunks:
            for meta in chunk:
                key = meta["path"]
                if key > after and key.startswith(prefix):
                    yield Entry(key, meta["size"], meta["last_modified"].timestamp())

    def _check(self, key: str) -> None:
        check_key(key)
        self._check_process()

    def _check_process(self) -> None:
        # The threads that carry obstore's requests do not survive a fork: a request in the child would wait for ever.
        if os.getpid() != self._pid:
            raise Invalid(f"the connection to {self._place} was made in another process; connect again after the fork")

    def _check_bucket(self, error: Exception) -> None:
        if _code(error) in _NO_BUCKET:
            raise self._no_bucket() from error

    def _no_bucket(self) -> NotFound:
        return NotFound(f"there is no bucket {self._place}; create it, or correct the name, region or endpoint")

    def _failed(self, what: str, error: Exception) -> BucketMQError:
        kind, cure = _diagnosis(error)
        if kind is NotFound:
            return self._no_bucket()
        return kind(f"cannot {what} in {self._place}: {_reason(error)}; {cure}")


# obstore has no fields for the status and code of an answer, only this text. Its form is pinned by tests.
_STATUS_WORDS = "Server returned non-2xx status code: "
_STATUS = re.compile(_STATUS_WORDS + r"(\d{3})")
_CODE = re.compile(r"<Code>\s*(\w+)\s*</Code>|\"(?:reason|code)\": *\"(\w+)\"")
_TRANSPORT = re.compile(r"HttpError \{\s*kind: (\w+)")
_CREDENTIALS = re.compile(
    r"Generic \w+ error: Error performing (?:token request|CreateSession request"
    r"|\w+ https?://(?:169\.254\.|\[fd00:ec2::|metadata\.google|oauth2\.google|sts\.|login\.microsoft))"
    r"|The operation lacked valid authentication credentials for path External \w+ credential provider"
)

_NO_BUCKET = frozenset({"NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted"})
_BAD_CREDENTIALS = frozenset(
    {"ExpiredToken", "InvalidToken", "TokenRefreshRequired", "InvalidAccessKeyId", "SignatureDoesNotMatch"}
)
_WRONG_REGION = frozenset({"AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException"})


def _may_have_landed(error: Exception) -> bool:
    """Whether a write that failed like this may be in the store, now or later."""
    if _asks_for_credentials(error) or isinstance(error, _NEVER_SENT):
        return False
    status = _status(error)
    if status is None:
        return "redirect without LOCATION" not in str(error)
    if status == HTTPStatus.NOT_IMPLEMENTED:
        return False
    # S3 says 400 RequestTimeout when the body came too slowly.
    return (
        status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
        or status >= HTTPStatus.INTERNAL_SERVER_ERROR
        or _code(error) == "RequestTimeout"
    )


_NEVER_SENT = (InvalidPathError, NotSupportedError, PermissionDeniedError, UnauthenticatedError)


def _diagnosis(error: Exception) -> tuple[type[BucketMQError], str]:
    """Which error it is for the caller, and what the caller can do."""
    status, code = _status(error), _code(error)
    if _asks_for_credentials(error):
        return Denied, "no credentials came: set them in the environment, name a profile, or give this machine a role"
    if isinstance(error, InvalidPathError):
        return Invalid, "use another key"
    if "redirect without LOCATION" in str(error) or code in _WRONG_REGION:
        return Invalid, "the bucket is in another region: give it as region=..."
    if (
        isinstance(error, PermissionDeniedError | UnauthenticatedError)
        or status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
        or code in _BAD_CREDENTIALS
    ):
        return Denied, "check the credentials, and their permission to get, put, delete and list there"
    if isinstance(error, NotSupportedError) or status == HTTPStatus.NOT_IMPLEMENTED:
        return Unsupported, "this store lacks conditional writes; use one that has them"
    if status == HTTPStatus.NOT_FOUND:
        return NotFound, ""
    return Unavailable, "see whether the endpoint is right and up, then try again"


def _asks_for_credentials(error: Exception) -> bool:
    return _CREDENTIALS.match(str(error)) is not None


def _status(error: Exception) -> int | None:
    found = _STATUS.search(str(error))
    return int(found[1]) if found else None


def _code(error: Exception) -> str | None:
    answer = str(error).partition(_STATUS_WORDS)[2]  # what comes before may quote the key
    found = _CODE.search(answer)
    return (found[1] or found[2]) if found else None


def _reason(error: Exception) -> str:
    """A few words for people. The whole text may quote a long answer; it is the cause of what is raised."""
    status, transport = _status(error), _TRANSPORT.search(str(error))
    if status is not None:
        return f"HTTP {status} {_code(error) or ''}".strip()
    if transport is not None:
        return _TRANSPORT_WORDS.get(transport[1], f"the request failed ({transport[1]})")
    return str(error).partition("\n")[0][:200]


_TRANSPORT_WORDS = {
    "Connect": "no connection",
    "Timeout": "no answer in time",
    "Interrupted": "the connection broke",
    "Request": "the connection broke",
    "Decode": "the answer could not be read",
}
