"""A sweep in shares, for large buckets: many compare chunks of the inventory at a time, one replaces the manifest.

The manifest is the list of work. Where no sweep has been yet, seeds cut the keys into ranges: chunks without items
whose names say that nobody has looked. A share is some chunks in a row. Whoever has one lists their keys, compares,
**reports, then** creates the chunks that are to take their places, and leaves the manifest alone; it comes back before
the end when a share turns out to be large, with the rest of it. When all shares are back, the manifest is replaced
once. Whoever dies in between leaves the old chunks in place, and the next sweep finds the same differences and reports
them under the same ids. What a sweep is and the chunks of its inventory: `procedures.sweep`.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import takewhile
from operator import attrgetter

import msgspec

from bucketmq.errors import Corrupt, Invalid, Unavailable
from bucketmq.events.inventory import Chunk, Item, Manifest, changes, differences, encode_items
from bucketmq.log.layout import EventKeys
from bucketmq.procedures.events import report
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import NewId, Now, Procedure
from bucketmq.procedures.sweep import (
    LAST,
    ORPHAN_SECONDS,
    SEED,
    Superseded,
    Swept,
    check_sweep_prefix,
    dated,
    delete_orphans,
    finished,
    is_seed,
    items_of,
    list_items,
    only_notes,
    sweep_name,
)
from bucketmq.procedures.verbs import create_named, delete, update_document
from bucketmq.queue.settings import check_name

replace = msgspec.structs.replace
_KEY = attrgetter("key")

ALPHABET, FIRST_LETTER, DIGITS = 95, 0x20, 8
"""Keys as numbers, for guessing where their middle is: the printable letters, and how many of them count."""

_PLAIN = str.maketrans(" ./\\", "!00]")
"""A guess must be a key: letters that a key cannot have everywhere are replaced by the next one that it can."""

PROBES_PER_CUT = 8
"""How many guesses, a LIST of one key or two each, a cut may cost."""

BEHIND = "~" * 8
"""Sorts behind what keys usually are; what sorts behind it is in the last range."""

TAKE_SECONDS = ORPHAN_SECONDS / 2
"""Chunks that are older are not put into the manifest any more: they may be deleted soon."""

KEYS_MAX = 200_000
"""A share comes back with what is left of it after about so many keys."""


class Share(msgspec.Struct, frozen=True):
    """Chunks in a row, and the key behind which the first of them begins."""

    position: str
    chunks: tuple[Chunk, ...]


_Seen = tuple[list[tuple[list[Item], str]], bool, list[Item] | None]
"""What was seen of a chunk: items, each with the key up to which they go; whether something differs; and the old items
that were not come to, None if all were."""


class Compared(msgspec.Struct, frozen=True):
    """What became of a share."""

    successors: dict[str, tuple[Chunk, ...]]
    """Chunk -> those that are to take its place. A chunk that is not here stays as it is."""
    left: tuple[str, ...]
    """Chunks, successors included, that were not looked at."""
    swept: Swept
    missing: tuple[str, ...] = ()
    """Chunks that were gone: another sweeper replaced them."""
    since: float = math.inf
    """When the first of the successors was made, at the earliest."""


class Work(msgspec.Struct, frozen=True):
    """A sweep that is under way."""

    name: str
    manifest: Manifest
    todo: frozenset[str]
    """The chunks that are still to be looked at."""


def begin(bucket: OpenBucket, *, prefix: str, name: str | None, baseline: bool) -> Procedure[Work]:
    """The manifest, with at least one chunk; every chunk of it is to be looked at."""
    check_sweep_prefix(prefix)
    name = sweep_name(prefix) if name is None else check_name(name, "sweep name")
    keys = EventKeys(bucket.prefix)
    first = Manifest(prefix=prefix, baseline=baseline)
    manifest = yield from update_document(Manifest, keys.manifest(name), first, lambda before: before)
    if manifest.prefix != prefix:
        raise Invalid(f"sweep {name!r} is over {manifest.prefix!r}, not {prefix!r}; give this one another name")
    if not manifest.chunks:
        seed = yield from _create(keys, name, [], "", seed=True)

        def change(before: Manifest) -> Manifest:
            if before.chunks:
                return before
            return replace(before, chunks=(seed,), first_to=LAST, revision=before.revision + 1)

        manifest = yield from update_document(Manifest, keys.manifest(name), first, change)
    return Work(name, manifest, frozenset(chunk.name for chunk in manifest.chunks))


def _create(keys: EventKeys, name: str, items: Sequence[Item], upto: str, *, seed: bool) -> Procedure[Chunk]:
    new: str = yield NewId()
    chunk = Chunk(SEED + new if seed else new, len(items), upto)
    yield from create_named(keys.chunk(name, chunk.name), encode_items(items) or b"\n")
    return chunk


def shares(work: Work, count: int) -> list[Share]:
    """What is to be looked at, in about so many shares of about the same size, as far as the inventory knows."""
    total = sum(_weight(chunk) for chunk in work.manifest.chunks if chunk.name in work.todo)
    found: list[Share] = []
    group: list[Chunk] = []
    position = begun_at = ""
    size = 0
    for chunk in work.manifest.chunks:
        if chunk.name in work.todo:
            begun_at = begun_at if group else position
            group.append(chunk)
            size += _weight(chunk)
        if group and (chunk.name not in work.todo or size >= total / count or is_seed(chunk)):
            found.append(Share(begun_at, tuple(group)))
            group, size = [], 0
        position = chunk.upto
    if group:
        found.append(Share(begun_at, tuple(group)))
    return found


def _weight(chunk: Chunk) -> int:
    return chunk.count + 1_000  # an empty range is a listing, too


def split(bucket: OpenBucket, work: Work, count: int) -> Procedure[Work]:
    """Cut what nobody has looked at yet into about so many ranges. Some LISTs of one key, and a PUT for each range.

    Where to cut is a guess at how keys are spread, made right by what is there: only keys that exist are cut at. A bad
    guess makes a large share, which comes back with a rest that is cut again.
    """
    seeds = [chunk for chunk in work.manifest.chunks if chunk.name in work.todo and is_seed(chunk)]
    if not seeds or len(work.todo) >= count:
        return work
    keys = EventKeys(bucket.prefix)
    begins = dict(zip((each.name for each in work.manifest.chunks), _begins(work.manifest), strict=True))
    successors: dict[str, tuple[Chunk, ...]] = {}
    for seed in seeds:
        cuts = yield from _cuts(bucket, work.manifest.prefix, begins[seed.name], seed.upto, -(-count // len(seeds)))
        made = []
        for upto in (*cuts, seed.upto) if cuts else ():
            made.append((yield from _create(keys, work.name, [], upto, seed=True)))
        if made:
            successors[seed.name] = tuple(made)
    return (yield from take(bucket, work, [Compared(successors, tuple(work.todo | _names(successors)), Swept())]))


def _begins(manifest: Manifest) -> list[str]:
    """For each chunk the key behind which it begins."""
    return ["", *(chunk.upto for chunk in manifest.chunks[:-1])]


def _names(successors: Mapping[str, Sequence[Chunk]]) -> set[str]:
    return {chunk.name for made in successors.values() for chunk in made}


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


def compare(
    bucket: OpenBucket, work: Work, share: Share, *, keys_max: int = KEYS_MAX, range_keys: int | None = None
) -> Procedure[Compared]:
    """Look at a share: report what differs, and create the chunks that are to take the places of those that changed.

    Per 1,000 keys one LIST, per chunk one GET; where something changed one PUT, and the events.
    """
    looker = _Looker(bucket, work, keys_max, range_keys)
    since: float = yield Now()
    position = share.position
    for chunk in share.chunks:
        if looker.swept.keys >= keys_max:
            looker.left.append(chunk.name)
        else:
            yield from looker.look(chunk, position)
        position = chunk.upto
    return Compared(looker.successors, tuple(looker.left), looker.swept, tuple(looker.missing), since)


class _Looker:
    """Looks at the chunks of a share, one after the other."""

    def __init__(self, bucket: OpenBucket, work: Work, keys_max: int, range_keys: int | None) -> None:
        self._bucket = bucket
        self._keys = EventKeys(bucket.prefix)
        self._work = work
        self._keys_max = keys_max
        self._range_keys = range_keys
        self.swept = Swept()
        self.successors: dict[str, tuple[Chunk, ...]] = {}
        self.left: list[str] = []
        self.missing: list[str] = []

    def look(self, chunk: Chunk, position: str) -> Procedure[None]:
        """Compare a chunk, which begins behind `position`, with what is there."""
        try:
            before = yield from items_of(self._keys, self._work.name, chunk)
        except Superseded:
            self.missing.append(chunk.name)
            return
        pieces, changed, rest = yield from self._compare(chunk, before, position)
        if not changed and rest is None and not is_seed(chunk):
            return
        made = []
        for items, upto in pieces:
            made.append((yield from _create(self._keys, self._work.name, items, upto, seed=False)))
        if rest is not None:
            made.append((yield from _create(self._keys, self._work.name, rest, chunk.upto, seed=is_seed(chunk))))
            self.left.append(made[-1].name)
        self.successors[chunk.name] = tuple(made)

    def _compare(self, chunk: Chunk, before: list[Item], position: str) -> Procedure[_Seen]:
        manifest, swept = self._work.manifest, self.swept
        notes = only_notes(manifest, chunk, position)
        pieces: list[tuple[list[Item], str]] = []
        changed = False
        while True:
            after, reached = yield from list_items(
                self._bucket, manifest.prefix, position, chunk.upto, self._range_keys
            )
            end = chunk.upto if reached is None else reached
            last = bisect_right(before, end, key=_KEY) if end else len(before)
            in_range = before[bisect_right(before, position, key=_KEY) : last]
            swept.keys, swept.ranges = swept.keys + len(after), swept.ranges + 1
            if in_range != after:
                changed |= (yield from _tell(self._bucket, in_range, after, swept, notes=notes)) > 0
            pieces.append((after, end))
            if reached is None:
                return pieces, changed, None
            if swept.keys >= self._keys_max:
                return pieces, changed, before[last:]
            position = end


def _tell(bucket: OpenBucket, before: list[Item], after: list[Item], swept: Swept, *, notes: bool) -> Procedure[int]:
    """Report what differs, or only count it; returns how much does."""
    if notes:
        noted = sum(1 for _ in changes(before, after))
        swept.noted += noted
        return noted
    events = list(differences(before, after, exact=bucket.exact_versions))
    yield from report(bucket, (yield from dated(events)))
    swept.count(events)
    return len(events)


def take(bucket: OpenBucket, work: Work, compared: Sequence[Compared]) -> Procedure[Work]:
    """Put what was made in the places of what it was compared with. What is left is to be looked at.

    Where another sweeper was faster its chunks stay, and are looked at, too. One GET and one PUT, and a DELETE of each
    chunk that is not named any more.
    """
    keys = EventKeys(bucket.prefix)
    successors = {old: made for each in compared for old, made in each.successors.items()}
    seconds = (yield Now()) - min((each.since for each in compared), default=math.inf)
    if seconds > TAKE_SECONDS:
        raise Unavailable(
            f"this round of sweep {work.name!r} took {seconds / 60:.0f} minutes, and the chunks it made may be deleted "
            "as orphans at any moment; run it again, with a smaller keys_max or more executors"
        )

    def change(current: Manifest) -> Manifest:
        chunks: list[Chunk] = []
        for chunk in current.chunks:
            chunks += successors.get(chunk.name, (chunk,))
        if tuple(chunks) == current.chunks:
            return current
        return replace(current, chunks=tuple(chunks), revision=current.revision + 1)

    manifest = yield from update_document(Manifest, keys.manifest(work.name), work.manifest, change)
    named = {chunk.name for chunk in manifest.chunks}
    if any(name in named for each in compared for name in each.missing):  # nobody replaced them
        raise Corrupt(
            f"{keys.manifest(work.name)} names a part of the inventory that is gone; delete {keys.chunks(work.name)} "
            "and the manifest to begin anew"
        )
    for old in {*successors, *_names(successors)} - named:
        yield from delete(keys.chunk(work.name, old))
    ours = {chunk.name for chunk in work.manifest.chunks} | _names(successors)
    left = {name for each in compared for name in each.left}
    return Work(work.name, manifest, frozenset(named & left | named - ours))


def finish(bucket: OpenBucket, work: Work) -> Procedure[None]:
    """The sweep is over: everything was looked at. One GET, one PUT, and a LIST for chunks that nobody names."""
    yield from update_document(Manifest, EventKeys(bucket.prefix).manifest(work.name), work.manifest, finished)
    yield from delete_orphans(bucket, work.name)
