"""Segments: messages <-> NDJSON. A segment is plain lines, or one line that names parts holding the lines.

What a body may be is `log.bodies`.

Reading is in steps, so that what is not looked at costs nothing: counting lines decodes nothing, and a slice
decodes its own lines only.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from operator import attrgetter

import msgspec

from bucketmq.errors import Corrupt
from bucketmq.log.bodies import DEPTH_MAX, check_depth, decoded, encode_lines
from bucketmq.queue.message import Message

LINES_BYTES_MAX = 4 << 20
"""A group of sends is cut into segments of about this size."""


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """An object of `count` lines that a segment of parts names. `key` is relative to the queue."""

    key: str
    count: int
    size_bytes: int
    xxh3: str = ""
    """The hash of its bytes, if its writer vouches for its lines: each is a message, in UTF-8, and its body comes last.
    A reader that finds the hash right need not check them."""


class Parts(msgspec.Struct, frozen=True):
    """The only line of a segment of parts."""

    parts: tuple[Part, ...]
    id: str
    """Names the publication, as the first message's id does in a segment of lines."""


class Segment:
    """One segment as read: its place, its bytes, and what has been decoded of them."""

    __slots__ = ("_all", "_for_all", "_lines", "_name", "base", "body", "count", "parts")

    def __init__(self, base: int, body: bytes, key: str = "") -> None:
        self._name = key or f"segment {base}"
        self.base = base
        self.body = body
        self.parts: tuple[Part, ...] = ()
        self._lines: list[bytes] | None = None
        self._all: list[Message] | None = None
        self._for_all: bool | None = None
        if not body.endswith(b"\n"):
            raise Corrupt(f"{self._name} does not end with a line feed: it is cut off or not a segment; restore it")
        if body.startswith(b'{"parts"'):
            self.parts = decoded(_parts_decoder, body, self._name).parts
            self.count = sum(part.count for part in self.parts)
            if not self.parts or any(part.count < 1 for part in self.parts):
                raise Corrupt(f"{self._name} names parts that hold nothing; restore it from a copy")
        else:
            self.count = body.count(b"\n")

    @property
    def end(self) -> int:
        return self.base + self.count

    @property
    def fence(self) -> int | None:
        """The shard count that a fence announces. A fence is alone in its segment; None for one of messages."""
        if self.parts or b'"fence":' not in self.body[: self.body.index(b"\n")]:
            return None
        first = self.first_line()
        return first.fence if isinstance(first, Message) else None

    @property
    def is_for_all(self) -> bool:
        """Whether every line is a message for all subscriptions: no fence, and none with `to`. Decodes once."""
        if self._for_all is None:
            self._for_all = self.fence is None and (bool(self.parts) or {None}.issuperset(map(_to_of, self.check())))
        return self._for_all

    def first_line(self) -> Message | Parts:
        line = self.body[: self.body.index(b"\n")]
        found: Message | Parts = decoded(_parts_decoder if self.parts else _decoder, line, self._name)
        return found

    def check(self) -> list[Message]:
        """All messages; `Corrupt` if one cannot be read. Decodes once. Not for segments of parts."""
        if self._all is None:
            found = decode_lines(self.body, self._name)
            if len(found) != self.count:
                raise Corrupt(f"{self._name} has {len(found)} messages in {self.count} lines; restore it")
            self._all = found
        return self._all

    def messages(self, start: int, stop: int) -> list[Message]:
        """The messages of offsets `start` to `stop`; not for segments of parts."""
        if self._all is not None or (start == self.base and stop == self.end):
            return self.check()[start - self.base : stop - self.base]
        if self._lines is None:
            self._lines = self.body.split(b"\n")
        chosen = self._lines[start - self.base : stop - self.base]
        return [decoded(_decoder, line, f"offset {start + i} of {self._name}") for i, line in enumerate(chosen)]


_to_of = attrgetter("to")
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Message)
_parts_decoder = msgspec.json.Decoder(Parts)


def encode(messages: Sequence[Message]) -> bytes:
    """One line for each message, each ended by a line feed."""
    data = encode_lines(messages)
    if len(data) > 2 * DEPTH_MAX:
        lines = data.split(b"\n")
        if max(map(len, lines)) > 2 * DEPTH_MAX:
            for line in lines:
                if len(line) > 2 * DEPTH_MAX:
                    check_depth(line, DEPTH_MAX + 1)  # the body lies one level deep in its line
    return data


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
