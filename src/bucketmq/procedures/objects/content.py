"""What a user gives as an object's body, as bytes and content type, and back. Pure: no requests here."""

from __future__ import annotations

import mimetypes
from typing import Any

import msgspec

from bucketmq.errors import Invalid
from bucketmq.log.bodies import check_finite
from bucketmq.procedures.objects.keys import check_object_key
from bucketmq.procedures.objects.put import Put


def encode_content(key: str, body: object, content_type: str | None = None) -> tuple[bytes, str]:
    """An object's bytes and content type: bytes and text as they are, anything else as JSON.

    The type is the one given, or the one that the key's ending stands for; JSON is always `application/json`.
    """
    check_object_key(key)
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body), content_type or mimetypes.guess_type(key)[0] or "application/octet-stream"
    if isinstance(body, str):
        try:
            return body.encode(), content_type or mimetypes.guess_type(key)[0] or "text/plain; charset=utf-8"
        except UnicodeEncodeError as error:
            raise Invalid(f"the body of {key!r} is not text that can be written ({error}); give bytes") from None
    try:
        data = msgspec.json.encode(body)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Invalid(f"the body of {key!r} is not JSON ({error}); give bytes, text or plain values") from None
    check_finite([body], data)
    return data, content_type or "application/json"


def encode_put(wanted: Put) -> Put:
    """The same with bytes for its body."""
    if not isinstance(wanted, Put):
        raise Invalid(f"an object to write is given as Put(key, body), not as {type(wanted).__name__}")
    data, kind = encode_content(wanted.key, wanted.body, wanted.content_type)
    return msgspec.structs.replace(wanted, body=data, content_type=kind)


def decode_content(key: str, body: bytes) -> Any:
    """The JSON that an object holds, or `Invalid`."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(f"the object {key!r} is not JSON: {error}") from None
