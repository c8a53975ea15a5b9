"""Listing users' objects below a prefix, a range at a time: BucketMQ's own keys are passed over.

What sweeps, replays, audits and dry runs have in common. A prefix is text, as on S3: `logs/2026-1` is the beginning of
keys, not a folder.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from operator import attrgetter

from bucketmq.errors import Invalid
from bucketmq.events.inventory import Item
from bucketmq.log.layout import BOOKKEEPING, is_bookkeeping, join
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.verbs import list_page

RANGE_KEYS = 10_000
RANGE_KEYS_LOCAL = 50_000
"""How many keys are listed at a time. A folder's listing costs a walk each time, so it is asked for more."""

LAST = "\U0010ffff"
"""Sorts behind everything that begins with the text before it."""

by_key: Callable[[Item], str] = attrgetter("key")


def check_prefix(prefix: str) -> str:
    """Raise `Invalid` unless users' objects can begin with this text."""
    if prefix.startswith("/"):
        raise Invalid(f"the prefix {prefix!r} must not begin with '/': keys do not; write it like 'pending/'")
    if "/" in prefix and is_bookkeeping(prefix):
        raise Invalid(
            f"{prefix!r} is among BucketMQ's own keys ({', '.join(sorted(BOOKKEEPING))}); choose another prefix"
        )
    return prefix


def list_items(
    bucket: OpenBucket, prefix: str, position: str = "", upto: str = "", range_keys: int | None = None
) -> Procedure[tuple[list[Item], str | None]]:
    """The objects behind `position` and up to `upto`, and how far the listing came if it was cut short. One LIST per
    1,000 keys."""
    root = join(bucket.prefix, "") + ("/" if bucket.prefix else "")
    folder = prefix[: prefix.rfind("/") + 1]  # a store lists folders; what else a prefix says is seen to here
    if folder != prefix:
        position = max(position, _before(prefix))
        upto = min(upto or LAST, prefix + LAST)
    items: list[Item] = []
    limit = range_keys or (RANGE_KEYS_LOCAL if bucket.local else RANGE_KEYS)
    after = position
    while True:
        page = yield from list_page(root + folder, after=root + after if after else "", limit=limit)
        cut = len(root)
        listed = [Item(each.key[cut:], each.version, each.stored_at, each.size_bytes) for each in page.entries]
        listed.sort(key=by_key)
        stop = bisect_right(listed, upto, key=by_key) if upto else len(listed)
        ours = _bookkeeping_in(listed) if not folder else stop
        taken = listed[: min(stop, ours, limit - len(items))]
        items += taken if folder == prefix else [item for item in taken if item.key.startswith(prefix)]
        if len(items) >= limit:
            return items, items[-1].key if page.more or len(taken) < len(listed) else None
        if ours < stop:
            after = listed[ours].key.split("/", 1)[0] + "/" + LAST
        elif stop < len(listed) or not page.more:
            return items, None
        else:
            after = listed[-1].key


def all_items(bucket: OpenBucket, prefix: str) -> Procedure[list[Item]]:
    """All objects with this prefix, however many. One LIST per 1,000 keys."""
    found: list[Item] = []
    position: str | None = ""
    while position is not None:
        items, position = yield from list_items(bucket, prefix, position)
        found += items
    return found


def _before(prefix: str) -> str:
    """A text that sorts before every key with this prefix, and behind most others."""
    before = ord(prefix[-1]) - 1
    if before < 0x20 or 0xD7FF < before < 0xE000:
        return prefix[:-1]
    return prefix[:-1] + chr(before) + LAST


def _bookkeeping_in(items: list[Item]) -> int:
    """The place of the first key that is our own; behind the end if there is none."""
    return next((place for place, item in enumerate(items) if is_bookkeeping(item.key)), len(items))
