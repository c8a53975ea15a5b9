"""The last step of a chain: rows brought into the shape that the targets' writers need.

A column for each target, `_0`, `_1`, ..., in the order of the pipeline: a struct of a message's columns, a list of
objects, or the row itself for tables; null where the target's `where` leaves the row out. All targets are worked out
here, before anything is written: a row that one of them cannot take goes to none of them.

It is a stage like any other, so that a row of which no message or object can be made is a dead letter and not a failed
query. Writing does not belong here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, assert_never

from bucketmq.errors import Invalid
from bucketmq.pipeline.columns import arrow_schema, column_names, quoted, type_text
from bucketmq.pipeline.ends import Target, ToObjects, ToQueue, ToTable
from bucketmq.pipeline.results import Outcomes
from bucketmq.pipeline.stages import Stage
from bucketmq.pipeline.states import STATE, STATE_KIND, follows_of, states_of
from bucketmq.pipeline.things import THINGS, Maker, as_column
from bucketmq.pipeline.upserts import ToUpserts, check_rows, check_target, columns_of
from bucketmq.pipeline.where import Where

if TYPE_CHECKING:
    import pyarrow as pa

CAUSE = "_cause"
"""The column beside them that says what events led to a row, as JSON, so that the loop guard can count hops."""

TABLE_FOLDERS = ("query", "batch")
"""What the folders of a table are named after: Spark reads them as columns, in place of any that the files have."""

CheckKeys = Callable[[str | None, Sequence[str]], None]
"""Asks the store of a bucket, by its URL or None for the pipeline's, whether it can have objects under these keys:
`Invalid` if not."""


def column_of(place: int) -> str:
    """The column of the target in this place."""
    return f"_{place}"


def shape_stage(targets: Sequence[Target], gives: str, check_keys: CheckKeys | None = None) -> Stage:
    """The stage that brings `gives` into the shape of all targets."""
    shape = Shape(tuple(targets), gives, check_keys)
    return Stage(name="target", takes=gives, gives=shape.gives, function=shape)


def check_columns(gives: str, wanted: Sequence[str | None], what: str) -> None:
    for name in wanted:
        if name is not None and name not in column_names(gives):
            raise Invalid(f"{what} needs a column {name!r}; the last stage gives {', '.join(column_names(gives))}")


class One(Protocol):
    """The shape of one target."""

    kind: str
    """The type of its column."""

    def __call__(self, batch: pa.RecordBatch, wanted: Sequence[bool]) -> pa.Array:
        """The column; null where a row is not wanted, and nothing is asked of such a row. One is, at least."""


class Shape:
    """Rows to a column for each target, and the state of the source object where a target follows it."""

    def __init__(self, targets: tuple[Target, ...], gives: str, check_keys: CheckKeys | None = None) -> None:
        self._targets = targets
        self._takes = gives
        self._check_keys = check_keys
        self._ones = [_one(each, gives, check_keys) for each in targets]
        self._wheres = [None if each.where is None else _where(each, gives) for each in targets]
        self._follows = follows_of(targets, gives)
        columns = [f"{column_of(place)} {one.kind}" for place, one in enumerate(self._ones)]
        self.gives = ", ".join([*columns, *([f"{STATE} {STATE_KIND}"] if self._follows is not None else [])])

    def __reduce__(self) -> Any:
        return type(self), (self._targets, self._takes, self._check_keys)

    def __call__(self, batch: pa.RecordBatch) -> Outcomes:
        import pyarrow as pa

        schema = arrow_schema(self.gives)
        columns = []
        for place, (one, where) in enumerate(zip(self._ones, self._wheres, strict=True)):
            wanted = [True] * batch.num_rows if where is None else where.rows(batch)
            columns.append(one(batch, wanted) if any(wanted) else pa.nulls(len(wanted), schema.field(place).type))
        if self._follows is not None:
            columns.append(states_of(batch, self._follows))
        return Outcomes(rows=pa.RecordBatch.from_arrays(columns, schema=schema), of=range(batch.num_rows))


def _where(target: Target, gives: str) -> Where:
    assert target.where is not None
    try:
        return Where(target.where, gives)
    except Invalid as error:
        raise Invalid(f"where of the {target.title}: {error}") from None


def _one(target: Target, gives: str, check_keys: CheckKeys | None) -> One:
    match target:
        case ToQueue():
            return QueueShape(target, gives)
        case ToObjects():
            return ObjectShape(target, gives, check_keys)
        case ToTable():
            return TableShape(target, gives)
        case ToUpserts():
            return UpsertShape(target, gives)
        case _:
            assert_never(target)


def chosen(batch: pa.RecordBatch, wanted: Sequence[bool]) -> pa.RecordBatch:
    """The wanted rows alone."""
    import pyarrow as pa

    return batch if all(wanted) else batch.filter(pa.array(wanted))


def spread(column: pa.Array, wanted: Sequence[bool]) -> pa.Array:
    """The values of the wanted rows in their places, and null in the others'."""
    import pyarrow as pa

    if all(wanted):
        return column
    places, place = [], 0
    for each in wanted:
        places.append(place if each else None)
        place += each
    return column.take(pa.array(places, pa.int64()))


class QueueShape:
    """Rows to body, key and headers. Bodies that are neither text nor bytes become JSON here, so that times in them are
    written in UTC whatever the session's zone is."""

    def __init__(self, target: ToQueue, gives: str) -> None:
        check_columns(gives, (target.body, target.key, target.headers), f"the {target.title}")
        self._target = target
        kind = None if target.body is None else type_text(arrow_schema(gives).field(target.body).type)
        self._encodes = kind not in ("string", "binary")
        if target.text and kind != "string":
            raise Invalid(f"text says that the body of {target.queue!r} is text, but {target.body or 'the row'} is not")
        fields = ["body:binary" if kind == "binary" else "body:string"]
        if target.key is not None:
            fields.append("key:string")
        if target.headers is not None:
            fields.append("headers:map<string,string>")
        self.kind = f"struct<{','.join(fields)}>"

    def __call__(self, batch: pa.RecordBatch, wanted: Sequence[bool]) -> pa.Array:
        import pyarrow as pa

        from bucketmq.pipeline.letters import Columns

        target = self._target
        rows = chosen(batch, wanted)
        body = rows.to_struct_array() if target.body is None else rows.column(target.body)
        columns = {"body": _json(body) if self._encodes else body}
        if target.key is not None:
            columns["key"] = rows.column(target.key)
        if target.headers is not None:
            columns["headers"] = rows.column(target.headers)
        made = pa.RecordBatch.from_pydict(columns)
        Columns(made.schema.names, text=target.text).check(made)
        return spread(made.to_struct_array().cast(arrow_schema(f"x {self.kind}").field("x").type), wanted)


def _json(column: pa.Array) -> pa.Array:
    """Values as JSON text."""
    import pyarrow as pa

    from bucketmq.pipeline import lines

    return lines.encoded(lines.values_of(column)).cast(pa.large_string()).cast(pa.string())


class ObjectShape:
    """Rows to objects: keys, contents and what goes beside them."""

    def __init__(self, target: ToObjects, gives: str, check_keys: CheckKeys | None = None) -> None:
        self._target = target
        self._maker = Maker(target, arrow_schema(gives))
        self._check_keys = check_keys
        self.kind = THINGS

    def __call__(self, batch: pa.RecordBatch, wanted: Sequence[bool]) -> pa.Array:
        things = self._maker.things(chosen(batch, wanted))
        if self._check_keys is not None:
            keys = [key for row in things for each in row for key in (each.key, each.copy_of) if key is not None]
            self._check_keys(self._target.bucket, keys)
        return spread(as_column(things), wanted)


class TableShape:
    """Rows as they are."""

    def __init__(self, target: ToTable, gives: str) -> None:
        check_columns(gives, target.partition_by, "partition_by of the table")
        taken = [name for name in column_names(gives) if name.lower() in TABLE_FOLDERS]
        if taken:
            raise Invalid(f"a table has a column {taken[0]!r} of its own, which would hide this one; rename it")
        self.kind = type_of_row(gives)

    def __call__(self, batch: pa.RecordBatch, wanted: Sequence[bool]) -> pa.Array:
        return spread(chosen(batch, wanted).to_struct_array(), wanted)


class UpsertShape:
    """Rows as they are, if the table can take them."""

    def __init__(self, target: ToUpserts, gives: str) -> None:
        check_columns(gives, (*target.meaning, *target.columns), f"the {target.title}")
        check_target(target, arrow_schema(gives))
        self._target = target
        self.kind = type_of_row(columns_of(target, gives))

    def __call__(self, batch: pa.RecordBatch, wanted: Sequence[bool]) -> pa.Array:
        rows = chosen(batch, wanted)
        check_rows(self._target, rows)
        if self._target.columns:
            rows = rows.select(self._target.columns)
        return spread(rows.to_struct_array(), wanted)


def type_of_row(gives: str) -> str:
    fields = (f"{quoted(field.name)}:{type_text(field.type)}" for field in arrow_schema(gives))
    return f"struct<{','.join(fields)}>"
