"""The small JSON documents: heads, settings, and the registers that are replaced with a condition."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from bucketmq.errors import Corrupt, Invalid
from bucketmq.queue.head import Head, Target, check
from bucketmq.queue.message import Failure
from bucketmq.queue.settings import FORMAT, Settings, check_settings


class Trim(msgspec.Struct, frozen=True):
    """`trim/<shard>.json`: the lowest offset that still exists. It only grows."""

    low: int
    format: int = FORMAT
    before: int | msgspec.UnsetType = msgspec.UNSET
    """What `low` was before: between the two lies what was passed when this document was written."""


class Hint(msgspec.Struct, frozen=True):
    """`hint/<shard>.json`: the base of some segment near the tail. It shortens a search and decides nothing."""

    base: int
    format: int = FORMAT


class DedupEntry(msgspec.Struct, frozen=True, array_like=True):
    """What a deduplication key was used for: the message, when, and the segment it was meant for."""

    id: str
    at: float
    shard: int
    base: int


SPLIT_FORMAT = 2
"""The format of a deduplication register that has split: a program that does not know of it would write on in it."""


class Dedup(msgspec.Struct, frozen=True):
    """`dedup/<slot>.json`: deduplication keys that are inside the window, those whose hash belongs to this register."""

    version: int = 0
    sent: dict[str, DedupEntry] = {}
    format: int = FORMAT
    split: bool | msgspec.UnsetType = msgspec.UNSET
    """True once it was full: it gets no more entries, they go to the registers below it."""


class Group(msgspec.Struct, frozen=True, omit_defaults=True):
    """Delayed objects that are on their way into the log, and the segments they were meant for.

    `cuts` says for each target which of the messages are meant: those whose key belongs to shard s when there are n
    shards, for each pair (n, s). The group is divided so by any process that finishes it,
    whatever the shard count is by then.
    """

    names: tuple[str, ...]
    targets: tuple[Target, ...]
    cuts: tuple[tuple[tuple[int, int], ...], ...]


class Later(msgspec.Struct, frozen=True):
    """`later.json`: what is being moved from `later/` into the log, and what was, not long ago."""

    version: int = 0
    groups: tuple[Group, ...] = ()
    finished: dict[str, float] = {}
    format: int = FORMAT


class FailureLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a failure record."""

    shard: int
    offset: int
    failure: Failure


BATCH_FORMAT = 2
"""The format of a note that announces several writes: a program that does not know of it leaves it where it is."""


class _Stamp(msgspec.Struct):
    """The one field that documents of every format have; one without it is of the first."""

    format: int = 1


_NEWEST = {"Dedup": SPLIT_FORMAT, "BatchNote": BATCH_FORMAT}
"""The kinds of documents that have had more than the first format."""

Document = TypeVar("Document")

_encoder = msgspec.json.Encoder()
_failure_decoder = msgspec.json.Decoder(FailureLine)


def encode(document: object) -> bytes:
    return _encoder.encode(document) + b"\n"


def decode(kind: type[Document], body: bytes, key: str) -> Document:
    """The document in `body`, or `Corrupt`."""
    try:
        stamp = msgspec.json.decode(body, type=_Stamp)  # first: a newer format may look different altogether
        newest = _NEWEST.get(kind.__name__, FORMAT)
        if not FORMAT <= stamp.format <= newest:
            raise Corrupt(f"{key} has format {stamp.format}, this release reads up to {newest}; upgrade bucketmq")
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"{key} cannot be read as {kind.__name__} ({error}); restore it from a copy") from error


def format_of(body: bytes, key: str) -> int:
    """Which format a document says it has, or `Corrupt`."""
    try:
        return msgspec.json.decode(body, type=_Stamp).format
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"{key} is not a document ({error}); restore it from a copy") from error


def decode_head(body: bytes, key: str) -> Head:
    head = decode(Head, body, key)
    try:
        return check(head)
    except Corrupt as error:
        raise Corrupt(f"{key}: {error}") from None


def decode_settings(body: bytes, key: str) -> Settings:
    settings = decode(Settings, body, key)
    try:
        return check_settings(settings)
    except Invalid as error:
        raise Corrupt(f"{key}: {error}; correct it") from None


def encode_failures(lines: list[FailureLine]) -> bytes:
    return _encoder.encode_lines(lines)


def decode_failures(body: bytes, key: str) -> list[FailureLine]:
    try:
        return _failure_decoder.decode_lines(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"{key} is not a failure record ({error})") from error
