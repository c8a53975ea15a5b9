"""The bytes of an object to lines, whatever it is: unpacked up to a limit, decoded with care, each line by its format.

A line that is not what its neighbours are is text; nothing makes a whole object unreadable but its size. An object that
ends in the middle, or is damaged, gives what came before, and a line that says so.
"""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime

from bucketmq.apps.logs.parse.formats import unwrapped
from bucketmq.apps.logs.parse.lines import TEXT_CHARS_MAX, Line
from bucketmq.apps.logs.parse.structured import otlp, structured
from bucketmq.apps.logs.parse.text import Entries
from bucketmq.errors import Invalid

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
CHUNK_BYTES = 1 << 20
DAMAGED = "bucketmq: this object is damaged, the rest of it cannot be read"


class TooLarge(Invalid):
    """An object that unpacks to more than is allowed."""


def read(content: bytes, *, at: float, bytes_max: int, key_field: str = "") -> Iterator[Line]:
    """The lines of an object that was written at this time. `TooLarge` before more than `bytes_max` are in memory."""
    data, whole = unpacked(content, bytes_max)
    near = datetime.fromtimestamp(at, UTC)
    entries = Entries(near)
    text = decoded(data)
    request = _request(text, key_field)
    if request is not None:
        yield from request
    else:
        for written in text.splitlines() if "\r" in text else text.split("\n"):
            moment, line = unwrapped(written)
            found = structured(line, key_field=key_field, at=moment)
            if found is None:
                yield from entries.add(line[: 4 * TEXT_CHARS_MAX], moment)
            else:
                yield from entries.end()
                yield from found
        yield from entries.end()
    if not whole:
        yield Line(at, "error", DAMAGED)


def _request(text: str, key_field: str) -> Iterator[Line] | None:
    """An OTLP request written over several lines, as a whole."""
    start = text[:4096].lstrip()
    if start[:1] != "{" or "resourceLogs" not in start or start[1:2] not in ("\n", "\r", " "):
        return None
    import msgspec

    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return otlp(found, key_field=key_field) if isinstance(found, dict) else None


def decoded(data: bytes) -> str:
    """As text, with a mark in place of what is not."""
    for mark, name in (
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
    ):
        if data.startswith(mark):
            return data[len(mark) :].decode(name, "replace")
    return data.decode("utf-8", "replace")


def unpacked(content: bytes, bytes_max: int) -> tuple[bytes, bool]:
    """The bytes, and whether they are all."""
    if content.startswith(GZIP):
        return _gunzipped(content, bytes_max)
    if content.startswith(ZSTD):
        return _unzstd(content, bytes_max)
    if len(content) > bytes_max:
        raise _too_large(bytes_max)
    return content, True


def _gunzipped(content: bytes, bytes_max: int) -> tuple[bytes, bool]:
    """All members of a gzip file, as rotated logs are."""
    parts: list[bytes] = []
    size = 0
    while content:
        stream = zlib.decompressobj(wbits=31)
        rest = content
        while not stream.eof:
            try:
                part = stream.decompress(rest, CHUNK_BYTES)
            except zlib.error:
                # Padding behind a member is not damage.
                return b"".join(parts), bool(parts) and not content.strip(b"\0")
            rest = stream.unconsumed_tail
            if not part and not rest and not stream.eof:
                return b"".join(parts), False
            parts.append(part)
            size += len(part)
            if size > bytes_max:
                raise _too_large(bytes_max)
        content = stream.unused_data
    return b"".join(parts), True


def _unzstd(content: bytes, bytes_max: int) -> tuple[bytes, bool]:
    import pyarrow as pa

    parts: list[bytes] = []
    size = 0
    with pa.CompressedInputStream(pa.BufferReader(content), "zstd") as stream:
        while True:
            try:
                part = stream.read(CHUNK_BYTES)
            except OSError:
                return b"".join(parts), False
            if not part:
                return b"".join(parts), True
            parts.append(part)
            size += len(part)
            if size > bytes_max:
                raise _too_large(bytes_max)


def _too_large(bytes_max: int) -> TooLarge:
    return TooLarge(f"unpacks to more than {bytes_max:,} bytes; write smaller objects, or raise unpacked_bytes_max")
