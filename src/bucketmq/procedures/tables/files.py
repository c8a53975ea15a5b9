"""The file of a shard: rows as Parquet, and the groups that are gone in its footer. What steps make of them.

Everything here is computing: bytes in, bytes out. Whoever reads such a file with another tool sees the rows and nothing
else.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from bucketmq.errors import Corrupt, Invalid
from bucketmq.procedures.tables.parquet import from_parquet, to_parquet
from bucketmq.procedures.tables.steps import Step, numbers_of
from bucketmq.tables.head import GroupValue, Shape, slot_of

if TYPE_CHECKING:
    import pyarrow as pa

SPLIT_BYTES = 8 << 20
"""A file that is larger is divided in two, by its slots: a commit rewrites no more than this for a group."""

GONE_SECONDS = 7 * 86400.0
"""How long it is remembered that a group was deleted, and at which state: what comes later than that, comes back."""

OWN = b"bucketmq"


class Gone(msgspec.Struct, frozen=True, array_like=True):
    """A group of which something was deleted, so that no row tells its state: which it is, and since when."""

    state: int
    at: float


class Footer(msgspec.Struct, frozen=True):
    """What we keep beside the rows, in the metadata of the file."""

    gone: dict[str, Gone] = {}
    """By the group's value as text."""


class Contents(msgspec.Struct, frozen=True):
    """What a file holds."""

    rows: pa.Table
    gone: dict[str, Gone] = {}


class Piece(msgspec.Struct, frozen=True):
    """A file to be written, for the slots from `start` on."""

    start: int
    rows: int
    body: bytes
    sha256: str


class Work(msgspec.Struct, frozen=True):
    """What is to be done to a shard: where its slots begin, what it holds, the steps, and the columns it must have."""

    start: int
    before: Contents
    steps: Sequence[Step]
    shape: Shape
    schema: pa.Schema
    now: float
    new: bool = False
    """Whether it has no file yet, and gets one at any rate."""


class Done(msgspec.Struct, frozen=True):
    """The files that take the place of a shard's, none if nothing changes; and for each step the groups that it left as
    they are, because those are newer."""

    pieces: tuple[Piece, ...]
    stale: tuple[frozenset[GroupValue], ...]


def rewrite(work: Work) -> Done:
    """Apply steps to a shard, one after the other, and divide what came of it if it is large."""
    before = contents = Contents(conform(work.before.rows, work.schema), work.before.gone)
    stale = []
    for step in work.steps:
        contents, old = apply(contents, step, work)
        stale.append(old)
    by = work.shape.by
    order = dict.fromkeys((by, work.shape.key))
    rows = contents.rows.sort_by([(name, "ascending") for name in order])
    kept = {group: gone for group, gone in contents.gone.items() if work.now - gone.at < GONE_SECONDS}
    if not work.new and _known(kept) == _known(before.gone) and rows.equals(before.rows):
        return Done((), tuple(stale))
    return Done(tuple(_pieces(Contents(rows, kept), by, work.start)), tuple(stale))


def apply(contents: Contents, step: Step, work: Work) -> tuple[Contents, frozenset[GroupValue]]:
    """What one step makes of the contents, and the groups of it that are older than what is there."""
    import pyarrow as pa
    import pyarrow.compute as pc

    shape, rows = work.shape, contents.rows
    touched = _any_of(rows.column(shape.by), step.groups)
    theirs = rows.filter(touched)
    states = _states(theirs, contents.gone, step, shape)
    stale = frozenset(
        group for group, state in step.groups.items() if state is not None and states.get(group, state) > state
    )
    put = None if step.rows is None else conform(step.rows, work.schema)
    if put is not None and stale:
        put = put.filter(pc.invert(_any_of(put.column(shape.by), stale)))
    keep = _kept(theirs, put, step, stale, shape)
    parts = [rows.filter(pc.invert(touched)), theirs.filter(pa.array(keep, pa.bool_()))]
    if put is not None:
        parts.append(put)
    there = _states_of_rows(parts[1:], shape)
    gone = dict(contents.gone)
    for group in step.groups.keys() - stale:
        gone.pop(str(group), None)
        state = max((each for each in (step.groups[group], states.get(group)) if each is not None), default=None)
        if state is not None and state > there.get(group, state - 1):  # no row is left that tells it
            gone[str(group)] = Gone(state, work.now)
    return Contents(pa.concat_tables(parts), gone), stale


def _known(gone: dict[str, Gone]) -> dict[str, int]:
    return {group: each.state for group, each in gone.items()}


def _states(rows: pa.Table, gone: dict[str, Gone], step: Step, shape: Shape) -> dict[GroupValue, int]:
    """The state of each group of a step, where it has one."""
    if shape.newer_by is None:
        return {}
    found = {group: gone[str(group)].state for group in step.groups if str(group) in gone}
    for group, state in _states_of_rows([rows], shape).items():
        found[group] = max(state, found.get(group, state))
    return found


def _states_of_rows(parts: Iterable[pa.Table], shape: Shape) -> dict[GroupValue, int]:
    """The highest state among the rows of each group."""
    found: dict[GroupValue, int] = {}
    for rows in parts if shape.newer_by is not None else ():
        states = zip(rows.column(shape.by).to_pylist(), numbers_of(rows.column(shape.newer_by)), strict=True)
        for group, state in states:
            found[group] = max(state, found.get(group, state))
    return found


def _kept(theirs: pa.Table, put: pa.Table | None, step: Step, stale: frozenset[GroupValue], shape: Shape) -> list[bool]:
    """Which of the rows of a step's groups stay."""
    groups = theirs.column(shape.by).to_pylist()
    if step.whole:
        return [group in stale for group in groups]
    names = list(zip(groups, theirs.column(shape.key).to_pylist(), strict=True))
    new: set[Any] = set()
    if put is not None:
        new = set(zip(put.column(shape.by).to_pylist(), put.column(shape.key).to_pylist(), strict=True))
    return [name[0] in stale or not (name in new or name[1] in step.keys) for name in names]


def _any_of(column: pa.ChunkedArray, values: Iterable[GroupValue]) -> pa.Array:
    import pyarrow.compute as pc

    return pc.is_in(column, value_set=values_of(values, column.type))


def values_of(values: Iterable[GroupValue], kind: pa.DataType) -> pa.Array:
    """Names of groups or keys as values of their column, or `Invalid`."""
    import pyarrow as pa

    values = list(values)
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise Invalid(f"{values[:3]!r} are not values of a column of type {kind}: {error}") from error


def check_step(step: Step, schema: pa.Schema, shape: Shape) -> None:
    """Raise `Invalid` unless a step can be applied to a table with these columns."""
    values_of(step.groups, schema.field(shape.by).type)
    values_of(step.keys, schema.field(shape.key).type)
    if step.newer is not None and shape.newer_by is not None:
        check_newer(step.newer, shape.newer_by, schema.field(shape.newer_by).type)
    if step.rows is not None:
        conform(step.rows, schema)


def check_newer(newer: int | datetime, name: str, kind: pa.DataType) -> None:
    """A time in microseconds would be newer than any number that counts, and block its group."""
    from pyarrow import types

    if isinstance(newer, datetime) != types.is_timestamp(kind):
        given, wanted = ("a time", "a whole number") if isinstance(newer, datetime) else ("a number", "a time")
        raise Invalid(f"newer is {given}, but column {name!r} is {kind}: give {wanted}")


def part_of(step: Step, groups: Sequence[GroupValue], shape: Shape) -> Step:
    """The part of a step that is about these groups."""
    if len(groups) == len(step.groups):
        return step
    rows = step.rows
    if rows is not None:
        rows = rows.filter(_any_of(rows.column(shape.by), groups))
    return Step({group: step.groups[group] for group in groups}, rows, step.whole, step.keys)


def _pieces(contents: Contents, by: str, start: int) -> list[Piece]:
    body = encode(contents)
    if len(body) > SPLIT_BYTES:
        slots = sorted({slot_of(group) for group in (*contents.rows.column(by).unique().to_pylist(), *contents.gone)})
        if len(slots) > 1:  # a group is never divided, however large it is
            middle = slots[len(slots) // 2]
            low, high = divided(contents, by, middle)
            return [*_pieces(low, by, start), *_pieces(high, by, middle)]
    return [Piece(start, contents.rows.num_rows, body, hashlib.sha256(body).hexdigest())]


def divided(contents: Contents, by: str, middle: int) -> tuple[Contents, Contents]:
    """What belongs to slots below `middle`, and the rest."""
    import pyarrow.compute as pc

    column = contents.rows.column(by)
    mask = _any_of(column, [group for group in column.unique().to_pylist() if slot_of(group) < middle])
    gone = {group: slot_of(group) < middle for group in contents.gone}
    return (
        Contents(contents.rows.filter(mask), {group: contents.gone[group] for group, is_low in gone.items() if is_low}),
        Contents(
            contents.rows.filter(pc.invert(mask)),
            {group: contents.gone[group] for group, is_low in gone.items() if not is_low},
        ),
    )


def encode(contents: Contents) -> bytes:
    footer = msgspec.json.encode(Footer(contents.gone))
    return to_parquet(contents.rows.replace_schema_metadata({OWN: footer}))


def decode(body: bytes, key: str, *, sha256: str, columns: Sequence[str] | None = None) -> Contents:
    """The contents of a file, or `Corrupt` if it is not the one that the head names."""
    import pyarrow as pa

    if hashlib.sha256(body).hexdigest() != sha256:
        raise Corrupt(f"{key} is not the file that the head of its table names; restore it from a copy")
    try:
        rows = from_parquet(body, columns=columns)
        footer = msgspec.json.decode((rows.schema.metadata or {}).get(OWN, b"{}"), type=Footer)
    except (pa.ArrowException, OSError, msgspec.DecodeError) as error:
        raise Corrupt(f"{key} is not a file of a table ({error}); restore it from a copy") from error
    return Contents(rows.replace_schema_metadata(None), footer.gone)


def schema_text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.remove_metadata().serialize().to_pybytes()).decode()


def read_schema(text: str, key: str) -> pa.Schema:
    import pyarrow as pa

    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
    except (pa.ArrowException, ValueError, OSError) as error:
        raise Corrupt(f"{key} has a schema that is not one ({error}); restore it from a copy") from error


def unified(schema: pa.Schema | None, rows: pa.Table) -> pa.Schema:
    """The columns of a table once it has these rows: new ones are added, and none changes its type."""
    import pyarrow as pa

    known = {} if schema is None else {field.name: field.type for field in schema}
    for field in rows.schema:
        have = known.get(field.name)
        if have is None or pa.types.is_null(have):
            _check_storable(field)
            known[field.name] = field.type
        elif not _fits(field.type, have):
            raise Invalid(f"column {field.name!r} of the rows is {field.type}, but in the table it is {have}")
    return pa.schema(list(known.items()))


def _check_storable(field: pa.Field) -> None:
    """Raise `Invalid` unless Parquet has such a column: nobody who rides along must fail of it."""
    import pyarrow as pa

    try:
        none = pa.schema([field]).empty_table()
        to_parquet(none.take(pa.array([], pa.int64())))
    except pa.ArrowException as error:
        raise Invalid(f"column {field.name!r} is {field.type}, which Parquet cannot hold: {error}") from error


def conform(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with exactly these columns; those that they do not have are null."""
    import pyarrow as pa

    columns = []
    for field in schema:
        if field.name not in rows.column_names:
            columns.append(pa.chunked_array([pa.nulls(rows.num_rows, field.type)]))
            continue
        column = rows.column(field.name)
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except pa.ArrowException as error:
            raise Invalid(f"column {field.name!r} does not fit the table's type {field.type}: {error}") from error
    return pa.table(columns, schema=schema)


def _fits(kind: pa.DataType, have: pa.DataType) -> bool:
    """Whether values of one type are also values of the other: `conform` casts them, and refuses those that are not."""
    from pyarrow import types

    if kind == have or types.is_null(kind):
        return True
    if types.is_nested(kind) and types.is_nested(have):
        lists = (types.is_list, types.is_large_list, types.is_fixed_size_list)
        both = any(test(kind) for test in lists) and any(test(have) for test in lists)
        return both and _fits(kind.value_type, have.value_type)
    families = (
        (types.is_string, types.is_large_string),
        (types.is_binary, types.is_large_binary, types.is_fixed_size_binary),
        (types.is_integer,),
        (types.is_floating,),
        (types.is_timestamp,),
    )
    same = any(any(t(kind) for t in family) and any(t(have) for t in family) for family in families)
    return same or (types.is_integer(kind) and types.is_floating(have))
