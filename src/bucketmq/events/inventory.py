"""What a sweep saw, and how two such views differ. Pure.

An inventory is a list of keys with their states, cut into chunks that each cover a range of keys. A chunk is NDJSON,
one array a line: key, version, when it was stored, size. The manifest names the chunks in order (`objects.sweep`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from bucketmq.errors import Corrupt
from bucketmq.events.event import ObjectEvent, event_id, plain_version, time_text

FORMAT = 1


class Item(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One object as a listing told it."""

    key: str
    version: str | None
    stored_at: float
    size_bytes: int


class Chunk(msgspec.Struct, frozen=True, omit_defaults=True):
    """One chunk of the inventory: all keys up to and with `upto` that the chunk before does not cover; the last one,
    whose `upto` is empty, covers all that follow."""

    name: str
    count: int
    upto: str = ""


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """`inventory/sweeps/<name>/manifest.json`."""

    prefix: str = ""
    chunks: tuple[Chunk, ...] = ()
    baseline: bool = False
    """Whether what the first sweep found was only noted, not reported."""
    first_to: str | None = ""
    """How far the first sweep has come; None when it is over."""
    position: str = ""
    """How far the sweep that is under way has come; empty when none is."""
    revision: int = 0
    """Grows with every change, so that equal bytes never recur."""
    format: int = FORMAT


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Item)


def encode_items(items: Iterable[Item]) -> bytes:
    return _encoder.encode_lines(items)


def decode_items(body: bytes, key: str) -> list[Item]:
    try:
        return _decoder.decode_lines(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(
            f"{key} is not a part of an inventory ({error}); delete the sweep's folder to start over"
        ) from None


def same_state(before: Item, after: Item) -> bool:
    """Whether the object was not written in between. Equal bytes written again are a change: the date tells."""
    if before.version is not None and after.version is not None and before.version != after.version:
        return False
    return before.stored_at == after.stored_at and before.size_bytes == after.size_bytes


def changes(before: Sequence[Item], after: Sequence[Item]) -> Iterator[tuple[Item | None, Item | None]]:
    """The states that differ, old and new beside each other; None where there is none. Both are sorted by key."""
    old, new = iter(before), iter(after)
    left, right = next(old, None), next(new, None)
    while left is not None or right is not None:
        if right is None or (left is not None and left.key < right.key):
            yield left, None
            left = next(old, None)
        elif left is None or right.key < left.key:
            yield None, right
            right = next(new, None)
        else:
            if not same_state(left, right):
                yield left, right
            left, right = next(old, None), next(new, None)


def differences(
    before: Sequence[Item], after: Sequence[Item], *, bucket: str = "", exact: bool = False
) -> Iterator[ObjectEvent]:
    """What is new, changed or gone. Both are sorted by key. The same two states always give the same ids."""
    for old, new in changes(before, after):
        if new is not None:
            yield there(new, bucket=bucket, exact=exact, changed=old is not None)
        elif old is not None:
            yield gone(old, bucket=bucket)


def there(item: Item, *, bucket: str = "", exact: bool = False, changed: bool = False) -> ObjectEvent:
    """The event of a state that a listing shows."""
    version = None if item.version is None else plain_version(item.version)
    at = time_text(item.stored_at)
    return ObjectEvent(
        id=event_id("sweep", bucket, item.key, "there", version, at),
        kind="changed" if changed else "created",
        key=item.key,
        at=at,
        source="sweep",
        bucket=bucket,
        size_bytes=item.size_bytes,
        version=version,
        exact=exact and version is not None,
    )


def gone(item: Item, *, bucket: str = "") -> ObjectEvent:
    """The event of a state that a listing does not show any more. When it went nobody knows: since it was stored."""
    version = None if item.version is None else plain_version(item.version)
    at = time_text(item.stored_at)
    return ObjectEvent(
        id=event_id("sweep", bucket, item.key, "gone", version, at),
        kind="deleted",
        key=item.key,
        at=at,
        source="sweep",
        bucket=bucket,
        version=version,
        seen_at=at,
    )
