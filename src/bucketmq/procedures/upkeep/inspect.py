"""Inspecting a queue for damage: every segment, head, register and hint is read and held against the others.

Damage comes from outside: a backup of a live folder, one prefix restored without the others, a lifecycle rule, objects
deleted by hand, a disk. Each finding names queue, shard and offset, and says what mending would do (`upkeep.mend`), or
what a person must do. Nothing is written here.

Heads are read before the log is listed, and trim marks after it. A queue that is in use only grows in between, so a
head beyond the listed log, or a gap above the mark, is damage and not a race.

A GET for each segment, part, head and register, and a HEAD for each large body.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from bucketmq.bucket.port import Entry, Missing, Object, Version
from bucketmq.errors import Corrupt
from bucketmq.log import documents
from bucketmq.log.documents import SPLIT_FORMAT, Dedup, Hint, Later, Trim
from bucketmq.log.layout import QueueKeys, base_of, due_of, head_of, join
from bucketmq.log.segment import Segment, decode_lines
from bucketmq.procedures.bulk.publish import Publication
from bucketmq.procedures.queues import DEAD_SETTINGS
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.segments.losses import Losses
from bucketmq.procedures.upkeep.archive import Archive
from bucketmq.procedures.upkeep.readers import Reader
from bucketmq.procedures.verbs import get, list_all, look
from bucketmq.queue.head import Head, Span
from bucketmq.queue.settings import DEAD_SUFFIX, SHARDS_MAX, Settings

UPGRADE = "upgrade bucketmq"
"""What the error of an object of a later format says."""

_SHARDS = frozenset(map(str, range(SHARDS_MAX)))

Document = TypeVar("Document")
replace = msgspec.structs.replace


class Rewrite(msgspec.Struct, frozen=True):
    """A conditional write that mends something: over the state that `version` marks, or where there is nothing."""

    key: str
    version: Version | None
    body: bytes


class Loss(msgspec.Struct, frozen=True):
    """Offsets of a shard whose messages are gone, from `start` up to `stop`, not included."""

    shard: int
    start: int
    stop: int


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that is damaged."""

    kind: str
    queue: str
    key: str
    what: str
    cure: str
    """What mending does about it; where it can do nothing, what a person must do."""
    shard: int | None = None
    offset: int | None = None
    rewrite: Rewrite | None = None
    loss: Loss | None = None

    @property
    def mendable(self) -> bool:
        return self.rewrite is not None or self.loss is not None


class Inspection(msgspec.Struct, frozen=True):
    """What was looked at, and what is damaged."""

    queue: str
    segments: int
    messages: int
    heads: int
    losses: tuple[Loss, ...]
    """What was recorded as lost before."""
    findings: tuple[Finding, ...]

    @property
    def lost(self) -> int:
        """How many messages that is."""
        return sum(each.stop - each.start for each in self.losses)


class _Shard:
    """What the listing of one shard's log told."""

    def __init__(self, shard: int, low: int) -> None:
        self.shard = shard
        self.low = low
        self.tail = low
        self.ends: dict[int, int] = {}
        """For each base where its segment ends."""
        self.holes: list[tuple[int, int]] = []
        self.torn = False
        """Whether a segment cannot be read, so that nobody knows where it ends."""

    def base_at(self, offset: int) -> int | None:
        """The base of the segment that holds `offset`; the tail for the tail itself."""
        if offset == self.tail:
            return offset
        return next((base for base, end in self.ends.items() if base <= offset < end), None)

    def bases_that_end_at(self, offset: int) -> list[int]:
        return [base for base, end in self.ends.items() if end == offset]

    def holds(self, span: Span) -> bool:
        return span.base in self.ends and span.stop <= self.ends[span.base]


class _Inspector:
    """Looks at one queue and gathers findings."""

    def __init__(self, keys: QueueKeys) -> None:
        self.keys = keys
        self.findings: list[Finding] = []
        self.segments = self.messages = 0
        self.losses = Losses()
        self.strays: list[str] = []
        self.stored_settings: Object | None = None
        """What the settings were read from, if they could be."""
        self.heads: dict[tuple[str, int], tuple[str, Object, Head | Corrupt]] = {}

    def find(
        self,
        kind: str,
        key: str,
        what: object,
        cure: str,
        *,
        shard: int | None = None,
        offset: int | None = None,
        rewrite: Rewrite | None = None,
        loss: Loss | None = None,
    ) -> None:
        name = self.keys.queue
        self.findings.append(Finding(kind, name, key, str(what), cure, shard, offset, rewrite=rewrite, loss=loss))

    # Settings

    def settings(self) -> Procedure[Settings]:
        key = self.keys.settings
        found = yield from get(key)
        if isinstance(found, Object):
            try:
                settings = documents.decode_settings(found.body, key)
            except Corrupt as error:
                guess = yield from self._guess()
                self.find("settings-unreadable", key, error, _settings_cure(guess), rewrite=_over(key, found, guess))
                return guess
            self.stored_settings = found
            return settings
        guess = yield from self._guess()
        what = "the settings are missing though the queue holds objects"
        self.find("settings-missing", key, what, _settings_cure(guess), rewrite=Rewrite(key, None, _body(guess)))
        return guess

    def _guess(self) -> Procedure[Settings]:
        """Settings that fit what lies in the queue: as many shards as there are logs; ordered if heads list keys."""
        shards = yield from self.known_shards()
        entries, _ = yield from list_all(self.keys.heads)
        ordered = False
        for entry in entries:
            found = yield from get(entry.key)
            ordered = ordered or (isinstance(found, Object) and b'"key":' in found.body)
        plain = DEAD_SETTINGS if self.keys.queue.endswith(DEAD_SUFFIX) else Settings()
        return replace(plain, shards=max(shards, default=0) + 1, ordered=ordered)

    def known_shards(self) -> Procedure[set[int]]:
        entries, _ = yield from list_all(self.keys.logs)
        places = {entry.key: entry.key.removeprefix(self.keys.logs).split("/")[0] for entry in entries}
        shards = {name: int(name) for name in places.values() if name in _SHARDS}
        self.strays = [key for key, name in places.items() if name not in shards]
        return set(shards.values())

    def find_strays(self) -> None:
        for key in self.strays:
            self.find("not-a-segment", key, "lies in the log of no shard", "move it out of the queue's folder")

    def find_hidden(self, settings: Settings, shards: Sequence[_Shard]) -> None:
        """Shards that the settings do not know. Raising the count of an ordered queue is more than a write."""
        key, stored = self.keys.settings, self.stored_settings
        rewrite, count = None, max((seen.shard for seen in shards), default=0) + 1
        if stored is not None and not settings.ordered:
            rewrite = _over(key, stored, replace(settings, shards=count))
        for seen in shards:
            what = f"says {settings.shards} shards, but {self.keys.log(seen.shard)} holds messages: nobody gets them"
            cure = f"set {count} shards" if rewrite else f"raise the shard count to {count}, or restore the settings"
            self.find("shard-hidden", key, what, cure, shard=seen.shard, offset=seen.low, rewrite=rewrite)

    # Heads

    def read_heads(self) -> Procedure[None]:
        entries, _ = yield from list_all(self.keys.heads)
        for entry in entries:
            try:
                place = head_of(entry.key)
            except Corrupt as error:
                self.find("not-a-head", entry.key, error, "move it out of the queue's folder")
                continue
            found = yield from get(entry.key)
            if isinstance(found, Object):
                self.heads[place] = entry.key, found, _decoded(documents.decode_head, found.body, entry.key)

    # One shard

    def shard(self, shard: int) -> Procedure[_Shard]:
        entries, _ = yield from list_all(self.keys.log(shard))
        low = yield from self._trim_mark(shard, entries)
        seen = _Shard(shard, low)
        for entry in sorted(entries, key=lambda each: each.key):
            yield from self._segment(seen, entry)
        yield from self._hint(seen)
        for (name, of), (key, found, head) in sorted(self.heads.items()):
            if of == shard:
                self._head(seen, name, key, found, head)
        return seen

    def _trim_mark(self, shard: int, entries: Sequence[Entry]) -> Procedure[int]:
        key = self.keys.trim(shard)
        found = yield from get(key)
        if isinstance(found, Missing):
            return 0
        bases = sorted(base for base in map(_base_or_none, entries) if base is not None)
        first = bases[0] if bases else 0
        mark = _decoded(lambda body, where: documents.decode(Trim, body, where), found.body, key)
        cure = f"set the mark to {first}, the first segment that is there"
        rewrite = _over(key, found, Trim(first, before=first))
        if isinstance(mark, Corrupt):
            self.find("trim-mark-unreadable", key, mark, cure, shard=shard, rewrite=rewrite)
            return first
        if bases and mark.low > bases[-1] and mark.low not in (yield from self._ends(shard, bases[-1])):
            what = f"the trim mark is {mark.low}, but the log ends before it"
            self.find("trim-mark-ahead", key, what, cure, shard=shard, offset=mark.low, rewrite=rewrite)
            return first
        return mark.low

    def _ends(self, shard: int, base: int) -> Procedure[set[int]]:
        """Where the segment at `base` ends, if it can be read."""
        found = yield from get(self.keys.segment(shard, base))
        if isinstance(found, Missing):
            return set()
        read = _decoded(lambda body, _: Segment(base, body), found.body, "")
        return set() if isinstance(read, Corrupt) else {read.end}

    def _segment(self, seen: _Shard, entry: Entry) -> Procedure[None]:
        shard, base = seen.shard, _base_or_none(entry)
        if base is None:
            self.find("not-a-segment", entry.key, "lies among the segments", "move it out of the queue's folder")
            return
        if base < seen.low:
            return
        found = yield from get(entry.key)
        if isinstance(found, Missing):  # trimmed since it was listed
            return
        if base > seen.tail and not seen.torn:
            self._hole(seen, base)
        elif base < seen.tail:
            what = f"begins inside the segment before it, which ends at {seen.tail}"
            cure = "keep the one that was stored first, and move the other out of the queue's folder"
            self.find("segments-overlap", entry.key, what, cure, shard=shard, offset=base)
        self.segments += 1
        try:
            segment = Segment(base, found.body, entry.key)
            seen.ends[base], seen.tail, seen.torn = segment.end, max(seen.tail, segment.end), False
            self.messages += segment.count
            if segment.parts:
                yield from self._parts(seen, entry.key, segment)
            else:
                yield from self._bodies(seen, entry.key, segment)
        except Corrupt as error:
            seen.torn, seen.tail = base not in seen.ends, max(seen.tail, base)
            cure = "restore it from a copy, or purge the subscriptions that need it"
            self.find("segment-unreadable", entry.key, error, cure, shard=shard, offset=base)

    def read_losses(self) -> Procedure[None]:
        cure = "begin an empty one; what was recorded as lost is found again"
        found = yield from self._register(Losses, "losses-unreadable", self.keys.losses, cure, empty=Losses())
        self.losses = found or Losses()

    def _hole(self, seen: _Shard, base: int) -> None:
        seen.holes.append((seen.tail, base))
        key = self.keys.segment(seen.shard, seen.tail)
        what = f"offsets {seen.tail} up to {base} are gone: a segment was deleted or cut short"
        cure = "record the loss; the messages behind it are delivered"
        if any(lost.start <= seen.tail and base <= lost.stop for lost in self.losses.lost.get(seen.shard, ())):
            return
        loss = Loss(seen.shard, seen.tail, base)
        self.find("segment-missing", key, what, cure, shard=seen.shard, offset=seen.tail, loss=loss)

    def _parts(self, seen: _Shard, key: str, segment: Segment) -> Procedure[None]:
        base = segment.base
        for part in segment.parts:
            name = join(self.keys.root, part.key)
            found = yield from get(name)
            cure = "restore it from a copy, or purge the subscriptions that need it"
            if isinstance(found, Missing):
                what = f"is missing though {key} names it"
                self.find("part-missing", name, what, cure, shard=seen.shard, offset=base)
            else:
                lines = _decoded(decode_lines, found.body, name)
                what = str(lines) if isinstance(lines, Corrupt) else _miscount(len(lines), part.count, key)
                if what:
                    self.find("part-unreadable", name, what, cure, shard=seen.shard, offset=base)
            base += part.count

    def _bodies(self, seen: _Shard, key: str, segment: Segment) -> Procedure[None]:
        for place, message in enumerate(segment.check()):
            if message.body_at is not None:
                name = join(self.keys.root, message.body_at.key)
                if isinstance((yield from look(name)), Missing):
                    what, offset = f"is missing though message {message.id} names it", segment.base + place
                    cure = "restore it from a copy, or bury the message"
                    self.find("body-missing", name, what, cure, shard=seen.shard, offset=offset)

    def _hint(self, seen: _Shard) -> Procedure[None]:
        key = self.keys.hint(seen.shard)
        found = yield from get(key)
        if isinstance(found, Missing):
            return
        hint = _decoded(lambda body, where: documents.decode(Hint, body, where), found.body, key)
        cure = f"write it again: the log ends at {seen.tail}"
        rewrite = _over(key, found, Hint(seen.tail))
        if isinstance(hint, Corrupt):
            self.find("hint-unreadable", key, hint, cure, shard=seen.shard, rewrite=rewrite)
        elif hint.base > seen.tail or (hint.base > seen.low and hint.base not in seen.ends.values()):
            what = f"points to {hint.base}, which is not the end of a segment (the log ends at {seen.tail})"
            self.find("hint-wrong", key, what, cure, shard=seen.shard, offset=hint.base, rewrite=rewrite)

    def _head(self, seen: _Shard, name: str, key: str, found: Object, head: Head | Corrupt) -> None:
        again = _again(seen)
        if isinstance(head, Corrupt):
            newer = _is_newer(head)
            rewrite = None if newer else _over(key, found, Head(seen.low, seen.low, version=1))
            self.find("head-unreadable", key, head, UPGRADE if newer else again, shard=seen.shard, rewrite=rewrite)
            return
        if head.next > seen.tail and not seen.torn:
            what = (
                f"subscription {name!r} is at offset {head.next}, but the log ends at {seen.tail}: "
                "what is sent until it gets there would not be delivered"
            )
            rewound = replace(_emptied(head), next=seen.low, segment=seen.low)
            rewrite = _next_head(key, found, rewound)
            self.find("head-ahead", key, what, again, shard=seen.shard, offset=head.next, rewrite=rewrite)
            return
        base = seen.base_at(head.next)
        if base is None and not seen.torn and head.next >= seen.low:
            self._find_head_in_hole(seen, name, key, found, head)
            return
        if base is not None and head.segment not in (base, *seen.bases_that_end_at(head.next)):
            what = f"subscription {name!r} reads from {head.segment}, which is not where a segment begins"
            cure, rewrite = f"read from {base}", _next_head(key, found, replace(head, segment=base))
            self.find("head-off-boundary", key, what, cure, shard=seen.shard, offset=head.segment, rewrite=rewrite)
        missing = [span for span in head.spans() if span.base >= seen.low and not seen.holds(span)]
        if missing and not seen.torn:
            what = f"subscription {name!r} lists offsets {_spans(missing)}, whose segments are gone"
            rewrite, first = _next_head(key, found, _without(head, missing)), min(span.start for span in missing)
            cure = "forget them, they cannot be read"
            self.find("listed-missing", key, what, cure, shard=seen.shard, offset=first, rewrite=rewrite)

    def _find_head_in_hole(self, seen: _Shard, name: str, key: str, found: Object, head: Head) -> None:
        hole = next(((start, stop) for start, stop in seen.holes if start <= head.next < stop), None)
        if hole is None:
            return
        what = f"subscription {name!r} is at offset {head.next}, in the gap up to {hole[1]}"
        mended = replace(_without(head, [s for s in head.spans() if not seen.holds(s)]), next=hole[1], segment=hole[1])
        cure, rewrite = f"go on at {hole[1]}", _next_head(key, found, mended)
        self.find("head-in-gap", key, what, cure, shard=seen.shard, offset=head.next, rewrite=rewrite)

    # Registers

    def registers(self, shards: dict[int, _Shard]) -> Procedure[None]:
        yield from self._dedup()
        yield from self._delayed()
        for prefix in (self.keys.publications, self.keys.readers):
            entries, _ = yield from list_all(prefix)
            for entry in entries:
                if prefix == self.keys.readers:
                    yield from self._reader(entry.key, shards)
                else:
                    cure = "restore it from a copy; without it the query's next batch may be published twice"
                    yield from self._register(Publication, "publication-unreadable", entry.key, cure)
        yield from self._register(Archive, "archive-unreadable", self.keys.archive, "restore it from a copy")

    def _register(
        self, kind: type[Document], slug: str, key: str, cure: str, *, empty: Document | None = None
    ) -> Procedure[Document | None]:
        """The register at `key`; None if there is none. One that cannot be read is found, and replaced by `empty`."""
        found = yield from get(key)
        if isinstance(found, Missing):
            return None
        read = _decoded(lambda body, where: documents.decode(kind, body, where), found.body, key)
        if not isinstance(read, Corrupt):
            return read
        newer = _is_newer(read)
        rewrite = None if newer or empty is None else _over(key, found, empty)
        self.find(slug, key, read, UPGRADE if newer else cure, rewrite=rewrite)
        return None

    def _dedup(self) -> Procedure[None]:
        folder = join(self.keys.root, "dedup") + "/"
        entries, _ = yield from list_all(folder)
        stems = [entry.key.removeprefix(folder).removesuffix(".json") for entry in entries]
        split = {stem[:-2].removesuffix("-") for stem in stems if "-" in stem}
        for stem in stems:  # one that has registers below it stays split: their keys count
            empty = Dedup(format=SPLIT_FORMAT, split=True) if stem in split else Dedup()
            cure = "forget its keys: one may be sent twice"
            yield from self._register(Dedup, "dedup-unreadable", f"{folder}{stem}.json", cure, empty=empty)

    def _delayed(self) -> Procedure[None]:
        cure = "begin an empty one; messages that were being moved may arrive twice"
        slug, key = "delayed-register-unreadable", self.keys.later_register
        yield from self._register(Later, slug, key, cure, empty=Later())
        entries, _ = yield from list_all(self.keys.laters)
        for entry in entries:
            found = yield from get(entry.key)
            if isinstance(found, Object):
                read = _decoded(_delayed_lines, found.body, entry.key)
                if isinstance(read, Corrupt):
                    cure = "restore it from a copy, or move it out of the queue's folder: it holds up what is due"
                    self.find("delayed-unreadable", entry.key, read, cure)

    def _reader(self, key: str, shards: dict[int, _Shard]) -> Procedure[None]:
        reader = yield from self._register(Reader, "reader-unreadable", key, "delete it; the query writes it again")
        if reader is None:
            return
        for shard, offset in reader.offsets.items():
            seen = shards.get(shard)
            if seen is not None and offset > seen.tail and not seen.torn:
                what = f"the reader is at offset {offset}, but the log ends at {seen.tail}"
                cure = "start the query with a new checkpoint: what is sent until the log gets there would not be read"
                self.find("reader-ahead", key, what, cure, shard=shard, offset=offset)


def inspect(prefix: str, queue: str) -> Procedure[Inspection]:
    """Everything of one queue, held against everything else of it."""
    inspector = _Inspector(QueueKeys(prefix, queue))
    settings = yield from inspector.settings()
    yield from inspector.read_losses()
    yield from inspector.read_heads()
    known = yield from inspector.known_shards()
    inspector.find_strays()
    shards = {}
    for shard in sorted(known | set(range(settings.shards))):
        shards[shard] = yield from inspector.shard(shard)
    inspector.find_hidden(settings, [shards[shard] for shard in sorted(known) if shard >= settings.shards])
    yield from inspector.registers(shards)
    losses = tuple(Loss(shard, each.start, each.stop) for shard, gaps in inspector.losses.lost.items() for each in gaps)
    findings = tuple(inspector.findings)
    return Inspection(queue, inspector.segments, inspector.messages, len(inspector.heads), losses, findings)


def _is_newer(error: Corrupt) -> bool:
    """Whether it cannot be read because a later release wrote it."""
    return UPGRADE in str(error)


def _again(seen: _Shard) -> str:
    """What becomes of a head that tells nothing about this log: which messages were settled, nobody knows any more."""
    count = sum(end - base for base, end in seen.ends.items())
    kept = "no messages are kept that would be" if not count else f"what is kept, {count:,} in all, is"
    return f"begin again at {seen.low}; {kept} delivered again, settled or not"


def _settings_cure(guess: Settings) -> str:
    order = "ordered" if guess.ordered else "not ordered"
    return f"write settings for {guess.shards} shards, {order}, all else at its default; check them afterwards"


def _decoded(decode: Callable[[bytes, str], Document], body: bytes, key: str) -> Document | Corrupt:
    try:
        return decode(body, key)
    except Corrupt as error:
        return error


def _delayed_lines(body: bytes, key: str) -> object:
    due_of(key)
    return decode_lines(body, key)


def _base_or_none(entry: Entry) -> int | None:
    base = _decoded(lambda _, key: base_of(key), b"", entry.key)
    return None if isinstance(base, Corrupt) else base


def _body(document: object) -> bytes:
    return documents.encode(document)


def _over(key: str, found: Object, document: object) -> Rewrite:
    return Rewrite(key, found.version, _body(document))


def _next_head(key: str, found: Object, mended: Head) -> Rewrite:
    return _over(key, found, replace(mended, version=mended.version + 1))


def _emptied(head: Head) -> Head:
    return replace(head, leases=(), waiting=(), moving=())


def _without(head: Head, gone: Sequence[Span]) -> Head:
    """The head with these spans listed nowhere."""
    lost = set(gone)
    leases = [replace(lease, held=tuple(held for held in lease.held if held.span not in lost)) for lease in head.leases]
    return replace(
        head,
        leases=tuple(lease for lease in leases if lease.held),
        waiting=tuple(entry for entry in head.waiting if entry.span not in lost),
        moving=tuple(entry for entry in head.moving if entry.span not in lost),
    )


def _miscount(count: int, named: int, key: str) -> str:
    return "" if count == named else f"has {count} lines, {key} says {named}"


def _spans(spans: Sequence[Span]) -> str:
    return ", ".join(f"{span.start} to {span.stop - 1}" for span in sorted(spans, key=lambda span: span.start))
