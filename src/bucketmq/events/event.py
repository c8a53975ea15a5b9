"""An object event: one change of one object, whatever source it is known from.

Every source is brought to this one form: a receiver's parser, our own writers, the sweep. It is the body of a message
in the queue `events`, whose message key is the object's key, so that one object's events share a shard.

An event's `id` says which telling it is: the same notification sent twice has one id. Whether two tellings from
different sources are about the same write is for `bucketmq.events.window` to find out.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Literal, get_args

import msgspec

from bucketmq.values import Value

Kind = Literal["created", "changed", "deleted", "moved", "other"]
"""`changed` where the source can tell it from `created`; `other` for what does not change the content (tags, tiers)."""

KINDS: tuple[Kind, ...] = get_args(Kind)

Source = Literal[
    "tigris",
    "s3",
    "minio",
    "ceph",
    "seaweedfs",
    "eventbridge",
    "gcs",
    "azure",
    "r2",
    "cloudevents",
    "writer",
    "sweep",
    "files",
    "trigger",
]

OBSERVED: frozenset[str] = frozenset({"sweep", "files"})
"""Sources that saw a state instead of a write: their time is the state's, not that of the report."""

HOPS_MAX_DEFAULT = 16
LINEAGE_MAX = 16
"""How many ancestors an event names."""


class Order(msgspec.Struct, frozen=True, omit_defaults=True):
    """A mark that grows with each change of one key. Only marks of the same sort can be compared; see `order.newer`."""

    by: Literal["sequencer", "generation", "text"]
    mark: str


class ObjectEvent(Value, msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One change of one object."""

    id: str
    kind: Kind
    key: str
    """Below the bucket's prefix, as users name it."""
    at: str
    """When it happened, as the source tells: RFC 3339 in UTC with microseconds, so that times compare as text."""
    source: Source
    name: str = ""
    """The source's own word for it, such as OBJECT_CREATED_PUT or ObjectCreated:Put."""
    bucket: str = ""
    size_bytes: int | None = None
    version: str | None = None
    """The mark of the state it is about, without quotes: etag, generation or what the store uses."""
    version_id: str | None = None
    """The id of a versioned bucket's version."""
    exact: bool = False
    """Whether `version` (or `version_id`) belongs to one write alone, as generations do and content hashes do not."""
    content_type: str | None = None
    metadata: dict[str, str] | None = None
    """None where the source does not tell; names in lower case."""
    tags: dict[str, str] | None = None
    order: Order | None = None
    from_key: str | None = None
    """For `moved`: where it was before."""
    seen_at: str | None = None
    """For a deletion the sweep found: when the state that is gone was stored."""
    hops: int = 0
    lineage: tuple[str, ...] = ()
    """Ids of the events whose handling led to this write, oldest first, at most `LINEAGE_MAX`."""


TIGRIS_NAMES: dict[Kind, str] = {
    "created": "OBJECT_CREATED_PUT",
    "changed": "OBJECT_CREATED_PUT",
    "deleted": "OBJECT_DELETED",
    "moved": "OBJECT_RENAME",
    "other": "OBJECT_TRANSITIONED",
}


def event_type(event: ObjectEvent) -> str:
    """What the filter field `Event-Type` compares: Tigris' name, also for events from elsewhere."""
    return event.name if event.source == "tigris" and event.name else TIGRIS_NAMES[event.kind]


def event_id(source: str, bucket: str, key: str, *marks: str | None) -> str:
    """A stable id from whatever tells this change from any other: kind, version, sequencer or time."""
    text = "\0".join((source, bucket, key, *("" if mark is None else mark for mark in marks)))
    return "evt_" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def plain_version(version: str) -> str:
    """A store's version as events carry it: without quotes or a weak mark."""
    return version.removeprefix("W/").strip('"')


def time_text(seconds: float) -> str:
    """Seconds since 1970 as events tell time."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def seconds_of(text: str) -> float:
    """The other way round."""
    return datetime.fromisoformat(text).timestamp()
