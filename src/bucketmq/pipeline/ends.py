"""The two ends of a pipeline as values: where rows come from and where they go. Nothing here makes a request.

What the rows of a source look like is said here (`columns`), because stages are joined to it; how they are made is
`bucketmq.pipeline.intake`. How rows become messages and objects is `bucketmq.pipeline.shape`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import msgspec

from bucketmq.bucket.urls import check_url, without_secrets
from bucketmq.errors import Invalid
from bucketmq.events import filters
from bucketmq.events.event import HOPS_MAX_DEFAULT
from bucketmq.pipeline.columns import MESSAGE_COLUMNS, MESSAGE_OWN, column_names, ddl_of
from bucketmq.pipeline.sets import FromSets
from bucketmq.pipeline.template import check_template
from bucketmq.pipeline.upserts import ToUpserts
from bucketmq.procedures.queues import EVENTS, check_queue_name
from bucketmq.queue.settings import DEAD_SUFFIX, check_name

EVENT_COLUMNS = {
    "event_id": "string",
    "kind": "string",
    "key": "string",
    "at": "timestamp",
    "source": "string",
    "size_bytes": "bigint",
    "version": "string",
    "content_type": "string",
    "metadata": "map<string,string>",
    "from_key": "string",
    "hops": "int",
}
"""An event as a row; see `bucketmq.events.event.ObjectEvent`."""

CONTENT_COLUMNS = {"content_version": "string", "content_state": "string"}
"""Beside the column `content`: which version was read, and whether it is the event's: `same`, `replaced` or `gone`."""

Content = Literal["bytes", "text", "json"]
FileFormat = Literal["parquet", "orc", "json", "csv"]
IfExists = Literal["keep", "replace", "newer", "newest"]

OBJECT_BYTES_MAX = 32 << 20


class FromQueue(msgspec.Struct, frozen=True):
    """The messages of a queue.

    Without `body_schema` rows are messages: id, key, headers, body (JSON text), body_bytes, sent_at. With it the fields
    of the body are the columns, and the message's own are `message_id`, `message_key`, `message_headers` and
    `message_sent_at`. Fields that the schema does not know are ignored; a message whose body does not fit it is a
    dead letter.
    """

    queue: str
    body_schema: str | None = None

    def __post_init__(self) -> None:
        check_name(self.queue, "queue name")
        if self.body_schema is not None:
            odd = [name for name in column_names(self.body_schema) if name.startswith(("message_", "_"))]
            if odd:
                raise Invalid(f"body_schema has a column {odd[0]!r}; message_... and _... are taken, use other names")

    @property
    def columns(self) -> str:
        if self.body_schema is None:
            return ddl_of(MESSAGE_COLUMNS)
        return f"{self.body_schema}, {ddl_of(MESSAGE_OWN)}"

    @property
    def log(self) -> str:
        """The queue that is read."""
        return self.queue


class FromEvents(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of the bucket's objects that a filter lets through, with the objects' content if wanted.

    Columns: event_id, kind, key, at, source, size_bytes, version, content_type, metadata, from_key, hops; with
    `content` also `content` (binary, or string for text and JSON), `content_version` and `content_state`: `same`,
    `replaced` (the object was written again since: the content is the new one) or `gone` (no content). An object that
    is larger than `size_bytes_max`, or not the text or JSON it should be, makes a dead letter; so does an event of a
    chain of more than `hops_max` hops. Deletions are rows too, unless the filter leaves them out.
    """

    filter: str = ""
    content: Content | None = None
    size_bytes_max: int = OBJECT_BYTES_MAX
    concurrency: int = 8
    """Objects that one task fetches at a time."""
    hops_max: int = HOPS_MAX_DEFAULT

    def __post_init__(self) -> None:
        filters.parse(self.filter)
        if self.content is not None and self.content not in get_args(Content):
            raise Invalid(f"content must be bytes, text or json, not {self.content!r}")
        if not 1 <= self.concurrency <= 64 or self.size_bytes_max < 1:
            raise Invalid("concurrency must be 1 to 64 and size_bytes_max 1 or more")

    @property
    def columns(self) -> str:
        if self.content is None:
            return ddl_of(EVENT_COLUMNS)
        kind = "binary" if self.content == "bytes" else "string"
        return ddl_of({**EVENT_COLUMNS, "content": kind, **CONTENT_COLUMNS})

    @property
    def log(self) -> str:
        """The queue that is read."""
        return EVENTS


class FromTable(msgspec.Struct, frozen=True):
    """The files of a table, as they are added: a path that Spark can read, and its format. `schema` is Spark DDL.

    A row that fails becomes a dead letter of a queue named like the pipeline, with the row as its body.
    """

    path: str
    schema: str
    format: FileFormat = "parquet"

    def __post_init__(self) -> None:
        column_names(self.schema)
        if self.format not in get_args(FileFormat):
            raise Invalid(f"a table's format must be one of {', '.join(get_args(FileFormat))}, not {self.format!r}")

    @property
    def columns(self) -> str:
        return self.schema


class ToQueue(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A message for each row, once, whatever is run again.

    The body is the row as a JSON object, or the column that `body` names: bytes as bytes, text as the JSON that it is
    (or as text, with `text`), anything else as JSON. `key` and `headers` name the columns of its key and headers.
    """

    queue: str
    body: str | None = None
    key: str | None = None
    headers: str | None = None
    text: bool = False
    """Whether a body of text is text, and not JSON."""
    where: str | None = None
    """Which rows: a column of truth values, or a condition like `score >= 0.8 AND kind = "image"`."""
    bucket: str | None = None
    """The URL of another bucket that the queue is in."""

    def __post_init__(self) -> None:
        check_queue_name(self.queue)
        _check_bucket(self.bucket)

    @property
    def title(self) -> str:
        """What it is called in errors and logs."""
        return _title(f"queue {self.queue!r}", self.bucket)


class ToObjects(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """An object for each row, written with its event: at least once, and nothing changes when it is done again.

    The key is `template` with values of columns in it: `pending/{id}.json`. Values are percent-encoded, so that none
    becomes another key; `{+key}` keeps the slashes of a value that is a key itself. The content is the column `body`
    (bytes and text as they are, anything else as JSON), or without it the row as a JSON object.

    `if_exists`: `keep` what is there; `replace` it unless it is the same; or `newer`: replace it only if its metadata
    has a smaller value of the column `newer_by` (a whole number or a time), which every object is written with. An
    object without the value was written by another program and stays; with `newest` it is replaced like an older one.
    """

    template: str
    body: str | None = None
    content_type: str | None = None
    """A content type such as `image/webp`, or the column that has it; a name without a slash is a column."""
    metadata: str | tuple[str, ...] | None = None
    """A column that is a map of texts, or the names of columns whose values become metadata of the same names."""
    tags: str | tuple[str, ...] | None = None
    """The same for tags. No store behind this library takes tags with a write: they are metadata named `tag-NAME`."""
    each: str | None = None
    """A column of arrays of structs: an object for each element, whose fields stand beside the row's columns, and
    before those of the same name. Without `body` the content is the element as a JSON object."""
    if_exists: IfExists = "replace"
    newer_by: str | None = None
    follows: str | None = None
    """The column that has the key of the object, in the bucket that events are of, that the row was made of. What is
    made of it goes when it goes, and is replaced when it is. The event's columns `at` and `version` must come through
    the stages, too."""
    where: str | None = None
    """Which rows: a column of truth values, or a condition like `score >= 0.8 AND kind = "image"`."""
    bucket: str | None = None
    """The URL of another bucket that the objects are written to, and their events reported in."""
    copy_of: str | None = None
    """In place of `body`: the column that has the key of an object of the pipeline's bucket, whose bytes the object
    gets. Copied inside the store where that can, without reading them. Content type and metadata are the source's,
    unless this target names others."""
    copy_version: str | None = None
    """The column that says which state of it; null for whatever is there. Left out, and `copy_of` is the event's `key`:
    its `content_version` or `version`. If the source is not in that state any more, the row is done and copies
    nothing: a newer event reports what is there."""
    move: bool = False
    """Whether the source goes when the copy is there: one event, `moved`. Moves come after all other objects."""

    def __post_init__(self) -> None:
        check_template(self.template)
        _check_bucket(self.bucket)
        _check_copy(self)
        if self.if_exists not in get_args(IfExists):
            raise Invalid(f"if_exists must be keep, replace, newer or newest, not {self.if_exists!r}")
        if (self.if_exists in ("newer", "newest")) != (self.newer_by is not None):
            raise Invalid("if_exists 'newer' or 'newest' goes with newer_by, the column that says which row is newer")
        if self.follows is not None and self.newer_by is not None:
            raise Invalid("follows goes by the versions of the source object; leave if_exists and newer_by out")

    @property
    def title(self) -> str:
        """What it is called in errors and logs."""
        return _title(f"objects {self.template!r}", self.bucket)


class ToTable(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Files of a table that Spark can write: at least once, each batch of a query in a folder of its own, which a batch
    that is run again replaces: `path/query=<id>/batch=<number>/`. `query` and `batch` are columns of the table."""

    path: str
    format: FileFormat = "parquet"
    partition_by: Sequence[str] = ()
    where: str | None = None
    """Which rows: a column of truth values, or a condition like `score >= 0.8 AND kind = "image"`."""

    def __post_init__(self) -> None:
        if self.format not in get_args(FileFormat):
            raise Invalid(f"a table's format must be one of {', '.join(get_args(FileFormat))}, not {self.format!r}")

    @property
    def title(self) -> str:
        """What it is called in errors and logs."""
        return f"table {self.path!r}"


def _check_bucket(url: str | None) -> None:
    if url is not None:
        check_url(url)


def _check_copy(target: ToObjects) -> None:
    if target.copy_of is None:
        if target.move or target.copy_version is not None:
            raise Invalid("move and copy_version go with copy_of, the column that has the key of the source")
        return
    if target.body is not None:
        raise Invalid("an object has the bytes of the column body, or those of the object copy_of: leave one out")
    if target.bucket is not None:
        raise Invalid("copy_of copies within the pipeline's bucket; for another one read the content and write a body")
    if target.follows is not None:
        raise Invalid("copies do not follow their source; leave follows out, or read the content and write a body")
    beside = (target.content_type, target.metadata, target.tags, target.newer_by)
    if target.move and any(each is not None for each in beside):
        raise Invalid("a move keeps content type and metadata; leave content_type, metadata, tags and newer_by out")


def _title(what: str, bucket: str | None) -> str:
    return what if bucket is None else f"{what} in {without_secrets(bucket)}"


Source = FromQueue | FromEvents | FromSets | FromTable
Target = ToQueue | ToObjects | ToTable | ToUpserts


def is_following(target: Target) -> bool:
    """Whether what is written goes with the source object that it was made of."""
    return isinstance(target, ToObjects) and target.follows is not None


def dead_letters_of(queue: str) -> str:
    """The queue whose dead letters a queue's failing rows become; those of dead letters go back there."""
    return queue.removesuffix(DEAD_SUFFIX)
