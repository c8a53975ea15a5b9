"""Bodies: a caller's value <-> bytes. JSON for everything but bytes, which are base64 where they lie in a line.

What is written must be readable again, and be the same value. So a body that nests too deep is refused, and one with a
NaN or an infinity, which JSON does not have: the encoder would write null for it.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from bucketmq.errors import Corrupt, Invalid

DEPTH_MAX = 200
"""How deep a body may nest. A reader's stack is finite, and a body it cannot decode would stop the whole segment."""

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()
_packer = msgspec.msgpack.Encoder()

_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_NULL = re.compile(b"null")
"""Finds it in half the time that `in` takes."""
_NOT_FINITE = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")
"""A double in MessagePack whose exponent is that of NaN and infinity; and some other bytes."""


def encode_body(value: Any) -> bytes:
    """A body as bytes of its own; `Invalid` if it cannot be read back as it is."""
    try:
        data = _encoder.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Invalid(f"the body cannot be written as JSON ({error}); send JSON values, text or bytes") from error
    check_depth(data)
    check_finite([value], data)
    return data


def encode_bodies(values: Sequence[Any]) -> bytes:
    """One line for each body, each ended by a line feed: the bytes that `segment.encode` writes for it.

    The depth of those longer than `2 * DEPTH_MAX` is still to be checked with `check_depth`.
    """
    data = encode_lines(values)
    check_finite(values, data)
    return data


def encode_lines(values: Sequence[Any]) -> bytes:
    """One line of JSON for each value, each ended by a line feed."""
    try:
        return _encoder.encode_lines(values)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Invalid(f"the message cannot be written as JSON ({error}); send JSON values, text or bytes") from error


def decode_body(data: bytes, what: str) -> Any:
    return decoded(_decoder, data, what)


def decoded(decoder: msgspec.json.Decoder[Any], data: bytes, what: str) -> Any:
    """What the decoder makes of JSON of ours, or `Corrupt`."""
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"{what} cannot be read ({error}); restore it from a copy") from error


def check_finite(values: Sequence[Any], data: bytes) -> None:
    """`Invalid` if one of the bodies has a NaN or an infinity, naming the field. `data` is what they were encoded to.

    Such a number is null in the data, so a look at the bytes is enough where nothing is null. Otherwise the bodies are
    packed, which keeps these numbers and takes as long as encoding. Only where that shows one are they walked through.
    """
    if _NULL.search(data) is None:
        return
    try:
        if _NOT_FINITE.search(_packer.encode(values)) is None:
            return
    except (TypeError, ValueError, OverflowError, RecursionError):
        pass  # not everything that JSON can say can be packed, such as integers of more than 64 bits
    for place, value in enumerate(values):
        for path, number in _not_finite(msgspec.to_builtins(value)):
            name = "body" if len(values) == 1 else f"bodies[{place}]"
            raise Invalid(f"{name}{path} is {number}, which JSON does not have; send None for it, or a text")


def _not_finite(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(value, float):
        if not math.isfinite(value):
            yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            plain = isinstance(key, str) and key.isidentifier()
            yield from _not_finite(item, f"{path}.{key}" if plain else f"{path}[{key!r}]")
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            yield from _not_finite(item, f"{path}[{place}]")


def check_depth(data: bytes, depth: int = DEPTH_MAX) -> None:
    """`Invalid` if JSON nests deeper: that can be written but not read again, so it must not get into the log."""
    if data.count(b"[") + data.count(b"{") > depth and _deeper(data, depth):
        raise Invalid(f"the body is nested deeper than {DEPTH_MAX}; flatten it, or send it as bytes")


def _deeper(data: bytes, depth: int) -> bool:
    """Whether JSON nests deeper than `depth`: leave only the brackets, then take away the innermost pairs so often."""
    outside_text = data.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2]
    brackets = b"".join(outside_text).translate(_ONE_KIND, delete=_NO_BRACKETS)
    while brackets and depth:
        brackets, depth = brackets.replace(b"[]", b""), depth - 1
    return bool(brackets)


def to_base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def from_base64(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Corrupt(f"{what} has a body that is not base64 ({error})") from error
