"""What a streaming query's checkpoint tells: the query's id, and how far a batch read its queues.

Read where it lies on a disk of the driver. Elsewhere (HDFS, an object store through Hadoop) nothing is known, which
costs the mirror of the offsets and nothing else.
"""

from __future__ import annotations

from pathlib import Path

import msgspec


class _Metadata(msgspec.Struct):
    id: str


class _Offset(msgspec.Struct):
    queue: str
    shards: dict[str, int]


def query_id(location: str | None) -> str | None:
    """The id of the query, which stays the same when it is started again."""
    text = _read(location, "metadata")
    try:
        return msgspec.json.decode(text, type=_Metadata).id if text else None
    except msgspec.DecodeError:
        return None


def offsets_of(location: str | None, batch: int) -> dict[str, dict[str, int]] | None:
    """Queue -> shard -> the first offset after those that the batch covers; None if that cannot be known.

    Spark writes this before it runs the batch: a version, a line of settings, and a line for each source.
    """
    text = _read(location, f"offsets/{batch}")
    if not text:
        return None
    found: dict[str, dict[str, int]] = {}
    for line in text.splitlines()[2:]:
        try:
            offset = msgspec.json.decode(line, type=_Offset)
        except msgspec.DecodeError:
            continue  # another kind of source
        found.setdefault(offset.queue, {}).update(offset.shards)
    return found


def folder_of(location: str) -> Path | None:
    """The folder on this machine that Spark means by a location; None if it lies elsewhere.

    Hadoop's paths look like URLs and are not: what follows the scheme is the name as it is, with all its characters.
    """
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:
        return Path(location)
    name = rest.removeprefix("//")
    return Path(name) if scheme == "file" and name.startswith("/") else None


def _read(location: str | None, name: str) -> str:
    folder = folder_of(location) if location else None
    if folder is None:
        return ""
    try:
        return (folder / name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
