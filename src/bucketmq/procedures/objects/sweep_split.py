"""Cutting a sweep for many workers: shares of about the same size, and ranges of keys that no sweep has looked at yet.

A round: `split` the work, hand each worker one of its `shares`, and when all are back have the manifest replaced
(`sweep.take`). A worker comes back before the end when a share turns out to be large, with the rest of it, which the
next round cuts again. What a sweep is, and what a worker does with a share: `procedures.objects.sweep`.
"""

from __future__ import annotations

from collections import deque
from itertools import takewhile

from bucketmq.events.inventory import Chunk
from bucketmq.log.layout import EventKeys
from bucketmq.procedures.objects.listing import LAST, list_items
from bucketmq.procedures.objects.sweep import Compared, Share, Work, is_seed, make_chunk, names_of, take
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Now, Procedure

ALPHABET, FIRST_LETTER, DIGITS = 95, 0x20, 8
"""Keys as numbers, for guessing where their middle is: the printable letters, and how many of them count."""

_PLAIN = str.maketrans(" ./\\", "!00]")
"""A guess must be a key: letters that a key cannot have everywhere are replaced by the next one that it can."""

PROBES_PER_CUT = 8
"""How many guesses, a LIST of one key or two each, a cut may cost."""

BEHIND = "~" * 8
"""Sorts behind what keys usually are; what sorts behind it is in the last range."""


def shares(work: Work, count: int) -> list[Share]:
    """What is to be looked at, in about so many shares of about the same size, as far as the inventory knows."""
    total = sum(_weight(chunk) for chunk in work.manifest.chunks if chunk.name in work.todo)
    found: list[Share] = []
    group: list[Chunk] = []
    begun_at = ""
    size = 0
    for position, chunk in work.places():
        if chunk.name in work.todo:
            begun_at = begun_at if group else position
            group.append(chunk)
            size += _weight(chunk)
        if group and (chunk.name not in work.todo or size >= total / count or is_seed(chunk)):
            found.append(Share(begun_at, tuple(group)))
            group, size = [], 0
    if group:
        found.append(Share(begun_at, tuple(group)))
    return found


def _weight(chunk: Chunk) -> int:
    return chunk.count + 1_000  # an empty range is a listing, too


def split(bucket: OpenBucket, work: Work, count: int) -> Procedure[Work]:
    """Cut what no sweep has looked at yet into about so many ranges. Some LISTs of one key, and a PUT for each range.

    Where to cut is a guess at how keys are spread, made right by what is there: only keys that exist are cut at. A bad
    guess makes a large share, which comes back with a rest that is cut again.
    """
    seeds = [(begin, chunk) for begin, chunk in work.places() if chunk.name in work.todo and is_seed(chunk)]
    if not seeds or len(work.todo) >= count:
        return work
    keys = EventKeys(bucket.prefix)
    since = yield from Now()
    successors: dict[str, tuple[Chunk, ...]] = {}
    for begin, seed in seeds:
        cuts = yield from _cuts(bucket, work.manifest.prefix, begin, seed.upto, -(-count // len(seeds)))
        made = []
        for upto in (*cuts, seed.upto) if cuts else ():
            made.append((yield from make_chunk(keys, work.name, [], upto, seed=True)))
        if made:
            successors[seed.name] = tuple(made)
    cut = Compared(successors, tuple(successors), tuple(names_of(successors)), since=since)
    return (yield from take(bucket, work, [cut]))


def _cuts(bucket: OpenBucket, prefix: str, low: str, high: str, count: int) -> Procedure[list[str]]:
    """Up to `count - 1` keys that cut the range behind `low` up to `high`."""
    if not bucket.lists_in_order:  # a listing walks through everything: one must do
        items, _ = yield from list_items(bucket, prefix, low, high)
        step = -(-len(items) // count)
        return [item.key for item in items[step - 1 : -1 : step]] if step else []
    first = yield from _next_key(bucket, prefix, low)
    if first is None or (high and first >= high):
        return []
    found: list[str] = []
    gaps = deque([(first, high or prefix + BEHIND)])
    for _ in range(PROBES_PER_CUT * count):
        if len(found) >= count - 1 or not gaps:
            break
        left, right = gaps.popleft()
        guess = middle(left, right)
        if guess is None:
            continue
        key = yield from _next_key(bucket, prefix, guess)
        if key is not None and key < right:
            gaps += [(left, key), (key, right)]
            found.append(key)
        else:
            gaps.append((left, (yield from _narrowed(bucket, prefix, left, guess))))
    return sorted(found)


def _narrowed(bucket: OpenBucket, prefix: str, low: str, high: str) -> Procedure[str]:
    """The end of the folder that all keys between two lie in, if there is one below what they have in common."""
    slash = low.find("/", _same(low, high))
    if slash < 0:
        return high
    key = yield from _next_key(bucket, prefix, low[: slash + 1] + LAST)
    return high if key is not None and key < high else low[: slash + 1] + BEHIND


def _next_key(bucket: OpenBucket, prefix: str, after: str) -> Procedure[str | None]:
    items, _ = yield from list_items(bucket, prefix, after, "", 1)
    return items[0].key if items else None


def middle(low: str, high: str) -> str | None:
    """A text about halfway between two that could be a key, or None if they are neighbours."""
    same = _same(low, high)
    half = (_number(low[same:]) + _number(high[same:])) // 2
    digits = []
    for _ in range(DIGITS):
        half, digit = divmod(half, ALPHABET)
        digits.append(chr(FIRST_LETTER + digit))
    tail = "".join(reversed(digits)).rstrip(chr(FIRST_LETTER))
    found = low[:same] + tail.translate(_PLAIN)
    return found if low < found < high else None


def _same(low: str, high: str) -> int:
    """How many letters two texts have in common at the beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(low, high, strict=False)))


def _number(text: str) -> int:
    """The first letters of a text as a number; what is not ASCII counts as the last letter."""
    number = 0
    for letter in text[:DIGITS].ljust(DIGITS, chr(FIRST_LETTER)):
        number = number * ALPHABET + min(max(ord(letter) - FIRST_LETTER, 0), ALPHABET - 1)
    return number
