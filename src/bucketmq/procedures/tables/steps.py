"""Changes of a table, worked out: rows in whatever form users have them become Arrow, checked, before anything is asked
of the store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from bucketmq.errors import Invalid, Unsupported
from bucketmq.tables.changes import Change, Delete, Replace, Rows, Upsert
from bucketmq.tables.head import GroupValue, Shape

if TYPE_CHECKING:
    import pyarrow as pa

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Step(msgspec.Struct, frozen=True):
    """A change, worked out: the groups it is about, each with its state, and their rows."""

    groups: Mapping[GroupValue, int | None]
    rows: pa.Table | None = None
    whole: bool = True
    """Whether everything that the groups had goes."""
    keys: frozenset[GroupValue] = frozenset()
    """The rows that go, where not everything does."""
    newer: int | datetime | None = None
    """The state as the caller gave it, where no rows tell it."""


def step_of(change: Change, shape: Shape) -> Step:
    """A change as a step, or `Invalid`."""
    match change:
        case Upsert(rows=rows):
            table = table_of(rows, shape)
            if table is None:
                return Step({})
            return Step(states_of(table, shape), last_of_each(table, shape), whole=shape.group is None)
        case Replace(rows=rows, group=group, newer=newer):
            return _replacement(table_of(rows, shape), group, newer, shape)
        case Delete(groups=groups, newer=newer, keys=keys):
            if isinstance(groups, str) or not groups:
                raise Invalid("delete takes the names of the groups, or of the rows where a table has no groups")
            if keys is not None and (len(groups) != 1 or isinstance(keys, str)):
                raise Invalid("keys is a list of keys of one group; delete those of several groups by several changes")
            states = dict.fromkeys((check_group(each) for each in groups), state_of(newer, shape))
            if keys is None:
                return Step(states, newer=newer)
            if shape.group is None:
                raise Invalid("this table has no groups; delete takes the keys of its rows, without keys=")
            return Step(states, whole=False, keys=frozenset(check_group(each) for each in keys), newer=newer)
        case _:
            raise Invalid(f"a change is an Upsert, Replace or Delete of bucketmq.tables, not {change!r:.80}")


def _replacement(table: pa.Table | None, group: GroupValue | None, newer: int | datetime | None, shape: Shape) -> Step:
    if group is None:
        if table is None:
            raise Invalid("there are no rows to tell whose place they take; name the group that is to have none")
        return Step(states_of(table, shape), last_of_each(table, shape))
    if table is None:
        return Step({check_group(group): state_of(newer, shape)}, newer=newer)
    states = states_of(table, shape)
    others = [each for each in states if each != group]
    if others:
        raise Invalid(f"a row of group {others[0]!r} is among those that replace {group!r}; give each group its own")
    return Step({check_group(group): states.get(group, state_of(newer, shape))}, last_of_each(table, shape))


def latest(table: pa.Table, shape: Shape, deleted: str | None) -> Step:
    """The rows of a batch as one replacement: of each group only the rows of its newest state count, and none of those
    whose column `deleted` is true. What such a group had goes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if deleted is not None:
        gone = pc.fill_null(table.column(deleted), False)
        living = table.drop_columns([deleted])
    else:
        gone, living = pa.array([False] * table.num_rows), table
    states = states_of(living, shape)
    if shape.newer_by is not None:
        own = zip(living.column(shape.by).to_pylist(), numbers_of(living.column(shape.newer_by)), strict=True)
        newest = pa.array([states[group] == state for group, state in own], pa.bool_())
        return Step(states, last_of_each(living.filter(pc.and_(newest, pc.invert(gone))), shape))
    # No state to go by: what comes last counts, for rows and deletions alike.
    places = {group: place for place, group in enumerate(living.column(shape.by).to_pylist())}
    last = living.take(pa.array(sorted(places.values()), pa.int64()))
    return Step(states, last.filter(pc.invert(gone.take(pa.array(sorted(places.values()), pa.int64())))))


def table_of(rows: Rows, shape: Shape) -> pa.Table | None:
    """Rows as an Arrow table that has the columns of the shape, or `Invalid`; None for no rows without such columns."""
    table = _arrow(rows)
    names = dict.fromkeys(each for each in (shape.key, shape.group, shape.newer_by) if each is not None)
    if not table.num_rows and not all(_is_typed(table, name) for name in names):
        return None
    for name in names:
        if name not in table.column_names:
            raise Invalid(f"the rows have no column {name!r}, which the table needs; there are {table.column_names}")
        if table.column(name).null_count:
            raise Invalid(f"column {name!r} is null in some row; every row needs a value there")
        check_type(name, table.column(name).type, may_be_time=name == shape.newer_by)
    return table


def _is_typed(table: pa.Table, name: str) -> bool:
    from pyarrow import types

    return name in table.column_names and not types.is_null(table.column(name).type)


def check_group(value: object) -> GroupValue:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise Invalid(f"a group or key is text or a whole number, not {value!r:.80}")
    return value


def states_of(table: pa.Table, shape: Shape) -> dict[GroupValue, int | None]:
    """The groups that rows belong to, each with the highest state among its rows."""
    groups = table.column(shape.by).to_pylist()
    if shape.newer_by is None:
        return dict.fromkeys(groups)
    found: dict[GroupValue, int | None] = {}
    for group, state in zip(groups, numbers_of(table.column(shape.newer_by)), strict=True):
        before = found.get(group)
        found[group] = state if before is None else max(before, state)
    return found


def last_of_each(table: pa.Table, shape: Shape) -> pa.Table:
    """Of several rows with one group and key the last one, or the newest where a state tells."""
    import pyarrow as pa

    names = zip(table.column(shape.by).to_pylist(), table.column(shape.key).to_pylist(), strict=True)
    states = [0] * table.num_rows if shape.newer_by is None else numbers_of(table.column(shape.newer_by))
    chosen: dict[Any, int] = {}
    for place, name in enumerate(names):
        if name not in chosen or states[chosen[name]] <= states[place]:
            chosen[name] = place
    if len(chosen) == table.num_rows:
        return table
    return table.take(pa.array(sorted(chosen.values()), pa.int64()))


def numbers_of(column: pa.ChunkedArray) -> list[int]:
    """The states in a column: whole numbers as they are, times in microseconds since 1970."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", tz=column.type.tz), safe=False).cast(pa.int64())
    numbers: list[int] = column.to_pylist()
    return numbers


def state_of(newer: int | datetime | None, shape: Shape) -> int | None:
    if newer is None:
        return None
    if shape.newer_by is None:
        raise Invalid("newer says which state is newer, but the table was made without newer_by")
    if isinstance(newer, datetime):
        at = newer if newer.tzinfo is not None else newer.replace(tzinfo=UTC)
        return (at - EPOCH) // timedelta(microseconds=1)
    if isinstance(newer, bool) or not isinstance(newer, int):
        raise Invalid(f"newer must be a whole number or a time, not {newer!r:.80}")
    return newer


def _arrow(rows: Rows) -> pa.Table:
    try:
        import pyarrow as pa
    except ImportError as error:
        raise Unsupported("tables need pyarrow; install it: pip install pyarrow") from error
    try:
        if isinstance(rows, pa.Table):
            table = rows
        elif isinstance(rows, pa.RecordBatch):
            table = pa.Table.from_batches([rows])
        elif hasattr(rows, "iloc"):
            table = pa.Table.from_pandas(rows, preserve_index=False)
        elif hasattr(rows, "__arrow_c_stream__"):
            table = pa.table(rows)
        else:
            table = _of_dicts(rows)
        plain = [_plain(column) for column in table.columns]
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise Invalid(f"these rows cannot be made an Arrow table: {error}") from error
    twice = [name for name in table.column_names if table.column_names.count(name) > 1]
    if twice:
        raise Invalid(f"the rows have a column {twice[0]!r} twice; give each column a name of its own")
    return pa.table(plain, names=table.column_names)


def _of_dicts(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    import pyarrow as pa

    rows = list(rows)
    if not all(isinstance(row, Mapping) for row in rows):
        raise TypeError("give a list of dicts, an Arrow table or a DataFrame")
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column without an encoding of its own, which would differ from batch to batch."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type):
        return column.cast(pa.large_string() if pa.types.is_string_view(column.type) else pa.large_binary())
    return column


def check_type(name: str, kind: pa.DataType, *, may_be_time: bool) -> None:
    """Raise `Invalid` unless a column that means something can be of this type."""
    from pyarrow import types

    text = (types.is_string(kind) or types.is_large_string(kind)) and not may_be_time
    if not (text or types.is_integer(kind) or (may_be_time and types.is_timestamp(kind))):
        wanted = "a whole number or a time" if may_be_time else "text or a whole number"
        raise Invalid(f"column {name!r} is {kind}, but must be {wanted}")
