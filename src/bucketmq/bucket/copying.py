"""Copying one state of an object to a free key inside the store, which obstore has no verb for.

`bucketmq.bucket.objects` is given one or more of these as `copy_ways`, proves on objects of its own that the store
honours both conditions, and does without where it does not. A way raises obstore's errors, or an `HttpFailure`, as any
request may. Which answer means what belongs to `bucketmq.bucket.objects`.
"""

from __future__ import annotations

import contextlib
import html
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote, urlencode

from obstore.exceptions import BaseError

from bucketmq.bucket.port import Found
from bucketmq.bucket.sending import CannotSign, HttpFailure, Sender, address, code_in
from bucketmq.bucket.sigv4 import signed
from bucketmq.errors import BucketMQError

if TYPE_CHECKING:
    from obstore.store import AzureStore, GCSStore, S3Credential, S3Store

PART_BYTES = 1 << 30
"""What one request copies of an object that is copied in parts. Few requests, each done within its timeout."""

PARTS_ABREAST = 8
PARTS_MAX = 10_000

_ETAG = re.compile(rb"<ETag>\s*([^<\s]+)\s*</ETag>")
_NO_QUERY: Mapping[str, str] = {}
_UPLOAD = re.compile(rb"<UploadId>\s*([^<\s]+)\s*</UploadId>")


class CopyWay(Protocol):
    """Have the store copy an object, unless the source is in another state than `source` or the target is taken.

    `attributes` are those of the target, none of the source's. Returns the version of the target as it stands in a
    header, or None where the answer does not say.
    """

    bytes_max: int
    """The largest object that goes this way."""

    def __call__(self, key: str, target: str, source: Found, attributes: Mapping[str, str]) -> str | None: ...


class SignedRequests:
    """Requests to S3 that obstore does not make. It knows the address; the headers are signed here, with keys that
    `credentials` gives."""

    def __init__(
        self, client: S3Store, *, bucket: str, region: str, credentials: Callable[[], S3Credential], send: Sender
    ) -> None:
        self._client = client
        self._bucket = bucket
        self._region = region
        self._credentials = credentials
        self._send = send

    def source(self, key: str, version: str) -> dict[str, str]:
        """The headers that name one state of an object as a source."""
        path = f"/{quote(self._bucket, safe='')}/{quote(key, safe='/')}"
        return {"x-amz-copy-source": path, "x-amz-copy-source-if-match": version}

    def __call__(
        self,
        method: str,
        key: str,
        headers: Mapping[str, str],
        query: Mapping[str, str] = _NO_QUERY,
        body: bytes = b"",
    ) -> bytes:
        """The beginning of the answer's body. S3 may say 200 before it is done, and how it went only there."""
        url = address(self._client, "PUT", key).partition("?")[0]
        if query:
            url += "?" + urlencode(sorted(query.items()), quote_via=quote, safe="")
        try:
            keys = self._credentials()
        except (BaseError, BucketMQError, OSError, ValueError) as error:
            raise CannotSign(str(error)) from error
        sent = signed(method, url, headers, body, keys=keys, region=self._region, at=datetime.now(UTC))
        answer = self._send(method, url, sent, body).body
        code = code_in(answer)
        if code is not None:
            status = _STATUSES.get(code, HTTPStatus.INTERNAL_SERVER_ERROR)
            raise HttpFailure(f"HTTP {status:d} {code}", status, code)
        return answer

    def __repr__(self) -> str:
        return "SignedRequests()"


class S3Copy:
    """S3's CopyObject."""

    bytes_max = 5 << 30

    def __init__(self, request: SignedRequests) -> None:
        self._request = request

    def __call__(self, key: str, target: str, source: Found, attributes: Mapping[str, str]) -> str:
        headers = {
            "if-none-match": "*",
            "x-amz-metadata-directive": "REPLACE",
            "x-amz-tagging-directive": "REPLACE",
            **self._request.source(key, source.version),
            **_headers(attributes, "content-type", "x-amz-meta-"),
        }
        return _hash_in(self._request("PUT", target, headers))


class S3PartsCopy:
    """S3's UploadPartCopy: for what is too large for one request. Nobody sees the parts before they become one object,
    under a condition; whoever dies before leaves an upload that a lifecycle rule of the bucket may abort."""

    bytes_max = PART_BYTES * PARTS_MAX

    def __init__(self, request: SignedRequests) -> None:
        self._request = request

    def __call__(self, key: str, target: str, source: Found, attributes: Mapping[str, str]) -> str:
        begun = self._request("POST", target, _headers(attributes, "content-type", "x-amz-meta-"), {"uploads": ""})
        upload = {"uploadId": _text_in(_UPLOAD, begun)}
        try:
            parts = self._parts(key, target, source, upload)
            return _hash_in(self._request("POST", target, {"if-none-match": "*"}, upload, parts))
        except BaseException:
            with contextlib.suppress(HttpFailure):
                self._request("DELETE", target, {}, upload)
            raise

    def _parts(self, key: str, target: str, source: Found, upload: dict[str, str]) -> bytes:
        """Copy all parts; what makes one object of them."""
        named = self._request.source(key, source.version)

        def part(number: int) -> str:
            begin = (number - 1) * PART_BYTES
            end = min(number * PART_BYTES, source.size_bytes) - 1
            headers = {**named, "x-amz-copy-source-range": f"bytes={begin}-{end}"}
            made = _hash_in(self._request("PUT", target, headers, {"partNumber": str(number), **upload}))
            return f"<Part><ETag>{html.escape(made)}</ETag><PartNumber>{number}</PartNumber></Part>"

        with ThreadPoolExecutor(PARTS_ABREAST, "copy") as pool:
            parts = pool.map(part, range(1, -(-source.size_bytes // PART_BYTES) + 1))
            return f"<CompleteMultipartUpload>{''.join(parts)}</CompleteMultipartUpload>".encode()


class BlobCopy:
    """Azure's Put Blob From URL, from one address that obstore signs to another: no signature covers the headers.

    Unlike Copy Blob it is done when it is answered, and what it makes is seen by nobody before.
    """

    bytes_max = 5000 << 20

    def __init__(self, client: AzureStore, send: Sender) -> None:
        self._client = client
        self._send = send

    def __call__(self, key: str, target: str, source: Found, attributes: Mapping[str, str]) -> str | None:
        headers = {
            "if-none-match": "*",
            "x-ms-blob-type": "BlockBlob",
            "x-ms-copy-source": address(self._client, "GET", key),
            "x-ms-copy-source-blob-properties": "false",
            "x-ms-source-if-match": source.version,
            **_headers(attributes, "x-ms-blob-content-type", "x-ms-meta-"),
        }
        return self._send("PUT", address(self._client, "PUT", target), headers).headers["ETag"]

    def __repr__(self) -> str:
        return "BlobCopy()"


class HeaderCopy:
    """Google's copy, through a client made for this one request, whose every request has conditions and attributes in
    its headers: tokens authorise it, and no signature covers them (`removal.HeaderDelete`)."""

    bytes_max = 5 << 40

    def __init__(self, client_with: Callable[[dict[str, str]], GCSStore]) -> None:
        self._client_with = client_with

    def __call__(self, key: str, target: str, source: Found, attributes: Mapping[str, str]) -> None:
        headers = {
            "x-goog-copy-source-if-generation-match": source.version,
            "x-goog-metadata-directive": "REPLACE",
            **_headers(attributes, "content-type", "x-goog-meta-"),
        }
        self._client_with(headers).copy(key, target, overwrite=False)


def _headers(attributes: Mapping[str, str], content_type: str, prefix: str) -> dict[str, str]:
    return {content_type if name == "Content-Type" else prefix + name: value for name, value in attributes.items()}


def _hash_in(answer: bytes) -> str:
    return '"' + _text_in(_ETAG, answer).strip('"') + '"'


def _text_in(pattern: re.Pattern[bytes], answer: bytes) -> str:
    found = pattern.search(answer)
    if found is None:
        raise HttpFailure("the answer could not be read")
    return html.unescape(found[1].decode("ascii", "replace"))


_STATUSES = {
    "PreconditionFailed": HTTPStatus.PRECONDITION_FAILED,
    "ConditionalRequestConflict": HTTPStatus.CONFLICT,
    "NoSuchKey": HTTPStatus.NOT_FOUND,
    "NoSuchBucket": HTTPStatus.NOT_FOUND,
    "AccessDenied": HTTPStatus.FORBIDDEN,
    "NotImplemented": HTTPStatus.NOT_IMPLEMENTED,
    "SlowDown": HTTPStatus.SERVICE_UNAVAILABLE,
}
"""What the status would have been, of errors that are told in the body of a 200."""
