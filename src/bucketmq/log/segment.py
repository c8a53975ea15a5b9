"""Segments: messages <-> NDJSON. A segment is plain lines, or one line that names parts holding the lines.

Reading is in steps so that nobody pays for what they do not look at: counting lines decodes nothing, and a slice
decodes its own lines only.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from bucketmq.errors import Corrupt, Invalid
from bucketmq.queue.message import Message

LINES_BYTES_MAX = 4 << 20
"""A group of sends is cut into segments of about this size."""

DEPTH_MAX = 200
"""How deep a body may nest. A reader's stack is finite, and a body it cannot decode would stop the whole segment."""


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """An object of `count` lines that a segment of parts names. `key` is relative to the queue."""

    key: str
    count: int
    size_bytes: int
    xxh3: str = ""
    """The hash of its bytes, if its writer vouches for its lines: each is a message, in UTF-8, and its body comes last.
    Who finds the hash right need not look."""


class Parts(msgspec.Struct, frozen=True):
    """The only line of a segment of parts."""

    parts: tuple[Part, ...]
    id: str
    """Names the publication, as the first message's id does in a segment of lines."""


class Segment:
    """One segment as read: its place, its bytes, and what has been decoded of them."""

    __slots__ = ("_all", "_lines", "base", "body", "count", "parts")

    def __init__(self, base: int, body: bytes) -> None:
        self.base = base
        self.body = body
        self.parts: tuple[Part, ...] = ()
        self._lines: list[bytes] | None = None
        self._all: list[Message] | None = None
        if not body.endswith(b"\n"):
            raise Corrupt(f"segment {base} does not end with a line feed: it is cut off or not a segment; restore it")
        if body.startswith(b'{"parts"'):
            self.parts = _decode(_parts_decoder, body, f"segment {base}").parts
            self.count = sum(part.count for part in self.parts)
            if not self.parts or any(part.count < 1 for part in self.parts):
                raise Corrupt(f"segment {base} names parts that hold nothing; restore it from a copy")
        else:
            self.count = body.count(b"\n")

    @property
    def end(self) -> int:
        return self.base + self.count

    @property
    def special(self) -> bool:
        """Whether a line may be a fence or for one subscription only: a cheap look that may say yes too often.

        A fence is alone in its segment, and lines for one subscription only come by moves, which mark every line, so
        the first line tells.
        """
        first = self.body[: self.body.index(b"\n")]
        return b'"fence":' in first or b'"move":' in first

    def first_line(self) -> Message | Parts:
        line = self.body[: self.body.index(b"\n")]
        found: Message | Parts = _decode(_parts_decoder if self.parts else _decoder, line, f"segment {self.base}")
        return found

    def check(self) -> list[Message]:
        """All messages; `Corrupt` if one cannot be read. Decodes once. Not for segments of parts."""
        if self._all is None:
            found = decode_lines(self.body, f"segment {self.base}")
            if len(found) != self.count:
                raise Corrupt(f"segment {self.base} has {len(found)} messages in {self.count} lines; restore it")
            self._all = found
        return self._all

    def messages(self, start: int, stop: int) -> list[Message]:
        """The messages of offsets `start` to `stop`; not for segments of parts."""
        if self._all is not None or (start == self.base and stop == self.end):
            return self.check()[start - self.base : stop - self.base]
        if self._lines is None:
            self._lines = self.body.split(b"\n")
        chosen = self._lines[start - self.base : stop - self.base]
        return [_decode(_decoder, line, f"offset {start + i}") for i, line in enumerate(chosen)]


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Message)
_parts_decoder = msgspec.json.Decoder(Parts)
_any_decoder = msgspec.json.Decoder()

_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")


def encode(messages: Iterable[Message]) -> bytes:
    """One line for each message, each ended by a line feed."""
    data = _encode_lines(messages)
    if len(data) > 2 * DEPTH_MAX:
        for line in data.split(b"\n"):
            if len(line) > 2 * DEPTH_MAX:
                _check_depth(line, DEPTH_MAX + 1)  # the body lies one level deep in its line
    return data


def encode_bodies(values: Iterable[Any]) -> bytes:
    """One line for each body, each ended by a line feed: the bytes that `encode` writes for it.

    Those longer than `2 * DEPTH_MAX` are still to be checked with `check_body`.
    """
    return _encode_lines(values)


def check_body(data: bytes) -> None:
    """`Invalid` if a body, as JSON, is nested too deep to be read again."""
    _check_depth(data, DEPTH_MAX)


def _encode_lines(values: Iterable[Any]) -> bytes:
    try:
        return _encoder.encode_lines(values)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Invalid(f"the message cannot be written as JSON ({error}); send JSON values, text or bytes") from error


def has_long_line(data: bytes, size_bytes: int) -> bool:
    """Whether a line is longer than this. Looks only at a few places: strides as long as a line may be."""
    start = 0
    while len(data) - start > size_bytes:
        end = data.rfind(b"\n", start, start + size_bytes + 1)
        if end < 0:
            return True
        start = end + 1
    return False


def encode_parts(name: str, parts: Sequence[Part]) -> bytes:
    return _encoder.encode(Parts(tuple(parts), name)) + b"\n"


def decode_lines(body: bytes, what: str) -> list[Message]:
    try:
        return _decoder.decode_lines(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"{what} has a line that is not a message ({error}); restore it from a copy") from error


def encode_body(value: Any) -> bytes:
    """A body as bytes of its own, for measuring and for large ones."""
    try:
        data = _encoder.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Invalid(f"the body cannot be written as JSON ({error}); send JSON values, text or bytes") from error
    _check_depth(data, DEPTH_MAX)
    return data


def _check_depth(data: bytes, depth: int) -> None:
    """What is nested too deep can be written but not read again, so it must not get into the log."""
    if data.count(b"[") + data.count(b"{") > depth and _deeper(data, depth):
        raise Invalid(f"the body is nested deeper than {DEPTH_MAX}; flatten it, or send it as bytes")


def _deeper(data: bytes, depth: int) -> bool:
    """Whether JSON nests deeper than `depth`: leave only the brackets, then take away the innermost pairs so often."""
    outside_text = data.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2]
    brackets = b"".join(outside_text).translate(_ONE_KIND, delete=_NO_BRACKETS)
    while brackets and depth:
        brackets, depth = brackets.replace(b"[]", b""), depth - 1
    return bool(brackets)


def decode_body(data: bytes, what: str) -> Any:
    return _decode(_any_decoder, data, what)


def to_base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def from_base64(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Corrupt(f"{what} has a body that is not base64 ({error})") from error


def time_text(seconds: float) -> str:
    """A time as the format writes it: RFC 3339, UTC, milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def time_seconds(text: str) -> float:
    """The reverse of `time_text`."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise Corrupt(f"{text[:40]!r} is not an RFC 3339 time") from error
    if moment.tzinfo is None:
        raise Corrupt(f"{text[:40]!r} does not say how far it is from UTC, as RFC 3339 wants")
    return moment.timestamp()


def _decode(decoder: msgspec.json.Decoder[Any], data: bytes, what: str) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"{what} cannot be read ({error}); restore it from a copy") from error
