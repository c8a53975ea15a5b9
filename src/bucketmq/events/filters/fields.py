"""The fields that a filter can name: their names, what sort of value they have, what knowing them costs, and how they
are read.

| field | also written | value |
|---|---|---|
| `key` | | text: below the bucket's prefix |
| `name` | | text: the part of the key after its last slash |
| `size` | `Content-Length` | number of bytes |
| `content_type` | `Content-Type` | text |
| `event_type` | `Event-Type` | text: Tigris' names, also for events from elsewhere |
| `kind` | | text: created, changed, deleted, moved, other |
| `source` | | text: which source reported it |
| `bucket` | | text |
| `time` | `Last-Modified` | time |
| `version` | | text |
| `from_key` | | text: where a moved object was before |
| `hops` | | number |
| `metadata.NAME` | `X-Amz-Meta-NAME` | text; names in any case |
| `tags.NAME` | | text |
| `body.NAME[0].NAME` | | whatever the object's JSON has there |

What has no value is None: what the source did not tell and the store does not know, and JSON's null. An object that was
deleted has no attributes and no body. How values compare belongs to `evaluate`.
"""

from __future__ import annotations

import difflib
import enum
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, get_args

import msgspec

from bucketmq.errors import Invalid
from bucketmq.events.event import KINDS, ObjectEvent, Source, event_type
from bucketmq.events.filters.grammar import Field
from bucketmq.events.filters.times import of_event

Sort = Literal["text", "number", "time", "any"]


class Stage(enum.IntEnum):
    """What has to be at hand to read a field, in the order of cost. A field of the event may still need the object's
    attributes when the event does not tell it."""

    EVENT = 0
    ATTRIBUTES = 1
    BODY = 2


class Unfetched(enum.Enum):
    """In place of what nobody has asked the store for yet."""

    UNFETCHED = "unfetched"


class NoJson(enum.Enum):
    """In place of the body of an object that is too large, gone, or not JSON."""

    NO_JSON = "no json"


UNFETCHED: Final = Unfetched.UNFETCHED
NO_JSON: Final = NoJson.NO_JSON


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What the store said of an object. `Known()` for one that is gone."""

    content_type: str | None = None
    metadata: Mapping[str, str] | None = None
    size_bytes: int | None = None


class Pending(enum.Enum):
    """In place of a value that is not at hand: what to fetch for it."""

    ATTRIBUTES = 1
    BODY = 2


Attributes = Known | Unfetched
Read = Callable[[ObjectEvent, Attributes, Any], Any]
"""Event, attributes and body to the field's value: None without one, `Pending` while it cannot be told."""

FIXED: dict[str, tuple[Sort, Stage]] = {
    "key": ("text", Stage.EVENT),
    "name": ("text", Stage.EVENT),
    "size": ("number", Stage.ATTRIBUTES),
    "content_type": ("text", Stage.ATTRIBUTES),
    "event_type": ("text", Stage.EVENT),
    "kind": ("text", Stage.EVENT),
    "source": ("text", Stage.EVENT),
    "bucket": ("text", Stage.EVENT),
    "time": ("time", Stage.EVENT),
    "version": ("text", Stage.EVENT),
    "from_key": ("text", Stage.EVENT),
    "hops": ("number", Stage.EVENT),
}
BRANCHED: dict[str, tuple[Sort, Stage]] = {
    "metadata": ("text", Stage.ATTRIBUTES),
    "tags": ("text", Stage.EVENT),
    "body": ("any", Stage.BODY),
}
CLOSED: dict[str, tuple[str, ...]] = {"kind": KINDS, "source": get_args(Source)}
"""Fields that have one of a few values."""

_ALSO = {
    "content-length": "size",
    "content-type": "content_type",
    "event-type": "event_type",
    "last-modified": "time",
    "content_length": "size",
    "last_modified": "time",
    "from-key": "from_key",
}
_METADATA_HEADER = "x-amz-meta-"
_SHOWN = (*FIXED, "Content-Length", "Content-Type", "Event-Type", "Last-Modified", "metadata", "tags", "body")
_MEANT = {
    "etag": "version",
    "type": "content_type",
    "mime": "content_type",
    "prefix": "key",
    "path": "key",
    "object": "key",
    "filename": "name",
    "length": "size",
    "bytes": "size",
    "size_bytes": "size",
    "at": "time",
    "date": "time",
    "modified": "time",
    "event": "event_type",
    "event_name": "event_type",
    "eventname": "event_type",
    "meta": "metadata",
    "tag": "tags",
    "json": "body",
    "data": "body",
}


def resolve(parts: tuple[str | int, ...]) -> Field:
    """The field that a dotted name stands for. `Invalid` has two lines: what is wrong, and what to do."""
    written, path = str(parts[0]), parts[1:]
    name = written.lower()
    if name.startswith(_METADATA_HEADER):
        name, path = "metadata", (name.removeprefix(_METADATA_HEADER), *path)
    name = _ALSO.get(name, name)
    if name in FIXED:
        if path:
            raise Invalid(f"{name} is a single value and has no parts\nOnly metadata, tags and body have parts.")
        return Field(name)
    if name == "body":
        return Field("body", path)
    if name not in BRANCHED:
        raise Invalid(_unknown(written))
    if len(path) != 1 or not isinstance(path[0], str) or not path[0]:
        what = f"{name} takes one name"
        raise Invalid(f"{what}\nWrite {name}.NAME, and a name with dots or spaces in backticks: {name}.`a.b`.")
    return Field(name, (path[0].lower() if name == "metadata" else path[0],))


def _unknown(written: str) -> str:
    what = f"there is no field {written[:40]!r}"
    head, dot, _rest = written.partition(".")
    if dot and head.lower() in BRANCHED:
        return f"{what}\nPut each part into backticks of its own: `{head}`.`{written[len(head) + 1 :][:40]}`."
    lower = written.lower()[:40]
    names = {each.lower(): each for each in _SHOWN}
    near = [_MEANT[lower]] if lower in _MEANT else difflib.get_close_matches(lower, names, n=1, cutoff=0.6)
    listed = ", ".join((*FIXED, "metadata.NAME, tags.NAME, body.NAME"))
    if near:
        return f"{what}\nDid you mean {names[near[0]]}? There are {listed}."
    return f"{what}\nThere are {listed}."


def sort_of(field: Field) -> Sort:
    return (FIXED.get(field.name) or BRANCHED[field.name])[0]


def stage_of(field: Field) -> Stage:
    """The most that reading it can need."""
    return (FIXED.get(field.name) or BRANCHED[field.name])[1]


def reader(field: Field) -> Read:
    """How to read a field."""
    match field.name:
        case "metadata":
            return _metadata(str(field.path[0]))
        case "tags":
            tag = str(field.path[0])
            return lambda event, _attributes, _body: None if event.tags is None else event.tags.get(tag)
        case "body":
            return _body(field.path)
        case name:
            return _READERS[name]


def _size(event: ObjectEvent, attributes: Attributes, _body: Any) -> Any:
    if event.size_bytes is not None or event.kind == "deleted":
        return event.size_bytes
    return Pending.ATTRIBUTES if isinstance(attributes, Unfetched) else attributes.size_bytes


def _content_type(event: ObjectEvent, attributes: Attributes, _body: Any) -> Any:
    if event.content_type or event.kind == "deleted":
        return event.content_type or None
    return Pending.ATTRIBUTES if isinstance(attributes, Unfetched) else attributes.content_type or None


def _metadata(name: str) -> Read:
    def read(event: ObjectEvent, attributes: Attributes, _body: Any) -> Any:
        metadata: Mapping[str, str] | None = event.metadata
        if metadata is None:
            if event.kind == "deleted":
                return None
            if isinstance(attributes, Unfetched):
                return Pending.ATTRIBUTES
            metadata = attributes.metadata or {}
        value = metadata.get(name)
        if value is not None:
            return value
        # Stores differ in the case of the names they give back.
        return next((value for each, value in metadata.items() if each.lower() == name), None)

    return read


def _body(path: tuple[str | int, ...]) -> Read:
    def read(event: ObjectEvent, _attributes: Attributes, body: Any) -> Any:
        if event.kind == "deleted" or body is NO_JSON:
            return None
        if body is UNFETCHED:
            return Pending.BODY
        for part in path:
            if isinstance(part, str):
                body = body.get(part) if isinstance(body, dict) else None
            else:
                body = body[part] if isinstance(body, list | tuple) and part < len(body) else None
        return body

    return read


_READERS: dict[str, Read] = {
    "key": lambda event, _attributes, _body: event.key,
    "name": lambda event, _attributes, _body: event.key.rpartition("/")[2],
    "size": _size,
    "content_type": _content_type,
    "event_type": lambda event, _attributes, _body: event_type(event),
    "kind": lambda event, _attributes, _body: event.kind,
    "source": lambda event, _attributes, _body: event.source,
    "bucket": lambda event, _attributes, _body: event.bucket or None,
    "time": lambda event, _attributes, _body: of_event(event.at),
    "version": lambda event, _attributes, _body: event.version,
    "from_key": lambda event, _attributes, _body: event.from_key,
    "hops": lambda event, _attributes, _body: event.hops,
}
assert _READERS.keys() == FIXED.keys()
