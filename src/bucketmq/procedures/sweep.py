"""The sweep: list, compare with the inventory, report what is new, changed or gone.

It goes through the keys in ranges, one chunk of the inventory at a time, so memory is bounded by a chunk however many
keys there are. For each range: list it, compare, **report, then** replace the chunk in the manifest. Whoever dies in
between leaves the old chunk in place, and the next sweep finds the same differences and reports them under the same
ids, which collapse in the log. A range in which nothing changed costs its listing and one GET.

Several sweepers do not disturb each other: a range is replaced in the manifest only where the chunks that were compared
are still the ones it names. The manifest remembers how far a sweep came, so that another goes on from there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from operator import attrgetter

import msgspec

from bucketmq.bucket.port import Missing
from bucketmq.errors import Corrupt, Invalid
from bucketmq.events.event import ObjectEvent, time_text
from bucketmq.events.inventory import Chunk, Item, Manifest, changes, decode_items, differences, encode_items
from bucketmq.log.layout import BOOKKEEPING, EventKeys, is_bookkeeping, join
from bucketmq.procedures.events import report
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import NewId, Now, Procedure
from bucketmq.procedures.verbs import create_named, delete, get, get_document, list_all, list_page, update_document
from bucketmq.queue.settings import check_name

RANGE_KEYS = 10_000
RANGE_KEYS_LOCAL = 50_000
"""How many keys are compared at a time. A folder's listing costs a walk each time, so it is asked for more."""

ORPHAN_SECONDS = 3600.0
SEED = "seed-"
"""Begins the names of chunks that say nothing but where a range ends: their keys were not looked at yet."""

LAST = "\U0010ffff"
"""Sorts behind everything below a prefix."""

_KEY = attrgetter("key")

Progress = Callable[["Swept"], None]


class Swept(msgspec.Struct):
    """What a sweep came to so far."""

    keys: int = 0
    created: int = 0
    changed: int = 0
    deleted: int = 0
    ranges: int = 0
    resumed: bool = False
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


class _Seen(msgspec.Struct, frozen=True):
    """A range of keys, from behind `position` to `end`: the chunk's items, and what is there now."""

    position: str
    end: str
    before: list[Item]
    after: list[Item]


class Superseded(Exception):
    """Another sweeper replaced the chunks we compared with. Never leaves `procedures`."""


def sweep_name(prefix: str) -> str:
    """The name of the sweep over a prefix: all of the bucket, or the prefix as a name."""
    return check_name(prefix.strip("/").replace("/", "_") or "all", "sweep name (give one with --name)")


def check_sweep_prefix(prefix: str) -> str:
    if prefix and (not prefix.endswith("/") or prefix.startswith("/")):
        raise Invalid(f"sweep prefix {prefix!r} must be empty or end with '/', and not begin with one: like 'pending/'")
    if prefix and is_bookkeeping(prefix):
        raise Invalid(
            f"{prefix!r} is among BucketMQ's own keys ({', '.join(sorted(BOOKKEEPING))}); sweep another prefix"
        )
    return prefix


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
    check_sweep_prefix(prefix)
    name = sweep_name(prefix) if name is None else check_name(name, "sweep name")
    keys = EventKeys(bucket.prefix)
    first = Manifest(prefix=prefix, baseline=baseline)
    manifest = yield from update_document(Manifest, keys.manifest(name), first, lambda before: before)
    if manifest.prefix != prefix:
        raise Invalid(f"sweep {name!r} is over {manifest.prefix!r}, not {prefix!r}; give this one another name")
    begun_at = manifest.position
    done = Swept(resumed=bool(begun_at))
    manifest = yield from _sweep_from(
        bucket, name, manifest, done, begin=begun_at, end="", range_keys=range_keys, progress=progress
    )
    if begun_at:  # the one who came this far may have done so long ago
        manifest = yield from _sweep_from(
            bucket, name, manifest, done, begin="", end=begun_at, range_keys=range_keys, progress=progress
        )
    yield from update_document(Manifest, keys.manifest(name), manifest, finished)
    yield from delete_orphans(bucket, name)
    return done


def _sweep_from(
    bucket: OpenBucket,
    name: str,
    manifest: Manifest,
    done: Swept,
    *,
    begin: str,
    end: str,
    range_keys: int | None,
    progress: Progress,
) -> Procedure[Manifest]:
    """Sweep range by range from behind `begin` to `end`, or to the last key; returns the manifest as it is then."""
    key = EventKeys(bucket.prefix).manifest(name)
    position: str | None = begin
    while position is not None and (not end or position < end):
        try:
            position, manifest = yield from _sweep_range(bucket, name, manifest, position, done, range_keys=range_keys)
        except Superseded:
            found = yield from get_document(Manifest, key)
            if found is None or found[0] == manifest:  # nobody has: the manifest names what is not there
                folder = EventKeys(bucket.prefix).chunks(name)
                raise Corrupt(
                    f"{key} names a part of the inventory that is gone; delete {folder} and the manifest to begin anew"
                ) from None
            manifest = found[0]
            continue
        progress(done)
    return manifest


def finished(manifest: Manifest) -> Manifest:
    if manifest.first_to is None and not manifest.position:
        return manifest
    return msgspec.structs.replace(manifest, first_to=None, position="", revision=manifest.revision + 1)


def _sweep_range(
    bucket: OpenBucket, name: str, manifest: Manifest, position: str, done: Swept, *, range_keys: int | None
) -> Procedure[tuple[str | None, Manifest]]:
    """Sweep the keys from `position` to the end of the chunk there; returns where to go on, None at the end."""
    keys = EventKeys(bucket.prefix)
    chunk = _chunk_at(manifest, position)
    before = (yield from items_of(keys, name, chunk)) if chunk is not None else []
    upto = chunk.upto if chunk is not None else ""
    after, reached = yield from list_items(bucket, manifest.prefix, position, upto, range_keys)
    end = upto if reached is None else reached
    last = bisect_right(before, end, key=_KEY) if end else len(before)
    in_range = before[bisect_right(before, position, key=_KEY) : last]
    done.keys += len(after)
    done.ranges += 1
    seed = chunk is not None and is_seed(chunk)
    if in_range == after and not seed:  # told apart at once: it is what a sweep finds nearly everywhere
        return (end or None), manifest
    if only_notes(manifest, chunk, position):
        found = sum(1 for _ in changes(in_range, after))
        done.noted += found
    else:
        events = list(differences(in_range, after, exact=bucket.exact_versions))
        yield from report(bucket, (yield from dated(events)))
        done.count(events)
        found = len(events)
    if found or seed:
        manifest = yield from _replace(keys, name, manifest, chunk, _Seen(position, end, before, after))
    return (end or None), manifest


def only_notes(manifest: Manifest, chunk: Chunk | None, position: str) -> bool:
    """Whether what is found behind `position` is the baseline that the first sweep takes."""
    if not manifest.baseline or manifest.first_to is None:
        return False
    return position >= manifest.first_to or (chunk is not None and is_seed(chunk))


def is_seed(chunk: Chunk) -> bool:
    """Whether no sweep has looked at the chunk's keys yet (see `procedures.sweep_chunk`)."""
    return chunk.name.startswith(SEED)


def dated(events: list[ObjectEvent]) -> Procedure[list[ObjectEvent]]:
    """A deletion happened at some time up to now; that is the best that can be said."""
    now = time_text((yield Now()))
    return [msgspec.structs.replace(event, at=now) if event.kind == "deleted" else event for event in events]


def _chunk_at(manifest: Manifest, position: str) -> Chunk | None:
    return next((chunk for chunk in manifest.chunks if not chunk.upto or chunk.upto > position), None)


def items_of(keys: EventKeys, name: str, chunk: Chunk) -> Procedure[list[Item]]:
    key = keys.chunk(name, chunk.name)
    found = yield from get(key)
    if isinstance(found, Missing):
        raise Superseded
    return decode_items(found.body, key)


def list_items(
    bucket: OpenBucket, prefix: str, position: str, upto: str, range_keys: int | None = None
) -> Procedure[tuple[list[Item], str | None]]:
    """The objects behind `position` and up to `upto`, and how far the listing came if it was cut short."""
    root = join(bucket.prefix, "") + ("/" if bucket.prefix else "")
    folder = root + prefix
    items: list[Item] = []
    limit = range_keys or (RANGE_KEYS_LOCAL if bucket.local else RANGE_KEYS)
    after = position
    while True:
        page = yield from list_page(folder, after=root + after if after else "", limit=limit)
        cut = len(root)
        listed = [Item(each.key[cut:], each.version, each.stored_at, each.size_bytes) for each in page.entries]
        listed.sort(key=_KEY)
        stop = bisect_right(listed, upto, key=_KEY) if upto else len(listed)
        ours = _bookkeeping_in(listed) if not prefix else stop
        taken = listed[: min(stop, ours, limit - len(items))]
        items += taken
        if len(items) >= limit:
            return items, items[-1].key if page.more or len(taken) < len(listed) else None
        if ours < stop:
            after = listed[ours].key.split("/", 1)[0] + "/" + LAST
        elif stop < len(listed) or not page.more:
            return items, None
        else:
            after = listed[-1].key


def _bookkeeping_in(items: list[Item]) -> int:
    """The place of the first key that is our own; behind the end if there is none."""
    return next((place for place, item in enumerate(items) if is_bookkeeping(item.key)), len(items))


def _replace(
    keys: EventKeys,
    name: str,
    manifest: Manifest,
    chunk: Chunk | None,
    seen: _Seen,
) -> Procedure[Manifest]:
    """Put what was seen in the place of the chunk it was compared with, the rest of which stays."""
    position, end, before, after = seen.position, seen.end, seen.before, seen.after
    upto = chunk.upto if chunk is not None else ""
    low = [item for item in before if item.key <= position] if position else []
    high = [item for item in before if item.key > end] if end else []
    pieces = [(low, position)] if low else []
    pieces.append((after, end))
    if end != upto or (end and not upto):
        pieces.append((high, upto))
    made = []
    for place, (items, piece_upto) in enumerate(pieces):
        new: str = yield NewId()
        if chunk is not None and is_seed(chunk) and place == len(pieces) - 1 and piece_upto != end:
            new = SEED + new  # the rest of it was not looked at either
        yield from create_named(keys.chunk(name, new), encode_items(items) or b"\n")
        made.append(Chunk(new, len(items), piece_upto))

    def change(current: Manifest) -> Manifest:
        names = [each.name for each in current.chunks]
        if made[0].name in names:
            return current
        if chunk is not None and chunk.name not in names:
            raise Superseded
        if chunk is None and current.chunks:
            raise Superseded
        place = names.index(chunk.name) if chunk is not None else 0
        chunks = (*current.chunks[:place], *made, *current.chunks[place + 1 :])
        first_to = None if current.first_to is None else max(current.first_to, end or LAST)
        return msgspec.structs.replace(
            current, chunks=chunks, first_to=first_to, position=end, revision=current.revision + 1
        )

    try:
        manifest = yield from update_document(Manifest, keys.manifest(name), manifest, change)
    except Superseded:
        # A write of ours without an answer may have landed, and some of what it named may still be in use.
        found = yield from get_document(Manifest, keys.manifest(name))
        named = {each.name for each in found[0].chunks} if found is not None else set()
        for each in made:
            if each.name not in named:
                yield from delete(keys.chunk(name, each.name))
        raise
    if chunk is not None:
        yield from delete(keys.chunk(name, chunk.name))
    return manifest


def delete_orphans(bucket: OpenBucket, name: str) -> Procedure[None]:
    """Chunks that no manifest names: their sweepers died between two requests."""
    keys = EventKeys(bucket.prefix)
    entries, _ = yield from list_all(keys.chunks(name))
    found = yield from get_document(Manifest, keys.manifest(name))
    named = {keys.chunk(name, chunk.name) for chunk in found[0].chunks} if found is not None else set()
    now: float = yield Now()
    for entry in entries:
        if entry.key not in named and now - entry.stored_at > ORPHAN_SECONDS:
            yield from delete(entry.key)
