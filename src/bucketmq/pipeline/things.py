"""Things: objects to be written, as rows say them, and as Arrow carries them from a stage to the writer.

All that can be wrong with an object's key, content and metadata is found here, where it is one row's fault. Writing is
`bucketmq.pipeline.objects`.
"""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from bucketmq.bucket.port import METADATA_BYTES_MAX, Attributes, check_attributes
from bucketmq.errors import Invalid
from bucketmq.log.bodies import check_finite
from bucketmq.pipeline.columns import arrow_schema
from bucketmq.pipeline.ends import ToObjects
from bucketmq.pipeline.template import filler, names_of
from bucketmq.procedures.objects.keys import check_object_key
from bucketmq.procedures.objects.metadata import OWN_METADATA

if TYPE_CHECKING:
    import pyarrow as pa

DIGEST = "sha256"
"""The metadata that says what bytes an object has, so that writing the same again can be left out."""

SOURCE_KEY, SOURCE_VERSION, SOURCE_ORDER = "source-key", "source-version", "source-order"
"""The metadata of an object that follows another: which one, in which state, and which turn of its register it was."""

COPY_OF = "copy-of"
"""The metadata of a copy: of which state of which object, so that copying it again can be left out."""

TAG = "tag-"
"""What the names of tags begin with among metadata."""

SOURCE_KEY_CHARS_MAX = 700
"""A longer key of a source is told by its hash: metadata has little room."""

STAMP_BYTES = 160
"""Room that every write needs for its own marks."""

THINGS = (
    "array<struct<key:string,body:binary,content_type:string,metadata:map<string,string>,newer:string,"
    "copy_of:string,copy_version:string>>"
)
"""The objects of a row, as a column."""

_TAKEN = OWN_METADATA | {DIGEST, COPY_OF, SOURCE_KEY, SOURCE_VERSION, SOURCE_ORDER}


class Thing(msgspec.Struct, frozen=True):
    """An object to be written: where, what, and what decides whether it is newer than what is there."""

    key: str
    body: bytes
    newer: str | None = None
    content_type: str | None = None
    """None for what the target says, or the key's ending."""
    metadata: Mapping[str, str] = {}
    copy_of: str | None = None
    """The object that has the bytes, in place of a body."""
    copy_version: str | None = None
    """In which state; None for the one that is there."""


class Origin(msgspec.Struct, frozen=True):
    """The state of the source object that a thing was made of, as its metadata tells."""

    key: str
    version: str
    order: int

    @property
    def mark(self) -> str:
        """The key as metadata can hold it."""
        return source_mark(self.key)


def source_mark(key: str) -> str:
    text = quote(key)
    return text if len(text) <= SOURCE_KEY_CHARS_MAX else f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"


def attributes_of(target: ToObjects, thing: Thing, origin: Origin | None = None) -> Attributes:
    """What an object is written with, besides the marks of each write."""
    metadata = {**thing.metadata, DIGEST: hashlib.sha256(thing.body).hexdigest()}
    if target.newer_by is not None and thing.newer is not None:
        metadata[target.newer_by.lower()] = thing.newer
    if origin is not None:
        metadata |= {SOURCE_KEY: origin.mark, SOURCE_VERSION: origin.version, SOURCE_ORDER: str(origin.order)}
    kind = thing.content_type or declared(target) or mimetypes.guess_type(thing.key)[0] or "application/octet-stream"
    return Attributes(kind, metadata)


def declared(target: ToObjects) -> str | None:
    """The content type of all objects, if the target says one."""
    return target.content_type if target.content_type is not None and "/" in target.content_type else None


class Maker:
    """Makes the things of rows that have these columns. `Invalid` if the target needs others."""

    def __init__(self, target: ToObjects, columns: pa.Schema) -> None:
        self._target = target
        self._types = {field.name: field.type for field in columns}
        self._whole = list(self._types)
        if target.each is not None:
            fields = _element(target, self._types)
            self._types |= fields
            self._whole = list(fields)
        self._fill: Callable[[Mapping[str, Any]], str] = filler(target.template)
        self._versions = _version_columns(target, self._types)
        self._check()

    def things(self, batch: pa.RecordBatch) -> list[list[Thing]]:
        """The objects of each row; `Invalid` if one cannot be made."""
        return [self._of_row(row) for row in batch.to_pylist()]

    def _of_row(self, row: dict[str, Any]) -> list[Thing]:
        made = [self._thing(scope) for scope in self._scopes(row)]
        keys = {each.key for each in made}
        if len(keys) != len(made):
            twice = next(each.key for each in made if [other.key for other in made].count(each.key) > 1)
            raise Invalid(
                f"two elements of column {self._target.each!r} become the object {twice!r}; let the template name "
                "something that differs"
            )
        return made

    def _scopes(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if self._target.each is None:
            yield row
            return
        for place, element in enumerate(row[self._target.each] or ()):
            if element is None:
                raise Invalid(f"element {place} of column {self._target.each!r} is null here; leave it out")
            yield {**row, **element}

    def _thing(self, row: dict[str, Any]) -> Thing:
        target = self._target
        kind = None
        if target.content_type is not None and declared(target) is None:
            kind = row[target.content_type]
        newer = None if target.newer_by is None else newer_text(row[target.newer_by])
        metadata = {**self._texts(row, target.metadata, ""), **self._texts(row, target.tags, TAG)}
        if target.copy_of is None:
            thing = Thing(self._fill(row), self._content(row), newer, kind, metadata)
        else:
            version = next((row[name] for name in self._versions if row[name]), None)
            thing = Thing(self._fill(row), b"", newer, kind, metadata, self._source(row, target.copy_of), version)
            if thing.key == thing.copy_of:
                raise Invalid(f"{thing.key!r} cannot be copied to itself; let the template name another key")
        self._check_attributes(thing)
        return thing

    def _source(self, row: dict[str, Any], name: str) -> str:
        if not row[name]:
            raise Invalid(f"column {name!r} is empty here; a copy needs the key of its source")
        return check_object_key(row[name])

    def _content(self, row: dict[str, Any]) -> bytes:
        if self._target.body is not None:
            return _content(row[self._target.body], self._types[self._target.body], self._target.body)
        from bucketmq.pipeline.lines import plain

        values = {name: plain(row[name], self._types[name]) for name in self._whole}
        return _json(values)

    def _texts(self, row: dict[str, Any], named: str | tuple[str, ...] | None, prefix: str) -> dict[str, str]:
        """Metadata or tags of a row. A value that is missing is left out."""
        if named is None:
            return {}
        pairs = row[named] or () if isinstance(named, str) else [(name, row[name]) for name in named]
        found = {f"{prefix}{name.lower()}": _text(name, value) for name, value in pairs if value is not None}
        taken = sorted(found.keys() & _TAKEN)
        if taken:
            raise Invalid(f"metadata {taken[0]!r} means something else; use another name")
        return found

    def _check_attributes(self, thing: Thing) -> None:
        origin = None if self._target.follows is None else Origin("x" * SOURCE_KEY_CHARS_MAX, "x" * 64, 10**13)
        made = attributes_of(self._target, thing, origin)
        check_attributes(made)
        size = sum(len(name) + len(value) for name, value in made.metadata.items())
        if size > METADATA_BYTES_MAX - STAMP_BYTES:
            raise Invalid(
                f"metadata of {size} bytes, with what every object is written with, leaves no room for the "
                f"{STAMP_BYTES} of a write's own marks in {METADATA_BYTES_MAX}; put what is large into the body"
            )

    def _check(self) -> None:
        """What can be told from the columns alone."""
        target = self._target
        if target.newer_by is not None:
            check_newer(target.newer_by)
        kind_column = target.content_type if declared(target) is None else None
        copied = (target.copy_of, target.copy_version)
        named = [*names_of(target.template), target.body, target.newer_by, kind_column, *copied]
        for each in (target.metadata, target.tags):
            named += [each] if isinstance(each, str) else list(each or ())
        for name in named:
            if name is not None and name not in self._types:
                hint = " (a content type has a slash)" if name == kind_column else ""
                raise Invalid(f"the {target.title} need a column {name!r}{hint}; there are {', '.join(self._types)}")
        if kind_column is not None and str(self._types[kind_column]) != "string":
            kind = self._types[kind_column]
            raise Invalid(f"column {kind_column!r} is {kind}; the content type of the {target.title} is a text")
        for name in copied:
            if name is not None and str(self._types[name]) != "string":
                raise Invalid(f"column {name!r} is {self._types[name]}; key and version of what is copied are texts")
        for each in (target.metadata, target.tags):
            if isinstance(each, str) and not _is_map_of_texts(self._types[each]):
                raise Invalid(
                    f"column {each!r} is {self._types[each]}, not map<string,string>; name columns as a tuple to make "
                    f"metadata of their values: ({each!r},)"
                )


def _is_map_of_texts(kind: pa.DataType) -> bool:
    from pyarrow import types

    return bool(types.is_map(kind) and types.is_string(kind.key_type) and types.is_string(kind.item_type))


def _version_columns(target: ToObjects, types: Mapping[str, pa.DataType]) -> list[str]:
    """The columns that say which state is copied: the first that has a value counts."""
    if target.copy_version is not None:
        return [target.copy_version]
    events = ("content_version", "version") if target.copy_of == "key" else ()
    return [name for name in events if name in types and str(types[name]) == "string"]


def _element(target: ToObjects, types: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
    """The fields of the elements that become objects."""
    from pyarrow import types as kinds

    each = target.each
    if each is None or each not in types:
        raise Invalid(f"the {target.title} need a column {each!r}; there are {', '.join(types)}")
    kind = types[each]
    if not (kinds.is_list(kind) and kinds.is_struct(kind.value_type)):
        raise Invalid(f"column {each!r} is {kind}, not array<struct<...>>, whose elements could become objects")
    return {field.name: field.type for field in kind.value_type}


def check_newer(name: str) -> None:
    """The column's name is the name of metadata, too."""
    if name.lower() in _TAKEN:
        raise Invalid(f"newer_by cannot be {name!r}, which means something else; rename the column")
    check_attributes(Attributes("", {name.lower(): "0"}))


def newer_text(value: Any) -> str:
    """What decides between two states of an object, as its metadata carries it: a whole number, or a time."""
    if isinstance(value, datetime):
        at = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return at.astimezone(UTC).isoformat(timespec="microseconds")
    if isinstance(value, bool) or not isinstance(value, int):
        raise Invalid(f"newer_by is {value!r} here; it must be a whole number or a time")
    return str(value)


def _text(name: str, value: Any) -> str:
    """A value as metadata."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    raise Invalid(f"column {name!r} is {type(value).__name__} here; metadata is made of texts, numbers and times")


def _content(value: Any, kind: pa.DataType, name: str) -> bytes:
    from bucketmq.pipeline.lines import plain

    if value is None:
        raise Invalid(f"column {name!r} is null here; an object needs a content")
    if isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else _json({name: plain(value, kind)}, name)


def _json(values: dict[str, Any], only: str | None = None) -> bytes:
    """Columns as a JSON object, or one of them alone. `Invalid` for a number that JSON has not, naming its column."""
    data = msgspec.json.encode(values if only is None else values[only])
    if b"null" in data:
        for name, value in values.items():
            try:
                check_finite([value], b"null")
            except Invalid as error:
                raise Invalid(f"column {name!r}: {error}") from None
    return data


def as_column(things: Sequence[Sequence[Thing] | None]) -> pa.Array:
    """The things of each row; None for a row that is not for this target."""
    import pyarrow as pa

    kind = arrow_schema(f"things {THINGS}").field("things").type
    made = [
        None
        if row is None
        else [{**msgspec.structs.asdict(each), "metadata": list(each.metadata.items())} for each in row]
        for row in things
    ]
    return pa.array(made, kind)


def of_column(column: pa.Array) -> list[list[Thing] | None]:
    """The way back."""
    return [
        None if row is None else [Thing(**{**each, "metadata": dict(each["metadata"])}) for each in row]
        for row in column.to_pylist()
    ]
