"""The register of an archive: how far a queue is archived, and what is being archived now.

An archive is files of messages beside the log, made in three steps:

 1. An intent is entered here: up to which offsets, for which subscriptions, and how the range is cut into files.
 2. The files are created. Their names and rows follow from the intent and the log alone.
 3. The watermark moves and the intent is removed.

An archiver that finds an intent finishes it before it enters its own, so a crash between any two steps, or two
archivers at once, make the same files. Trimming goes no further than the watermark. Making files is
`bucketmq.spark.history.archive`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from bucketmq.bucket.port import Entry
from bucketmq.log.layout import archived_of
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.queues import reload_settings
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.segments.tail import trim_mark
from bucketmq.procedures.verbs import get_state, list_all, update_document
from bucketmq.queue.settings import FORMAT

replace = msgspec.structs.replace

Spans = tuple[tuple[int, int], ...]
"""Ranges of offsets; the second of each is not included."""


class Intent(msgspec.Struct, frozen=True):
    """What is being archived: in each shard, the offsets from its watermark up to `ends`."""

    ends: dict[int, int]
    subscriptions: tuple[str, ...]
    """The subscriptions whose outcomes are columns of the rows."""
    file_bytes: int
    """A file is closed when it holds this many bytes of lines and large bodies."""
    unsettled: dict[str, dict[int, Spans]] = {}
    """Subscription -> shard -> what it had not settled of the range: expired, and archived all the same."""


class Archive(msgspec.Struct, frozen=True):
    """`archive.json`. `version` grows with every change, so no two states have equal bytes."""

    version: int = 0
    holds: bool = False
    """Whether trimming stops at the watermark."""
    since: dict[int, int] = {}
    """The first offset of each shard that was archived; earlier ones had been trimmed."""
    watermark: dict[int, int] = {}
    """Every offset of a shard from `since` up to this is in the files, except those in `skipped`."""
    skipped: dict[int, Spans] = {}
    """What was gone before it could be archived: trimmed before the register held, or lost."""
    lost: dict[int, Spans] = {}
    """The part of `skipped` that trimming had not passed."""
    intent: Intent | None = None
    format: int = FORMAT

    def lets_go(self, shard: int, end: int) -> bool:
        """Whether the archive allows offsets up to `end` to be trimmed."""
        return not self.holds or end <= self.watermark.get(shard, 0)


class ArchivedFile(msgspec.Struct, frozen=True):
    """One file of an archive: the messages of one day among the offsets from `start` up to `end`, not included."""

    key: str
    date: str
    shard: int
    start: int
    end: int
    size_bytes: int
    stored_at: float


def read_archive(queue: OpenQueue) -> Procedure[Archive]:
    """The register, or an empty one where there is none. One GET."""
    return (yield from get_state(queue.keys.archive, Archive()))[0]


def begin(queue: OpenQueue) -> Procedure[Archive]:
    """Make the register, or add the shards that it does not know: from now on nothing is trimmed before it is archived.

    A trim that began before may still delete segments; these are recorded as skipped.
    """
    settings = yield from reload_settings(queue)
    lows = {}
    for shard in range(settings.shards):
        lows[shard] = yield from trim_mark(queue.log(shard))

    def change(before: Archive) -> Archive:
        if before.holds and before.watermark.keys() >= lows.keys():
            return before
        since, watermark = {**lows, **before.since}, {**lows, **before.watermark}
        return replace(before, version=before.version + 1, holds=True, since=since, watermark=watermark)

    return (yield from update_document(Archive, queue.keys.archive, Archive(), change))


def intend(queue: OpenQueue, intent: Intent) -> Procedure[Archive]:
    """Enter an intent, unless there is one, which must be finished first. One GET and one PUT."""

    def change(before: Archive) -> Archive:
        behind = any(end > before.watermark.get(shard, 0) for shard, end in intent.ends.items())
        if before.intent is not None or not behind:
            return before
        ends = {shard: max(end, before.watermark.get(shard, 0)) for shard, end in intent.ends.items()}
        return replace(before, version=before.version + 1, intent=replace(intent, ends=ends))

    return (yield from update_document(Archive, queue.keys.archive, Archive(), change))


def finish(
    queue: OpenQueue, intent: Intent, skipped: Mapping[int, Spans], lost: Mapping[int, Spans]
) -> Procedure[Archive]:
    """Move the watermark: every file of the intent exists. Nothing if another archiver has. One GET and one PUT."""

    def change(before: Archive) -> Archive:
        if before.intent != intent:
            return before
        return replace(
            before,
            version=before.version + 1,
            watermark={**before.watermark, **intent.ends},
            skipped=_joined(before.skipped, skipped),
            lost=_joined(before.lost, lost),
            intent=None,
        )

    return (yield from update_document(Archive, queue.keys.archive, Archive(), change))


def _joined(before: Mapping[int, Spans], after: Mapping[int, Spans]) -> dict[int, Spans]:
    return {shard: (*before.get(shard, ()), *after.get(shard, ())) for shard in sorted({*before, *after})}


def release(queue: OpenQueue) -> Procedure[Archive]:
    """Let trimming ignore the archive until `begin` is called again. One GET and one PUT."""

    def change(before: Archive) -> Archive:
        return replace(before, version=before.version + 1, holds=False) if before.holds else before

    return (yield from update_document(Archive, queue.keys.archive, Archive(), change))


def archived_files(queue: OpenQueue, archive: Archive) -> Procedure[list[ArchivedFile]]:
    """The files below the watermarks. One LIST for every thousand."""
    entries, _ = yield from list_all(queue.keys.archived)
    files = [_file(entry) for entry in entries]
    return [file for file in files if file.end <= archive.watermark.get(file.shard, 0)]


def _file(entry: Entry) -> ArchivedFile:
    date, shard, start, end = archived_of(entry.key)
    return ArchivedFile(entry.key, date, shard, start, end, entry.size_bytes, entry.stored_at)
