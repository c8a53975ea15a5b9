"""The last step of a chain: rows brought into the shape that the target's sink wants.

It is a stage like any other, so that a row of which no message or object can be made is a dead letter and not a failed
query. Writing does not belong here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, assert_never

import msgspec

from bucketmq.bucket.port import Attributes, check_attributes
from bucketmq.errors import Invalid
from bucketmq.pipeline.columns import arrow_schema, column_names, quoted, type_text
from bucketmq.pipeline.ends import Target, ToObjects, ToQueue, ToTable
from bucketmq.pipeline.results import Outcomes
from bucketmq.pipeline.stages import Stage
from bucketmq.pipeline.template import filler, names_of
from bucketmq.procedures.objects.metadata import OWN_METADATA

if TYPE_CHECKING:
    import pyarrow as pa

DIGEST = "sha256"
"""The metadata that says what bytes an object has, so that writing the same again can be left out."""

OBJECT_COLUMNS = "key string, body binary"
"""What the sink of objects is given: where, and what; and beside it the column that tells what is newer."""

CAUSE = "_cause"
"""The column beside them that says what events led to a row, as JSON, so that the loop guard can count hops."""

TABLE_FOLDERS = ("query", "batch")
"""What the folders of a table are named after: Spark reads them as columns, in place of any that the files have."""

CheckKeys = Callable[[Sequence[str]], None]
"""Asks the store whether it can have objects under these keys: `Invalid` if not."""


def shape_stage(target: Target, gives: str, check_keys: CheckKeys | None = None) -> Stage | None:
    """The stage that brings `gives` into the target's shape; None where rows are what the target takes."""
    match target:
        case ToQueue():
            shape = QueueShape(target, gives)
            return Stage(name="target", takes=gives, gives=shape.gives, function=shape)
        case ToObjects():
            objects = ObjectShape(target, gives, check_keys)
            return Stage(name="target", takes=gives, gives=objects.gives, function=objects)
        case ToTable():
            check_columns(gives, target.partition_by, "partition_by of the table")
            taken = [name for name in column_names(gives) if name.lower() in TABLE_FOLDERS]
            if taken:
                raise Invalid(f"a table has a column {taken[0]!r} of its own, which would hide this one; rename it")
            return None
        case _:
            assert_never(target)


def check_columns(gives: str, wanted: Sequence[str | None], what: str) -> None:
    for name in wanted:
        if name is not None and name not in column_names(gives):
            raise Invalid(f"{what} needs a column {name!r}; the last stage gives {', '.join(column_names(gives))}")


class QueueShape:
    """Rows to the columns body, key and headers. Bodies that are neither text nor bytes become JSON here, so that times
    in them are written in UTC whatever the session's zone is."""

    def __init__(self, target: ToQueue, gives: str) -> None:
        check_columns(gives, (target.body, target.key, target.headers), f"the queue {target.queue!r}")
        self._target = target
        self._takes = gives
        kind = None if target.body is None else type_text(arrow_schema(gives).field(target.body).type)
        self._encodes = kind not in ("string", "binary")
        if target.text and kind != "string":
            raise Invalid(f"text says that the body of {target.queue!r} is text, but {target.body or 'the row'} is not")
        self.gives = "body binary" if kind == "binary" else "body string"
        if target.key is not None:
            self.gives += ", key string"
        if target.headers is not None:
            self.gives += ", headers map<string,string>"

    def __reduce__(self) -> Any:
        return type(self), (self._target, self._takes)

    def __call__(self, batch: pa.RecordBatch) -> Outcomes:
        import pyarrow as pa

        from bucketmq.pipeline.letters import Columns

        target = self._target
        body = batch.to_struct_array() if target.body is None else batch.column(target.body)
        columns = {"body": _json(body) if self._encodes else body}
        if target.key is not None:
            columns["key"] = batch.column(target.key)
        if target.headers is not None:
            columns["headers"] = batch.column(target.headers)
        made = pa.RecordBatch.from_pydict(columns)
        Columns(made.schema.names, text=target.text).check(made)
        return Outcomes(rows=made, of=range(batch.num_rows))


def _json(column: pa.Array) -> pa.Array:
    """Values as JSON text."""
    import pyarrow as pa

    from bucketmq.pipeline import lines

    return lines.encoded(lines.values_of(column)).cast(pa.large_string()).cast(pa.string())


class Thing(msgspec.Struct, frozen=True):
    """An object to be written: where, what, and what decides whether it is newer than what is there."""

    key: str
    body: bytes
    newer: str | None = None


class ObjectShape:
    """Rows to keys and contents."""

    def __init__(self, target: ToObjects, gives: str, check_keys: CheckKeys | None = None) -> None:
        wanted = (target.body, target.newer_by, *names_of(target.template))
        check_columns(gives, wanted, f"the objects {target.template!r}")
        self._target = target
        self._takes = gives
        self._check_keys = check_keys
        self.gives = OBJECT_COLUMNS
        if target.newer_by is not None:
            check_newer(target.newer_by)
            kind = type_text(arrow_schema(gives).field(target.newer_by).type)
            self.gives += f", {quoted(target.newer_by)} {kind}"

    def __reduce__(self) -> Any:
        return type(self), (self._target, self._takes, self._check_keys)

    def __call__(self, batch: pa.RecordBatch) -> Outcomes:
        import pyarrow as pa

        things = things_of(self._target, batch)
        if self._check_keys is not None:
            self._check_keys([each.key for each in things])
        columns: dict[str, Any] = {
            "key": pa.array([each.key for each in things], pa.string()),
            "body": pa.array([each.body for each in things], pa.binary()),
        }
        if self._target.newer_by is not None:
            columns[self._target.newer_by] = batch.column(self._target.newer_by)
        return Outcomes(rows=pa.RecordBatch.from_pydict(columns), of=range(batch.num_rows))


def shaped(target: ToObjects) -> ToObjects:
    """The target of rows that have its shape already."""
    return msgspec.structs.replace(target, template="{+key}", body="body")


def check_newer(name: str) -> None:
    """The column's name is the name of metadata, too."""
    if name in ("key", "body") or name.lower() in OWN_METADATA | {DIGEST}:
        raise Invalid(f"newer_by cannot be {name!r}, which means something else; rename the column")
    check_attributes(Attributes("", {name.lower(): "0"}))


def things_of(target: ToObjects, batch: pa.RecordBatch) -> list[Thing]:
    """The object of each row; `Invalid` if a row has none."""
    from bucketmq.pipeline.lines import plain

    fill = filler(target.template)
    types = {field.name: field.type for field in batch.schema}
    found = []
    for row in batch.to_pylist():
        if target.body is None:
            body = msgspec.json.encode({name: plain(value, types[name]) for name, value in row.items()})
        else:
            body = _content(row[target.body], types[target.body], target.body)
        newer = None if target.newer_by is None else newer_text(row[target.newer_by])
        found.append(Thing(fill(row), body, newer))
    return found


def _content(value: Any, kind: pa.DataType, name: str) -> bytes:
    from bucketmq.pipeline.lines import plain

    if value is None:
        raise Invalid(f"column {name!r} is null here; an object needs a content")
    if isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else msgspec.json.encode(plain(value, kind))


def newer_text(value: Any) -> str:
    """What decides between two states of an object, as its metadata carries it: a whole number, or a time."""
    if isinstance(value, datetime):
        at = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return at.astimezone(UTC).isoformat(timespec="microseconds")
    if isinstance(value, bool) or not isinstance(value, int):
        raise Invalid(f"newer_by is {value!r} here; it must be a whole number or a time")
    return str(value)
