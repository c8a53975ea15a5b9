"""SeaweedFS: the filer's webhook, `{"event_type", "key", "message": {"old_entry", "new_entry", ...}}`, one per request.

The filer reports files, not objects: directories, parts of uploads and what the server keeps for itself are among them
and are ignored, and the versions of an object are files of their own in a directory `<name>.versions`.

It tells no time but the file's. So a deletion's `seen_at` is when the state that is gone was stored, and a rename,
which keeps the file's time, has none of its own. Two renames of one unchanged file between the same names are told with
the same words and have the same id.
"""

from __future__ import annotations

import hashlib

import msgspec

from bucketmq.errors import Invalid
from bucketmq.events.event import Kind, ObjectEvent, event_id, plain_version, time_text
from bucketmq.events.parse.fields import (
    Reading,
    from_base64,
    hops_of,
    inner,
    lineage_of,
    need,
    need_inner,
    size,
    text,
    text_from_base64,
)
from bucketmq.events.parse.result import IGNORED, BadItem, Item, Parsed, gather, told

BUCKETS = "/buckets/"
UPLOADS = ".uploads"
VERSIONS = ".versions"

METADATA = "x-amz-meta-"
TAG = "x-amz-tagging-"
ETAG = "Seaweed-X-Amz-ETag"
VERSION_ID = "Seaweed-X-Amz-Version-Id"
DELETE_MARKER = "Seaweed-X-Amz-Delete-Marker"

KNOWN = frozenset({"create", "update", "delete", "rename"})


class _Place(msgspec.Struct, frozen=True):
    """An object, as opposed to a file."""

    bucket: str
    key: str


def read(value: object, reading: Reading) -> Parsed:
    if not isinstance(value, dict) or not isinstance(value.get("message"), dict):
        raise Invalid('the body is not from a SeaweedFS filer: it must be an object with an object "message"')
    return gather([value], lambda item: _event(item, reading))


def _event(item: Item, reading: Reading) -> Parsed:
    path = need(item, "key")
    name = text(item, "event_type") or ""
    message = need_inner(item, "message")
    old, new = _entry(message, "old_entry"), _entry(message, "new_entry")
    if old is None and new is None:
        raise BadItem("has neither an old nor a new entry")
    if any(entry is not None and entry.get("is_directory") is True for entry in (old, new)):
        return IGNORED
    before = None if old is None else _place(path, old)
    new_path = _new_path(path, message, new)
    after = None if new is None else _place(new_path, new)
    known = name in KNOWN
    if old is not None and before is not None and new is not None and after is not None:
        if before == after and path == new_path:
            return _update(name, after, old, new, reading, known=known)
        if before.bucket == after.bucket:
            moved = _told(name, "moved", after, new, reading, before.key, from_key=before.key)
            return told(moved, known=known)
        left = _told(name, "deleted", before, old, reading, "left")
        arrived = _told(name, "created", after, new, reading, "arrived")
        return Parsed(events=(left, arrived), unknown=told(left, known=known).unknown)
    if new is not None and after is not None:  # also: renamed from a path that is not an object's
        gone = text(inner(new, "extended"), DELETE_MARKER) is not None
        return told(_told(name, "deleted" if gone else "created", after, new, reading), known=known)
    if old is not None and before is not None:
        return told(_told(name, "deleted", before, old, reading, "gone"), known=known)
    return IGNORED


def _update(name: str, place: _Place, old: Item, new: Item, reading: Reading, *, known: bool) -> Parsed:
    """The same file again: other bytes, or the same with other names attached, or something of the server's own."""
    if _state(old) != _state(new):
        return told(_told(name, "changed", place, new, reading), known=known)
    attached = _attached(new)
    if attached != _attached(old):
        return told(_told(name, "other", place, new, reading, _digest(attached)), known=known)
    if inner(old, "extended") != inner(new, "extended"):
        return IGNORED
    return told(_told(name, "changed", place, new, reading), known=known)  # an empty file, written twice in a second


def _told(
    name: str,
    kind: Kind,
    place: _Place,
    entry: Item,
    reading: Reading,
    *marks: str,
    from_key: str | None = None,
) -> ObjectEvent:
    attributes, extended = inner(entry, "attributes"), inner(entry, "extended")
    stored_at = _stored_at(attributes)
    is_marker = DELETE_MARKER in extended
    ended = kind == "deleted" and not is_marker  # a marker's time is when it was set
    at = (reading.received_at or stored_at) if ended or kind == "moved" else stored_at
    metadata, tags = _attached(entry)
    version_id = text_from_base64(extended.get(VERSION_ID))
    return ObjectEvent(
        id=event_id("seaweedfs", place.bucket, place.key, kind, *_state(entry), version_id, *marks),
        kind=kind,
        key=place.key,
        at=max(at, stored_at),
        source="seaweedfs",
        name=name,
        bucket=place.bucket,
        size_bytes=None if is_marker else size(attributes, "file_size") or 0,  # zeros are left out on the wire
        version=None if is_marker else _etag(attributes, extended),
        version_id=version_id,
        exact=version_id is not None and version_id != "null",
        content_type=text(attributes, "mime"),
        metadata=metadata,
        tags=tags,
        from_key=from_key,
        seen_at=stored_at if ended else None,
        hops=hops_of(metadata),
        lineage=lineage_of(metadata),
    )


def _entry(message: Item, name: str) -> Item | None:
    entry = message.get(name)
    return entry if isinstance(entry, dict) else None


def _new_path(path: str, message: Item, new: Item | None) -> str:
    """Where the new entry lies: `key` is where the old one lay, if there was one."""
    parent, name = text(message, "new_parent_path"), text(new or {}, "name")
    return path if parent is None or name is None else f"{parent.rstrip('/')}/{name}"


def _place(path: str, entry: Item) -> _Place | None:
    """The object that a file is, or is a version of; None if it is not an object's."""
    if not path.startswith(BUCKETS):
        return None
    bucket, _, key = path.removeprefix(BUCKETS).partition("/")
    if not key or bucket.startswith(".") or key.split("/", 1)[0] == UPLOADS:
        return None
    folder, _, file = key.rpartition("/")
    version_id = text_from_base64(inner(entry, "extended").get(VERSION_ID))
    if version_id is not None and folder.endswith(VERSIONS) and file == f"v_{version_id}":
        key = folder.removesuffix(VERSIONS)
    return _Place(bucket, key) if key else None


def _state(entry: Item) -> tuple[str, ...]:
    """What tells one write of a file from any other: its chunks' ids, and for a file without, what little there is."""
    attributes = inner(entry, "attributes")
    marks = [_mark(attributes, name) for name in ("mtime", "mtime_ns", "file_size", "md5", "inode")]
    marks += _mark(inner(entry, "extended"), ETAG), _mark(entry, "content")
    chunks = entry.get("chunks")
    for chunk in chunks if isinstance(chunks, list) else ():
        if isinstance(chunk, dict):
            fid = inner(chunk, "fid")
            marks += _mark(chunk, "modified_ts_ns"), _mark(fid, "volume_id"), _mark(fid, "file_key")
    return tuple(marks)


def _mark(item: Item, name: str) -> str:
    value = item.get(name)
    return str(value) if isinstance(value, str | int) else ""


def _attached(entry: Item) -> tuple[dict[str, str], dict[str, str]]:
    """Metadata and tags."""
    metadata: dict[str, str] = {}
    tags: dict[str, str] = {}
    for name, value in inner(entry, "extended").items():
        written = text_from_base64(value)
        if written is not None and name.lower().startswith(METADATA):
            metadata[name[len(METADATA) :].lower()] = written
        elif written is not None and name.lower().startswith(TAG):
            tags[name[len(TAG) :]] = written
    return metadata, tags


def _digest(attached: tuple[dict[str, str], dict[str, str]]) -> str:
    return hashlib.sha256(msgspec.json.encode(attached, order="sorted")).hexdigest()


def _etag(attributes: Item, extended: Item) -> str | None:
    told_etag = text_from_base64(extended.get(ETAG))
    if told_etag:
        return plain_version(told_etag)
    md5 = from_base64(attributes.get("md5"))
    return md5.hex() if md5 else None


def _stored_at(attributes: Item) -> str:
    seconds, nanoseconds = attributes.get("mtime"), attributes.get("mtime_ns", 0)
    if not isinstance(seconds, int) or not 0 <= seconds < 253_402_300_800:  # the year 10000
        raise BadItem("has no time of its file")
    microseconds = nanoseconds // 1000 if isinstance(nanoseconds, int) and 0 <= nanoseconds < 10**9 else 0
    return f"{time_text(seconds)[:20]}{microseconds:06}Z"
