"""The sweep: list, compare with the inventory, report what is new, changed or gone.

The inventory is cut into chunks, each a range of keys, and the manifest that names them is the list of work. A worker
takes a share, some chunks in a row; lists their keys, compares, **reports, then** creates the chunks that are to take
their places (`compare`). The manifest is replaced afterwards (`take`), for one share or for many at once. A worker that
dies in between leaves the old chunks in place, and the next sweep finds the same differences and reports them under the
same ids, which collapse in the log. A chunk in which nothing changed costs its listing and one GET.

Keys that no sweep has looked at yet are the range of a **seed**: a chunk without items whose name says so.

`sweep` is one worker that takes one range after another, so memory is bounded by a range however many keys there are.
The manifest remembers how far it came, and the next one begins there, so that sweeps that are cut short still get to
every key. Many workers share a sweep in rounds: `procedures.objects.sweep_split` cuts the work for them. Sweepers do
not disturb each other: a chunk is replaced only where the manifest still names it, and what another put in its place
is looked at as well.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from bucketmq.bucket.port import Missing
from bucketmq.errors import Corrupt, Invalid, Unavailable
from bucketmq.events.event import ObjectEvent, time_text
from bucketmq.events.inventory import Chunk, Item, Manifest, changes, decode_items, differences, encode_items
from bucketmq.log.layout import EventKeys
from bucketmq.procedures.objects.listing import LAST, by_key, check_prefix, list_items
from bucketmq.procedures.objects.report import report
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import NewId, Now, Procedure
from bucketmq.procedures.verbs import create_named, delete, get, get_state, list_all, update_document
from bucketmq.queue.settings import check_name
from bucketmq.values import Value

ORPHAN_SECONDS = 3600.0
TAKE_SECONDS = ORPHAN_SECONDS / 2
"""Chunks that are older are not put into the manifest any more: they may be deleted soon."""

SEED = "seed-"
"""Begins the names of chunks that say nothing but where a range ends: their keys were not looked at yet."""

KEYS_MAX = 200_000
"""A worker comes back with what is left of its share after about so many keys."""

Progress = Callable[["Swept"], None]


class Swept(Value, msgspec.Struct):
    """What a sweep came to so far."""

    keys: int = 0
    created: int = 0
    changed: int = 0
    deleted: int = 0
    ranges: int = 0
    resumed: bool = False
    """Whether it went on where one that was interrupted stopped."""
    noted: int = 0
    """Found by a first sweep that only takes a baseline."""

    def count(self, events: list[ObjectEvent]) -> None:
        self.created += sum(event.kind == "created" for event in events)
        self.changed += sum(event.kind == "changed" for event in events)
        self.deleted += sum(event.kind == "deleted" for event in events)

    def add(self, other: Swept) -> None:
        """Count what another part of the sweep came to."""
        self.keys += other.keys
        self.created += other.created
        self.changed += other.changed
        self.deleted += other.deleted
        self.ranges += other.ranges
        self.noted += other.noted


class Work(msgspec.Struct, frozen=True):
    """A sweep that is under way."""

    name: str
    manifest: Manifest
    todo: frozenset[str]
    """The chunks that are still to be looked at."""

    def places(self) -> Iterator[tuple[str, Chunk]]:
        """Every chunk in order, with the key behind which it begins."""
        begin = ""
        for chunk in self.manifest.chunks:
            yield begin, chunk
            begin = chunk.upto


class Share(msgspec.Struct, frozen=True):
    """Chunks in a row, and the key behind which the first of them begins."""

    position: str
    chunks: tuple[Chunk, ...]


class Compared(msgspec.Struct, frozen=True):
    """What became of a share."""

    successors: dict[str, tuple[Chunk, ...]]
    """Chunk -> those that are to take its place. A chunk that is not here stays as it is."""
    looked_at: tuple[str, ...]
    """Chunks that need not be looked at again."""
    left: tuple[str, ...] = ()
    """Successors that are still to be looked at."""
    swept: Swept = msgspec.field(default_factory=Swept)
    missing: tuple[str, ...] = ()
    """Chunks that were gone: another sweeper replaced them."""
    since: float = math.inf
    """When the first of the successors was made, at the earliest."""


def sweep_name(prefix: str) -> str:
    """The name of the sweep over a prefix: all of the bucket, or the prefix as a name."""
    return check_name(prefix.strip("/").replace("/", "_") or "all", "sweep name (give one with --name)")


def check_sweep_prefix(prefix: str) -> str:
    if prefix and not prefix.endswith("/"):
        raise Invalid(f"the prefix of a sweep must be empty or end with '/', unlike {prefix!r}: write 'pending/'")
    return check_prefix(prefix)


def sweep(
    bucket: OpenBucket,
    *,
    prefix: str = "",
    name: str | None = None,
    baseline: bool = False,
    progress: Progress = lambda _: None,
    range_keys: int | None = None,
) -> Procedure[Swept]:
    """Report every change under `prefix` since the last sweep of this name.

    The first one reports what is already there, or with `baseline` only notes it. Per 1,000 keys one LIST; per range of
    10,000 (`range_keys`) one GET, and where something changed two PUTs and the events.
    """
    if range_keys is not None and range_keys < 1:
        raise Invalid(f"range_keys must be 1 or more, not {range_keys}")
    work = yield from begin(bucket, prefix=prefix, name=name, baseline=baseline)
    position = work.manifest.position
    done = Swept(resumed=bool(position))
    while work.todo:
        share = _share_at(work, position)
        compared = yield from compare(bucket, work, share, keys_max=1, range_keys=range_keys)
        made = [chunk for successors in compared.successors.values() for chunk in successors]
        position = made[-2].upto if compared.left else share.chunks[0].upto
        work = yield from take(bucket, work, [compared], position=position)
        done.add(compared.swept)
        progress(done)
    yield from finish(bucket, work)
    return done


def _share_at(work: Work, position: str) -> Share:
    """The first chunk that is to be looked at behind a key; behind the last one come those before it."""
    todo = [(begin, chunk) for begin, chunk in work.places() if chunk.name in work.todo]
    begin, chunk = next((place for place in todo if place[0] >= position), todo[0])
    return Share(begin, (chunk,))


def begin(bucket: OpenBucket, *, prefix: str, name: str | None, baseline: bool) -> Procedure[Work]:
    """The manifest, with at least one chunk; each is to be looked at. One GET; a first sweep makes both."""
    check_sweep_prefix(prefix)
    name = sweep_name(prefix) if name is None else check_name(name, "sweep name")
    keys = EventKeys(bucket.prefix)
    first = Manifest(prefix=prefix, baseline=baseline)
    manifest = yield from update_document(Manifest, keys.manifest(name), first, lambda before: before)
    if manifest.prefix != prefix:
        raise Invalid(f"sweep {name!r} is over {manifest.prefix!r}, not {prefix!r}; give this one another name")
    if manifest.first_to not in (None, LAST):
        manifest = yield from _seeded(keys, name, manifest)
    return Work(name, manifest, frozenset(chunk.name for chunk in manifest.chunks))


def _seeded(keys: EventKeys, name: str, manifest: Manifest) -> Procedure[Manifest]:
    """The manifest of a first sweep, where seeds say what it has not come to."""
    unseen = [
        chunk for begin, chunk in Work(name, manifest, frozenset()).places() if begin >= (manifest.first_to or "")
    ]
    seeds = {}
    for chunk in unseen or [Chunk("", 0)]:
        seeds[chunk.name] = yield from make_chunk(keys, name, [], chunk.upto, seed=True)

    def change(before: Manifest) -> Manifest:
        if before.first_to in (None, LAST) or before.chunks != manifest.chunks:
            return before
        chunks = tuple(seeds.get(chunk.name, chunk) for chunk in before.chunks) or tuple(seeds.values())
        return msgspec.structs.replace(before, chunks=chunks, first_to=LAST, revision=before.revision + 1)

    return (yield from update_document(Manifest, keys.manifest(name), manifest, change))


def make_chunk(keys: EventKeys, name: str, items: Sequence[Item], upto: str, *, seed: bool = False) -> Procedure[Chunk]:
    new = yield from NewId()
    chunk = Chunk(SEED + new if seed else new, len(items), upto)
    yield from create_named(keys.chunk(name, chunk.name), encode_items(items) or b"\n")
    return chunk


def is_seed(chunk: Chunk) -> bool:
    """Whether no sweep has looked at the chunk's keys yet."""
    return chunk.name.startswith(SEED)


def compare(
    bucket: OpenBucket, work: Work, share: Share, *, keys_max: int = KEYS_MAX, range_keys: int | None = None
) -> Procedure[Compared]:
    """Look at a share: report what differs, and create the chunks that are to take the places of those that changed.

    Per 1,000 keys one LIST, per chunk one GET; where something changed one PUT, and the events.
    """
    comparison = _Comparison(bucket, work, keys_max, range_keys)
    since = yield from Now()
    position = share.position
    for chunk in share.chunks:
        if comparison.swept.keys < keys_max:
            yield from comparison.look_at(chunk, position)
        position = chunk.upto
    return comparison.result(since)


class _Differing(msgspec.Struct):
    """How a chunk differs from what is there now."""

    pieces: list[tuple[list[Item], str]] = msgspec.field(default_factory=list)
    """Items, each with the key up to which they go."""
    changed: bool = False
    rest: list[Item] | None = None
    """The old items of what was not come to; None if all was."""


class _Comparison:
    """Looks at the chunks of a share, one after the other."""

    def __init__(self, bucket: OpenBucket, work: Work, keys_max: int, range_keys: int | None) -> None:
        self.swept = Swept()
        self._bucket = bucket
        self._keys = EventKeys(bucket.prefix)
        self._work = work
        self._keys_max = keys_max
        self._range_keys = range_keys
        self._successors: dict[str, tuple[Chunk, ...]] = {}
        self._looked_at: list[str] = []
        self._left: list[str] = []
        self._missing: list[str] = []

    def result(self, since: float) -> Compared:
        looked_at, left, missing = (tuple(each) for each in (self._looked_at, self._left, self._missing))
        return Compared(self._successors, looked_at, left, self.swept, missing, since)

    def look_at(self, chunk: Chunk, position: str) -> Procedure[None]:
        """Compare a chunk, which begins behind `position`, with what is there."""
        self._looked_at.append(chunk.name)
        name = self._work.name
        key = self._keys.chunk(name, chunk.name)
        stored = yield from get(key)
        if isinstance(stored, Missing):
            self._missing.append(chunk.name)
            return
        seen = yield from self._compare(chunk, decode_items(stored.body, key), position)
        if not seen.changed and not is_seed(chunk):
            return
        made = []
        for items, upto in seen.pieces:
            made.append((yield from make_chunk(self._keys, name, items, upto)))
        if seen.rest is not None:
            made.append((yield from make_chunk(self._keys, name, seen.rest, chunk.upto, seed=is_seed(chunk))))
            self._left.append(made[-1].name)
        self._successors[chunk.name] = tuple(made)

    def _compare(self, chunk: Chunk, before: list[Item], position: str) -> Procedure[_Differing]:
        prefix = self._work.manifest.prefix
        seen, first = _Differing(), is_seed(chunk)
        while True:
            after, reached = yield from list_items(self._bucket, prefix, position, chunk.upto, self._range_keys)
            end = chunk.upto if reached is None else reached
            last = bisect_right(before, end, key=by_key) if end else len(before)
            in_range = before[bisect_right(before, position, key=by_key) : last]
            self.swept.keys += len(after)
            self.swept.ranges += 1
            if in_range != after:  # told apart at once: it is what a sweep finds nearly everywhere
                seen.changed |= (yield from self._tell(in_range, after, first=first)) > 0
            seen.pieces.append((after, end))
            if reached is None:
                return seen
            if self.swept.keys >= self._keys_max and (seen.changed or first):
                seen.rest = before[last:]
                return seen
            position = end

    def _tell(self, before: list[Item], after: list[Item], *, first: bool) -> Procedure[int]:
        """Report what differs, or only count it if it is the baseline of a first sweep; returns how much does."""
        if first and self._work.manifest.baseline:
            noted = sum(1 for _ in changes(before, after))
            self.swept.noted += noted
            return noted
        events = list(differences(before, after, exact=self._bucket.exact_versions))
        yield from report(self._bucket, (yield from dated(events)))
        self.swept.count(events)
        return len(events)


def dated(events: list[ObjectEvent]) -> Procedure[list[ObjectEvent]]:
    """A deletion happened at some time up to now; that is the best that can be said."""
    now = time_text((yield from Now()))
    return [msgspec.structs.replace(event, at=now) if event.kind == "deleted" else event for event in events]


def take(
    bucket: OpenBucket, work: Work, compared: Sequence[Compared], *, position: str | None = None
) -> Procedure[Work]:
    """Put what was made in the places of what it was compared with. What is left is to be looked at.

    Where another sweeper was faster its chunks stay, and are looked at, too. `position` is how far the sweep has come,
    if it goes in order. Nothing if nothing changed; otherwise one GET and one PUT, and a DELETE of each chunk that is
    not named any more.
    """
    looked_at = {name for each in compared for name in each.looked_at}
    if not any(each.successors or each.missing for each in compared):
        return msgspec.structs.replace(work, todo=work.todo - looked_at)
    keys = EventKeys(bucket.prefix)
    successors = {old: made for each in compared for old, made in each.successors.items()}
    seconds = (yield from Now()) - min(each.since for each in compared)
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
        place = current.position if position is None else position
        return msgspec.structs.replace(current, chunks=tuple(chunks), position=place, revision=current.revision + 1)

    manifest = yield from update_document(Manifest, keys.manifest(work.name), work.manifest, change)
    named = {chunk.name for chunk in manifest.chunks}
    if any(name in named for each in compared for name in each.missing):  # nobody replaced them
        raise Corrupt(
            f"{keys.manifest(work.name)} names a part of the inventory that is gone; delete {keys.chunks(work.name)} "
            "and the manifest to start over"
        )
    made = names_of(successors)
    for old in sorted({*successors, *made} - named):
        yield from delete(keys.chunk(work.name, old))
    by_others = named - made - {chunk.name for chunk in work.manifest.chunks}
    left = {name for each in compared for name in each.left}
    return Work(work.name, manifest, frozenset(named & ((work.todo - looked_at) | left | by_others)))


def names_of(successors: Mapping[str, Sequence[Chunk]]) -> set[str]:
    return {chunk.name for made in successors.values() for chunk in made}


def finish(bucket: OpenBucket, work: Work) -> Procedure[None]:
    """The sweep is over: everything was looked at. One GET, one PUT, and a LIST for chunks that nobody names."""
    yield from update_document(Manifest, EventKeys(bucket.prefix).manifest(work.name), work.manifest, _finished)
    yield from _delete_orphans(bucket, work.name)


def _finished(manifest: Manifest) -> Manifest:
    if manifest.first_to is None and not manifest.position:
        return manifest
    return msgspec.structs.replace(manifest, first_to=None, position="", revision=manifest.revision + 1)


def _delete_orphans(bucket: OpenBucket, name: str) -> Procedure[None]:
    """Chunks that no manifest names: their sweepers died between two requests."""
    keys = EventKeys(bucket.prefix)
    entries, _ = yield from list_all(keys.chunks(name))
    manifest, _ = yield from get_state(keys.manifest(name), Manifest())
    named = {keys.chunk(name, chunk.name) for chunk in manifest.chunks}
    now = yield from Now()
    for entry in entries:
        if entry.key not in named and now - entry.stored_at > ORPHAN_SECONDS:
            yield from delete(entry.key)
